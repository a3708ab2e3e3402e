"""What `headrace top` draws."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headrace.ops.alarming import Alarms
from headrace.ops.terminal import line_of, screen
from headrace.ops.watch import Watch
from tests.unit.synthetic_feed import Synthetic


@pytest.fixture(scope="module")
def watch() -> Watch:
    feed = Synthetic(3, 2, rate=1000)
    feed.stalled.add(1)
    watch = Watch(feed, Alarms(["lag_events > 1000"]), wall=feed.wall)
    for _ in range(10):
        watch.look()
    return watch


@pytest.mark.parametrize("width", [80, 160])
def test_the_screen_has_every_pipeline_and_the_chosen_one_in_full(watch: Watch, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(screen(watch.summary(), watch.detail("pipeline-01"), "127.0.0.1:9092"))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(len(line) for line in text.splitlines()) <= width
    assert "1 firing" in text
    assert "lag_events > 1000" in text
    if width > 100:
        for name in ("pipeline-00", "pipeline-01", "pipeline-02", "20,000", "in-1", "out-1"):
            assert name in text


def test_nothing_has_run_yet() -> None:
    feed = Synthetic(0, 1)
    watch = Watch(feed, wall=feed.wall)
    watch.look()
    console = Console(file=io.StringIO(), width=100)
    console.print(screen(watch.summary(), None, "127.0.0.1:9092"))
    assert isinstance(console.file, io.StringIO)
    assert "headrace run" in console.file.getvalue()


def test_a_line_for_a_log_names_the_golden_numbers_and_what_fires(watch: Watch) -> None:
    line = line_of(watch.summary()["pipelines"][1])
    assert line.startswith("pipeline-01 (running): lag_events 20,000, lag_seconds ")
    assert "p99 12.0 ms" in line
    assert line.endswith("; firing: lag_events > 1000")
