"""The small parts of the demo: its folder, its project, its signals, the progress file it reads along."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from examples.fraud.generator import Emission, Kind
from headrace.demo import sender, warmup
from headrace.demo.interrupts import Interrupts
from headrace.demo.job import ProgressFile
from headrace.demo.orchestration import find_project, run_folder
from headrace.demo.worker import Owner, Report, Worker, tail
from headrace.errors import AlreadyRunningError, HeadraceError, RunError
from headrace.log.producer import producer_config


def test_the_example_is_found_in_a_checkout_and_its_absence_is_explained(tmp_path: Path) -> None:
    assert (find_project() / "examples" / "fraud" / "pipeline.py").is_file()
    with pytest.raises(HeadraceError, match="the fraud example is not here") as raised:
        find_project(tmp_path)
    assert raised.value.fix == "run it inside a checkout of Headrace: make demo"


def test_each_run_has_a_fresh_folder_and_only_one_runs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with run_folder() as first:
        (first / "job.log").write_text("old")
        with pytest.raises(AlreadyRunningError, match="another demo runs"), run_folder():
            pass
    assert first.is_dir()  # its logs can be read until the next run
    with run_folder() as second:
        assert not first.exists()
        assert list(second.iterdir()) == []


def test_a_signal_breaks_off_the_setting_up_and_later_only_asks() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    with Interrupts() as interrupts:
        interrupts.defer()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.requested
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_signal_ends_it_by_force() -> None:
    program = """
import os, signal
from headrace.demo.interrupts import Interrupts
with Interrupts() as interrupts:
    interrupts.defer()
    interrupts.by_force(lambda: print("killed the rest", flush=True))
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    print("still here", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    assert ended.stdout == "killed the rest\n"


def test_a_progress_file_is_read_along_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    progress = ProgressFile(path)
    assert progress.read_new() == []
    path.write_text('{"event": "started"}\n{"event": "prog')
    assert progress.read_new() == [{"event": "started"}]
    assert progress.read_new() == []
    with path.open("a") as lines:
        lines.write('ress"}\n')
    assert progress.read_new() == [{"event": "progress"}]


def echo(tmp_path: Path, body: str) -> tuple[Worker, list[Report]]:
    """A worker with this body; `owner` is there."""
    (tmp_path / "echo_worker.py").write_text(f"from headrace.demo.worker import Owner\nowner = Owner()\n{body}\n")
    reports: list[Report] = []
    console = tmp_path / "echo.log"
    return Worker("echo_worker", {"rate": 5}, reports.append, folder=tmp_path, console=console), reports


def test_a_worker_reports_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    worker, reports = echo(
        tmp_path,
        "import json, sys\nowner.report(json.loads(sys.argv[1]))\nowner.stopping.wait()\nowner.report({'last': 1})",
    )
    worker.check()
    worker.stop(60)
    assert reports == [{"rate": 5}, {"last": 1}]


def test_a_worker_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    worker, _ = echo(tmp_path, "raise SystemExit('no broker at all')")
    with pytest.raises(RunError, match="no broker at all"):
        worker.stop(60)


def test_a_report_that_can_not_be_taken_is_an_error_of_the_owner(tmp_path: Path) -> None:
    worker, reports = echo(tmp_path, "print('no json', flush=True)\nowner.stopping.wait()")
    with pytest.raises(json.JSONDecodeError):
        worker.stop(60)
    assert reports == []


def test_a_worker_whose_owner_is_gone_ends(tmp_path: Path) -> None:
    (tmp_path / "orphan.py").write_text(
        "from headrace.demo.worker import Owner\nowner = Owner()\nowner.stopping.wait(600)\n"
    )
    orphan = subprocess.Popen([sys.executable, "orphan.py"], cwd=tmp_path, stdin=subprocess.PIPE)
    assert orphan.stdin is not None
    orphan.stdin.close()
    assert orphan.wait(60) == 1


class Hearer(Owner):
    """An owner in this process, that keeps what it is told."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.heard: list[Report] = []

    def report(self, report: Report) -> None:
        self.heard.append(report)


def test_a_transaction_that_finds_no_room_until_the_end_counts_as_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens at the broker's port, and the producer has room for three."""
    config = producer_config("127.0.0.1:1", **{"queue.buffering.max.messages": 3})
    monkeypatch.setattr(sender, "producer_config", lambda bootstrap, **overrides: {**config, **overrides})
    monkeypatch.setattr(sender, "_FLUSH_SECONDS", 0.0)
    owner = Hearer()
    due = [Emission(0, b"card-1", b"{}", Kind.NORMAL, f"t{n}", None) for n in range(10)]
    sending = threading.Thread(target=sender.Sender("127.0.0.1:1", "transactions", owner).send, args=(due,))
    sending.start()
    deadline = time.monotonic() + 60
    while not owner.heard:  # it reports while the fourth waits for room
        assert time.monotonic() < deadline, "it does not report while it waits"
        time.sleep(0.01)
    owner.stopping.set()
    sending.join(60)
    assert not sending.is_alive()
    assert sum(report["failed"] for report in owner.heard) == 4
    assert [report["sent"] for report in owner.heard if report["sent"]] == []


def warm(elapsed: float, waiting: int = 0, p99: float | None = 20.0) -> bool:
    return warmup.is_over(elapsed, waiting=waiting, rate=200, recent_p99_ms=p99)


def test_the_warm_up_ends_when_the_backlog_is_gone_and_the_latency_has_settled() -> None:
    assert not warm(9.9)
    assert warm(10.0)
    assert not warm(10.0, p99=80.0)
    assert not warm(10.0, p99=None)  # nothing came in the last seconds
    assert not warm(10.0, waiting=100)


def test_a_latency_that_never_settles_is_measured_all_the_same() -> None:
    assert not warm(44.9, p99=80.0)
    assert warm(45.0, p99=80.0)
    assert not warm(89.9, waiting=5_000)
    assert warm(90.0, waiting=5_000, p99=None)


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert tail(log, lines=2) == "line 98\nline 99"
    assert tail(tmp_path / "none.log") == "It has said nothing yet."
