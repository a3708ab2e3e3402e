"""The parts of the watch that need no cluster: history, sketches, flows, lag, and what runs tell."""

from __future__ import annotations

import doctest
import importlib
import itertools
import json
import pkgutil
import random
from collections import Counter
from typing import Any

import pytest

import headrace.ops
from headrace.metrics import METRICS
from headrace.ops.flows import PartitionFlow, TopicFlow
from headrace.ops.history import Series
from headrace.ops.measuring import Measured, lags, measure
from headrace.ops.runs import MOST_PIPELINES, SILENT_SECONDS, Runs
from headrace.ops.sketches import HotKeys, LatencyWindow


def test_history_keeps_the_newest_exact_and_the_older_coarse() -> None:
    series = Series()
    for second in range(20_000):
        series.add(second, float(second))
    newest = series.points(now=19_999, span=300)
    assert newest == [(second, float(second)) for second in range(19_700, 20_000)]
    hour = series.points(now=19_999, span=3600)
    assert len(hour) == 360
    assert hour[-1] == (19_990, 19_994.5)
    assert len(series.points(now=19_999, span=43_200)) <= 720


def test_a_gap_stays_a_gap() -> None:
    series = Series()
    series.add(10, 1.0)
    series.add(200, 2.0)
    series.add(201, None)
    assert series.points(now=201, span=300) == [(10, 1.0), (200, 2.0)]
    series.add(1000, 3.0)
    assert series.points(now=1000, span=300) == [(1000, 3.0)]


