"""Event-time windows on a real log: watermark strategies, the clock, and sources that misbehave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.settings import Mode
from tests.system.model import timestamp
from tests.system.records import LogReader, Sent, produce, read_all
from tests.system.running import Engine, Told, fresh
from tests.system.wide_stream import START

Topic = Callable[..., str]
MINUTE = 60_000
HOUR = 60 * MINUTE


def per_minute(name: str, source: str, event_time: dict[str, Any], **options: Any) -> hr.Pipeline:
    pipeline = hr.Pipeline(name)
    counted = (
        pipeline.read(source, schema="k STRING, at TIMESTAMP")
        .event_time("at", **event_time)
        .key_by("k")
        .window("per-minute", hr.tumbling("1m"), n=F.count("*"), **options)
    )
    counted.write(f"{name}-out")
    counted.late.write(f"{name}-late")
    return pipeline


def event(at: int, *, key: str = "a", partition: int = 0, stamp: int | None = None) -> Sent:
    return Sent.row({"k": key, "at": timestamp(at)}, key=key, partition=partition, timestamp_ms=stamp)


def rows(engine: Engine, topic: str) -> list[dict[str, Any]]:
    return [record.row for record in read_all(engine.bootstrap, topic)]


def until_read(told: Told, count: int) -> None:
    told.until(lambda t: sum(batch.input_rows for batch in t.batches) == count, f"{count} events to be read")


def totals(found: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    assert {row["row_kind"] for row in found} <= {"+I"}, "each window has one result"
    return Counter({(row["k"], row["window_start"]): row["n"] for row in found})


def minutes(sent: list[Sent]) -> Counter[tuple[str, str]]:
    import json

    counts: Counter[tuple[str, str]] = Counter()
    for record in sent:
        row = json.loads(record.value or b"")
        counts[row["k"], row["at"][:17] + "00.000Z"] += 1
    return counts


@pytest.mark.parametrize("max_rows", [40, pytest.param(500_000, marks=pytest.mark.soak)])
def test_a_silent_partition_one_an_hour_behind_and_an_event_from_the_future(
    engine: Engine, topic: Topic, tmp_path: Path, max_rows: int
) -> None:
    """The slowest live partition decides: nothing is late, and no window stays open but the last ones."""
    name, source = fresh("slow-partition"), topic("slow-partition", partitions=3)
    now = START + 2 * HOUR
    fast = [event(now + i * 1000, key=f"f{i % 3}", partition=0, stamp=now) for i in range(120)]
    behind = [event(now - HOUR + i * 1000, key=f"s{i % 3}", partition=1, stamp=now) for i in range(120)]
    future = event(now + 10 * HOUR, key="f0", partition=0, stamp=now)
    sent = [record for pair in zip(fast, behind, strict=True) for record in pair]
    produce(engine.bootstrap, source, [*sent[:60], future, *sent[60:]])
    watermark = hr.per_partition(out_of_order="0s", idle="1m")
    pipeline = per_minute(name, source, {"watermark": watermark, "max_skew": "5m"})
    engine.replay(pipeline, tmp_path, max_rows=max_rows)
    assert rows(engine, f"{name}-late") == []
    assert len(rows(engine, f"{name}.quarantined")) == 1
    # At the end, when every partition has been read, the watermark is that of the fastest.
    closed = {key: n for key, n in minutes(sent).items() if key[1] < timestamp(now + MINUTE)}
    assert totals(rows(engine, f"{name}-out")) == closed


def test_a_live_partition_that_lags_holds_the_watermark(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    """Also when all that it had at the start has been read: it is slow then, not over."""
    name, source = fresh("lagging"), topic("lagging", partitions=2)
    produce(engine.bootstrap, source, [event(START, partition=number) for number in (0, 1)])
    pipeline = per_minute(name, source, {"watermark": hr.per_partition(out_of_order="0s", idle="1h")})
    with engine.live(pipeline, Mode.MICROBATCH, tmp_path) as told:
        for i in range(5):  # a claim takes a batch to be made and another one to be acted on
            produce(engine.bootstrap, source, [event(START + HOUR + i)])
            until_read(told, 3 + i)
        produce(engine.bootstrap, source, [event(START + i, partition=1) for i in (1, HOUR)])
        reader = LogReader(engine.bootstrap, f"{name}-out")
        (record,) = reader.until(lambda records: len(records) == 1, "the window to close")
        reader.close()
    assert (record.row["n"], rows(engine, f"{name}-late")) == (3, [])


def test_an_adaptive_watermark_waits_as_long_as_events_come_late(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    """Every other event comes 20 s late: less patience would lose some, and that of the ceiling would close nothing."""
    name, source = fresh("adaptive"), topic("adaptive", partitions=1)
    came = [START + i * 1000 for i in range(600)]
    sent = [event(at - (i % 2) * 20_000, key=f"k{i % 3}", stamp=at) for i, at in enumerate(came)]
    produce(engine.bootstrap, source, sent)
    pipeline = per_minute(name, source, {"watermark": hr.adaptive(quantile=1.0, floor="0s", ceiling="1h")})
    engine.replay(pipeline, tmp_path, max_rows=60)
    assert rows(engine, f"{name}-late") == []
    # The last event is 599 s after the first: the tenth minute is still open.
    closed = {key: n for key, n in minutes(sent).items() if key[1] < timestamp(START + 9 * MINUTE)}
    assert totals(rows(engine, f"{name}-out")) == closed


def test_input_that_ends_closes_every_window(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("perfect"), topic("perfect", partitions=2)
    sent = [event(START + i * 7_919 % (10 * MINUTE), key=f"k{i % 5}", partition=i % 2) for i in range(300)]
    produce(engine.bootstrap, source, sent)
    pipeline = per_minute(name, source, {"watermark": hr.perfect()})
    engine.replay(pipeline, tmp_path, max_rows=50)
    assert rows(engine, f"{name}-late") == []
    assert totals(rows(engine, f"{name}-out")) == minutes(sent)
    engine.replay(pipeline, tmp_path)
    assert totals(rows(engine, f"{name}-out")) == minutes(sent), "a second replay has nothing to add"


def test_a_window_of_a_source_that_falls_silent_closes(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("silent"), topic("silent", partitions=1)
    produce(engine.bootstrap, source, [event(START + 59_000), event(START + 59_500)])
    pipeline = per_minute(name, source, {"out_of_order": "1s", "close_idle": "3s"})
    with engine.live(pipeline, Mode.MICROBATCH, tmp_path):
        reader = LogReader(engine.bootstrap, f"{name}-out")
        (record,) = reader.until(lambda records: len(records) == 1, "the window to close")
        reader.close()
    assert (record.row["n"], record.row["pane_timing"]) == (2, "on_time")


@pytest.mark.parametrize("mode", [Mode.MICROBATCH, Mode.REALTIME])
def test_the_clock_fires_what_nothing_else_would(engine: Engine, topic: Topic, tmp_path: Path, mode: Mode) -> None:
    """One event, then silence: the early result comes by the clock."""
    name, source = fresh("clock"), topic("clock", partitions=1)
    trigger = hr.after_watermark(early=hr.every("1s"))
    pipeline = per_minute(name, source, {}, trigger=trigger)
    with engine.live(pipeline, mode, tmp_path, interval_ms=60_000):
        reader = LogReader(engine.bootstrap, f"{name}-out")
        produce(engine.bootstrap, source, [event(START), event(START + 1)])
        (record,) = reader.until(lambda records: len(records) == 1, "the early result")
        reader.close()
    assert (record.row["n"], record.row["pane_timing"], record.row["pane_index"]) == (2, "early", 0)


def test_real_time_gives_early_results_event_by_event(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("early"), topic("early", partitions=1)
    pipeline = per_minute(name, source, {}, trigger=hr.after_watermark(early=hr.each()))
    with engine.live(pipeline, Mode.REALTIME, tmp_path, interval_ms=60_000):
        reader = LogReader(engine.bootstrap, f"{name}-out")
        for i in range(5):
            produce(engine.bootstrap, source, [event(START + i)])
        found = reader.until(lambda records: len(records) == 5, "a result for each event, within the batch")
        reader.close()
    assert [record.row["n"] for record in found] == [1, 2, 3, 4, 5]
    assert [record.row["row_kind"] for record in found] == ["+I", "+U", "+U", "+U", "+U"]


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(hr.tumbling("1m"), id="tumbling"),
        pytest.param(hr.session("1m"), id="session", marks=pytest.mark.soak),
    ],
)
def test_in_real_time_thousands_of_windows_that_end_keep_no_event_waiting(
    engine: Engine, topic: Topic, tmp_path: Path, window: Any
) -> None:
    """The watermark moves at a checkpoint, past all of them: who comes in has a result first, and none is lost."""
    name, source = fresh("crowd"), topic("crowd", partitions=1)
    pipeline = hr.Pipeline(name)
    events = pipeline.read(source, schema="k STRING, at TIMESTAMP").event_time("at", out_of_order="0s").key_by("k")
    trigger = hr.after_watermark(early=hr.each())
    events.window("crowd", window, n=F.count("*"), trigger=trigger).write(f"{name}-out")
    crowd, late_comers = [f"c{i}" for i in range(4000)], [f"n{i}" for i in range(40)]
    with engine.live(pipeline, Mode.REALTIME, tmp_path, interval_ms=10_000) as told:
        reader = LogReader(engine.bootstrap, f"{name}-out")
        produce(engine.bootstrap, source, [event(START + i % 1000, key=key) for i, key in enumerate(crowd)])
        produce(engine.bootstrap, source, [event(START + HOUR)])
        until_read(told, 4001)
        produce(engine.bootstrap, source, [event(START + HOUR + 1, key=key) for key in late_comers])
        found = reader.until(lambda records: len(records) >= 8041, "all results")
        reader.close()
    by_timing = {timing: [r for r in found if r.row["pane_timing"] == timing] for timing in ("early", "on_time")}
    assert Counter(r.row["k"] for r in by_timing["early"]) == Counter([*crowd, *late_comers, "a"])
    assert Counter(r.row["k"] for r in by_timing["on_time"]) == Counter(crowd)
    assert {r.row["k"] for r in found[:4001]}.isdisjoint(late_comers)
    last_of_new = max(i for i, r in enumerate(found) if r.row["k"] in late_comers)
    assert last_of_new < 5000, "the new ones do not wait for the thousands"


def test_in_real_time_a_window_that_opens_behind_the_watermark_still_closes(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    """Its end has passed when it opens, in the middle of a batch: attended to when that ends, if nothing else is."""
    name, source = fresh("behind"), topic("behind", partitions=1)
    both = hr.all_of(hr.after_watermark(), hr.after_count(5))
    pipeline = per_minute(name, source, {}, trigger=both, allowed_lateness="30m")
    with engine.live(pipeline, Mode.REALTIME, tmp_path) as told:
        reader = LogReader(engine.bootstrap, f"{name}-out")
        produce(engine.bootstrap, source, [event(START + HOUR)])
        until_read(told, 1)
        behind = START + HOUR - 10 * MINUTE
        produce(engine.bootstrap, source, [event(START + HOUR), event(START + HOUR), event(behind), event(behind)])
        until_read(told, 5)
        produce(engine.bootstrap, source, [event(START + 3 * HOUR)])
        until_read(told, 6)
        found = reader.until(lambda records: len(records) >= 2, "what was never told, when the lateness is over")
        reader.close()
    assert {(record.row["window_start"], record.row["n"]) for record in found} == {
        (timestamp(behind), 2),
        (timestamp(START + HOUR), 3),
    }
