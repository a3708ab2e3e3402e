"""The whole demo, for real: broker, job, traffic and books; and nothing left of it afterwards, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.browser import browser, open_tab

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 600.0  # the first run on a machine fetches jars and compiles the kernel
FIELDS = [
    "transactions",
    "alerts",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "precision",
    "recall",
    "late",
    "dead_letters",
    "lost",
    "duplicated",
    "duplicates",
    "quarantined",
]


class RunningDemo:
    """`headrace demo` as a user starts it, with a state folder of its own, by which its processes are known."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.state = folder / "state"
        self._output = folder / "output.txt"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "demo", *arguments],
                cwd=PROJECT,
                env={**os.environ, "HEADRACE_STATE": str(self.state)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def await_output(self, text: str) -> None:
        until(lambda: text in self.output or self.process.poll() is not None, f"`{text}` in the output")
        assert text in self.output, self.output

    def end(self) -> int:
        return self.process.wait(DEADLINE_SECONDS)

    def summary(self) -> dict[str, Any]:
        last = self.output.rstrip("\n").rpartition("\n")[2]
        read = json.loads(last)
        assert isinstance(read, dict)
        return read

    def processes(self) -> list[str]:
        """Everything that the demo started, directly or not, and that still runs."""
        mark = f"HEADRACE_STATE={self.state}"
        if not sys.platform.startswith("linux"):
            listed = subprocess.run(["ps", "-axEww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
            return [line for line in listed.stdout.splitlines() if mark in line]
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()!r}")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # gone meanwhile, or of another user
        return found


def until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.1)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningDemo]]:
    started: list[RunningDemo] = []

    def begin(*arguments: str) -> RunningDemo:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(RunningDemo(folder, *arguments))
        return started[-1]

    yield begin
    for demo in started:
        if demo.process.poll() is None:
            demo.process.kill()
            demo.process.wait()


def test_every_transaction_is_accounted_for_and_nothing_is_left_behind(start: Callable[..., RunningDemo]) -> None:
    # With this seed a straggler comes every 21 s at the latest, and the run takes 10 s of warm-up and these 15.
    demo = start("--seconds", "15", "--rate", "100", "--seed", "2")
    demo.await_output("dashboard at ")
    watch_in_a_browser(demo.output.partition("dashboard at ")[2].split()[0])
    code = demo.end()
    summary = demo.summary()
    assert code == 0, demo.output
    assert list(summary) == FIELDS
    assert summary["lost"] == 0
    assert summary["duplicated"] == 0
    # 100 a second for 15 s after the warm-up; the machine may be slow, the generator catches up.
    assert summary["transactions"] > 1_200
    assert summary["alerts"] > 0
    assert summary["precision"] == 1.0
    assert summary["recall"] == 1.0
    assert summary["late"] > 0
    assert summary["dead_letters"] > 0
    assert summary["duplicates"] > 0
    assert summary["quarantined"] > 0
    assert 0 < summary["p50_ms"] <= summary["p95_ms"] <= summary["p99_ms"]
    assert demo.processes() == []


def watch_in_a_browser(url: str) -> None:
    """The demo's own page, while it runs: numbers that move, late events on the graph, and the latest alerts."""
    with browser() as launched:
        tab = open_tab(launched, url)
        tab.page.get_by_role("heading", name="fraud").wait_for()
        shown = tab.page.locator('[data-tile="throughput"] .big')
        seen: set[str] = set()

        def moved() -> bool:
            seen.add(shown.inner_text())
            return len(seen) >= 3

        until(moved, "the numbers to move", 60)
        late = tab.page.locator('[data-edge$=">topic:transactions-late"]')
        until(lambda: float(late.get_attribute("data-rate") or 0) > 0, "late transactions on the graph", 60)
        tab.page.get_by_role("tab", name="fraud-alerts").click()
        until(lambda: "card" in tab.page.locator("#results").inner_text(), "the latest alerts", 60)
        tab.picture("demo-1440")
        assert tab.problems == []


def test_ctrl_c_ends_it_in_good_order(start: Callable[..., RunningDemo]) -> None:
    demo = start("--rate", "20")
    demo.await_output("warming up")
    os.killpg(demo.process.pid, signal.SIGINT)  # as a terminal does: to everything in the foreground
    assert demo.end() == 0, demo.output
    summary = demo.summary()
    assert summary["transactions"] > 1_000  # the history alone has 1,200, more or less
    assert (summary["lost"], summary["p99_ms"]) == (0, None)  # it had not begun to measure
    assert demo.processes() == []


@pytest.mark.soak
def test_ctrl_c_while_it_measures_ends_it_in_good_order_and_a_second_demo_has_to_wait(
    start: Callable[..., RunningDemo],
) -> None:
    demo = start("--rate", "50", "--output", "text")
    demo.await_output("warming up")
    second = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "--seconds", "1"],
        cwd=PROJECT,
        env={**os.environ, "HEADRACE_STATE": str(demo.state)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert "AlreadyRunningError: another demo runs in this project." in second.stderr
    demo.await_output("\nrunning ")
    demo.process.send_signal(signal.SIGINT)
    assert demo.end() == 0, demo.output
    assert demo.summary()["lost"] == 0
    assert demo.processes() == []


def test_a_demo_that_is_killed_while_the_job_starts_takes_everything_along(start: Callable[..., RunningDemo]) -> None:
    demo = start("--rate", "20")
    until(lambda: any("SparkSubmit" in line for line in demo.processes()), "the JVM of the job")
    assert len(demo.processes()) > 5  # itself, the broker, the job, two workers, and who guards them
    demo.process.kill()
    demo.end()
    until(lambda: demo.processes() == [], "all of its processes to end", 90)


@pytest.mark.soak
def test_a_demo_that_is_killed_while_it_runs_takes_everything_along(start: Callable[..., RunningDemo]) -> None:
    demo = start("--rate", "50")
    demo.await_output("warming up")
    assert len(demo.processes()) > 5
    demo.process.kill()
    demo.end()
    until(lambda: demo.processes() == [], "all of its processes to end", 90)


@pytest.mark.soak
def test_breaking_off_while_things_are_set_up_leaves_nothing(start: Callable[..., RunningDemo]) -> None:
    demo = start("--rate", "50")
    demo.await_output("topics")
    demo.process.send_signal(signal.SIGTERM)
    assert demo.end() == 130, demo.output
    assert demo.processes() == []


@pytest.mark.soak
def test_a_job_that_dies_is_told_with_its_last_words(start: Callable[..., RunningDemo]) -> None:
    demo = start("--rate", "50")
    demo.await_output("warming up")
    job = next(line for line in demo.processes() if "examples.fraud:fraud" in line and "guard.py" not in line)
    os.kill(int(job.split()[0]), signal.SIGKILL)
    assert demo.end() == 1
    assert "the fraud job ended by itself." in demo.output
    until(lambda: demo.processes() == [], "all of its processes to end", 90)