def test_quantiles_are_right_to_one_percent() -> None:
    chance = random.Random(3)
    values = [chance.lognormvariate(2, 1.2) for _ in range(20_000)]
    window = LatencyWindow(seconds=30)
    for number, value in enumerate(values):
        window.add(1000 + number % 7 // 7, value)
    for share in (0.5, 0.95, 0.99):
        exact = sorted(values)[int(share * len(values))]
        assert window.quantile(share) == pytest.approx(exact, rel=0.012)


def test_latencies_are_forgotten_after_their_time() -> None:
    window = LatencyWindow(seconds=30)
    window.add(100, 1000.0)
    window.add(120, 1.0)
    window.forget(131)
    assert window.quantile(0.99) == pytest.approx(1.0, rel=0.02)
    window.forget(200)
    assert window.quantile(0.5) is None


def test_hot_keys_are_found_among_many_in_little_memory() -> None:
    chance = random.Random(5)
    keys, exact = HotKeys(capacity=100), Counter[str]()
    for _ in range(50_000):
        key = "hot" if chance.random() < 0.2 else "warm" if chance.random() < 0.1 else f"k{chance.randrange(20_000)}"
        keys.add(key)
        exact[key] += 1
    assert [found.key for found in keys.top(10)][:2] == ["hot", "warm"]
    assert keys.share("hot") == pytest.approx(exact["hot"] / 50_000, abs=0.012)


def test_no_key_stands_out_where_none_does() -> None:
    chance = random.Random(7)
    keys = HotKeys(capacity=100)
    for _ in range(50_000):
        keys.add(f"k{chance.randrange(20_000)}")
    assert keys.top(10) == []


def test_the_time_at_which_an_offset_was_reached() -> None:
    flow = PartitionFlow()
    for second in range(600):
        flow.note(1000.0 + second, 10 * second)
    # Record 5000 is the first that came after 500 seconds.
    assert flow.reached(5000) == pytest.approx(1500.0, abs=2.5)
    assert flow.reached(5985) == pytest.approx(1598.5, abs=0.01)
    flow = PartitionFlow()
    flow.note(1000.0, 500)
    flow.note(1001.0, 510)
    assert flow.reached(400) is None
    assert flow.per_second(1001.0, 60) == pytest.approx(10.0)


def test_a_partition_that_stands_still_takes_no_memory_and_keeps_its_time() -> None:
    flow = PartitionFlow()
    flow.note(0.0, 100)
    for second in range(1, 5000):
        flow.note(float(second), 200)
    assert len(flow._times) < 10
    # The record at offset 100 came with the second look, and has been waiting since.
    assert flow.reached(100) == pytest.approx(0.0, abs=1.0)


def test_rates_count_records_not_the_ends_of_transactions() -> None:
    flow = TopicFlow()
    for second in range(10):
        flow.note(float(second), {0: 100 * second, 1: 0}, density=0.5)
    assert flow.rate() == pytest.approx(50.0)
    assert flow.counted == pytest.approx(450.0)


def announced(run: str = "r1", **fields: Any) -> bytes:
    record = {
        "event": "announced",
        "pipeline": "clicks",
        "run": run,
        "at": "2026-11-16T10:00:00+00:00",
        "mode": "microbatch",
        "pid": 7,
        "graph": [],
        "alarms": [],
        "queries": [
            {
                "name": "counts",
                "source": "in",
                "key": ["user"],
                "outputs": [{"topic": "out", "route": "result"}, {"topic": "too-late", "route": "late"}],
            }
        ],
        **fields,
    }
    return json.dumps(record).encode()


def told(event: str, run: str = "r1", **fields: Any) -> bytes:
    return json.dumps({"event": event, "pipeline": "clicks", "run": run, "query": "counts", **fields}).encode()


def test_the_life_of_a_run() -> None:
    runs = Runs()
    runs.take(announced(), 0)
    assert runs.pipelines["clicks"].status == "starting"
    runs.take(told("started", mode="microbatch"), 1)
    runs.take(told("alive", heap_used=50, heap_max=100), 2)
    assert (runs.pipelines["clicks"].status, runs.pipelines["clicks"].heap) == ("running", (50, 100))
    runs.take(told("stopped"), 3)
    runs.take(told("ended"), 3)
    runs.find_lost(1000)
    assert runs.pipelines["clicks"].status == "stopped"
    assert [e["event"] for e in runs.pipelines["clicks"].events] == ["starting", "started", "stopped", "ended"]


def test_a_run_that_falls_silent_is_lost_unless_it_was_we_who_heard_nothing() -> None:
    runs = Runs()
    runs.take(announced(), 0)
    runs.take(told("started"), 0)
    runs.find_lost(SILENT_SECONDS - 1)
    assert runs.pipelines["clicks"].status == "running"
    runs.find_lost(SILENT_SECONDS + 5, seeing_since=SILENT_SECONDS)
    assert runs.pipelines["clicks"].status == "running"
    runs.find_lost(SILENT_SECONDS + 5)
    assert runs.pipelines["clicks"].status == "lost"
    runs.take(told("alive"), SILENT_SECONDS + 6)
    assert runs.pipelines["clicks"].status == "running"


def test_a_failure_stays_a_failure_and_an_old_run_that_ends_says_nothing_about_the_new_one() -> None:
    runs = Runs()
    runs.take(announced("r1"), 0)
    runs.take(told("failed", message="no space left"), 1)
    runs.take(told("ended"), 2)
    assert runs.pipelines["clicks"].status == "failed"
    runs.take(announced("r2"), 3)
    runs.take(told("started", "r2"), 4)
    runs.take(told("ended", "r1"), 5)
    assert runs.pipelines["clicks"].status == "running"


def test_of_too_many_pipelines_those_that_ended_longest_ago_make_room() -> None:
    runs = Runs()
    for number in range(MOST_PIPELINES):
        runs.take(announced(pipeline=f"p{number}"), number)
    runs.take(announced(pipeline="one-more"), 1000)
    assert "one-more" not in runs.pipelines
    runs.find_lost(SILENT_SECONDS + 50)  # those that were heard of in the first 50 seconds
    runs.take(announced(pipeline="one-more"), 1000)
    assert "one-more" in runs.pipelines
    assert "p0" not in runs.pipelines
    assert len(runs.pipelines) == MOST_PIPELINES


@pytest.mark.parametrize(
    "value", [None, b"", b"[]", b"{}", b"\xff\xfe", b'{"event":"progress","pipeline":"x","run":"y"}', b"[" * 5000]
)
def test_records_of_any_shape_do_no_harm(value: bytes | None) -> None:
    runs = Runs()
    runs.take(announced(), 0)
    runs.take(value, 1)
    runs.take(told("progress", positions={"in": {"0": 5}}, input_rows=None), 1)
    assert runs.pipelines["clicks"].queries["counts"].positions == {0: 5}


def test_lag_is_the_end_less_the_position_and_how_long_the_next_record_waits() -> None:
    runs = Runs()
    runs.take(announced(), 0)
    runs.take(told("progress", positions={"in": {"0": 100, "1": 50}}, input_rows=10, late=1, state_bytes=8), 99)
    pipeline = runs.pipelines["clicks"]
    flow = TopicFlow()
    for second in range(100):
        flow.note(float(second), {0: 100 if second < 90 else 100 + 10 * (second - 89), 1: 50}, density=1.0)
    behind = {b.partition: b for b in lags(pipeline, {"in": flow}, 99.0)}
    assert (behind[0].lag, behind[1].lag) == (100, 0)
    assert behind[0].seconds == pytest.approx(10.0, abs=1.01)
    assert behind[1].seconds == 0.0
    values = measure(pipeline, {"in": flow}, list(behind.values()), Measured(), 99.0)
    assert set(values) == set(METRICS)
    assert (values["lag_events"], values["late_rate"], values["state_bytes"]) == (100, 0.1, 8)
    assert values["events_in"] == pytest.approx(10.0)


def test_a_record_that_was_there_before_the_first_look_waits_since_its_timestamp_or_that_look() -> None:
    runs = Runs()
    runs.take(announced(), 0)
    runs.take(told("progress", positions={"in": {"0": 100}}), 99)
    flow = TopicFlow()
    for second in range(90, 100):
        flow.note(float(second), {0: 500}, density=1.0)
    (behind,) = lags(runs.pipelines["clicks"], {"in": flow}, 99.0)
    assert (behind.lag, behind.seconds) == (400, 9.0)
    (behind,) = lags(runs.pipelines["clicks"], {"in": flow}, 99.0, {("in", 0, 100): 20.0})
    assert behind.seconds == 79.0


def test_batches_of_more_than_a_minute_ago_are_no_rate_any_more() -> None:
    runs = Runs()
    runs.take(announced(), 0)
    runs.take(told("progress", input_rows=10, late=5), 10)
    values = measure(runs.pipelines["clicks"], {}, [], Measured(), 100.0)
    assert values["late_rate"] is None


def test_real_time_moves_on_between_batches_by_what_comes_out() -> None:
    runs = Runs()
    runs.take(announced(), 0)
    query = runs.pipelines["clicks"].queries["counts"]
    runs.take(told("progress", positions={"in": {"0": 100}}, mode="realtime"), 1)
    query.read_up_to(0, 150)
    query.read_up_to(0, 120)
    assert query.positions == {0: 151}


def test_the_examples_in_the_docstrings_run() -> None:
    found = [f.name for f in pkgutil.walk_packages(headrace.ops.__path__, "headrace.ops.")]
    attempted = 0
    for name in ["headrace.metrics", *found]:
        result = doctest.testmod(importlib.import_module(name))
        assert not result.failed, name
        attempted += result.attempted
    assert attempted > 15


def test_a_topics_rates_add_up_to_what_came_however_unevenly_it_was_looked_at() -> None:
    flow, chance = TopicFlow(), random.Random(3)
    looks = [float(n) + chance.uniform(-0.15, 0.15) for n in range(40)]
    added = 0.0
    for before, now in itertools.pairwise(looks):
        flow.note(now, {0: round(150 * min(max(now - 10, 0), 10))}, 1.0)
        added += (flow.rate() or 0.0) * (now - before)
    assert added == pytest.approx(1500, rel=0.02)
