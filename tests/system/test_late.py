"""What comes behind the watermark: it leaves on its own route with a reason, and nothing of it vanishes or counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.engine.settings import Mode
from tests.system import model
from tests.system.records import LogReader, Record, Sent, produce
from tests.system.running import Engine, fresh
from tests.system.wide_stream import AGGREGATES, START, WITHIN_MS, Shape, WideStream, declare, differences

Topic = Callable[..., str]
TOLERANCE_MS = 60_000


def test_every_event_is_in_exactly_one_place_and_late_ones_do_not_count(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    stream = WideStream.random(seed=7, events=900, partitions=1, shape=Shape(keys=25))
    name, source = fresh("stragglers"), topic("stragglers", partitions=1)
    produce(engine.bootstrap, source, stream.sent)
    batches = engine.replay(declare(name, source, out_of_order="1m"), tmp_path, max_rows=60)
    routes = {kind: engine.read(f"{name}-{kind}") for kind in ("results", "duplicates", "late")}

    everything = [record.source for records in routes.values() for record in records]
    assert sorted(everything) == [arrival.position for arrival in stream.arrivals], "each once, on one route"
    assert len(routes["late"]) > 40
    assert sum(batch.late for batch in batches) == len(routes["late"])
    assert sum(batch.duplicates for batch in batches) == len(routes["duplicates"])

    result = {record.source: record for record in routes["results"]}
    late = {record.source: record for record in routes["late"]}
    assert_late_is_late(stream, late)
    assert_duplicates(stream, result, late)
    on_time = [arrival for arrival in stream.arrivals if arrival.position in result]
    wrong = {
        arrival.position: differences(result[arrival.position], expected)
        for arrival, expected in model.rolling(on_time, AGGREGATES)
    }
    assert {position: what for position, what in wrong.items() if what} == {}


def assert_late_is_late(stream: WideStream, late: dict[Any, Record]) -> None:
    """Nothing is late unless an event before it in the log is ahead of it by more than the tolerance."""
    newest = 0
    for arrival in stream.arrivals:
        if arrival.position in late:
            record = late[arrival.position]
            assert newest - TOLERANCE_MS > arrival.time
            assert record.row["id"] == arrival.row["id"]
            assert "count_short" not in record.row, "as it came in, without results"
            assert "behind the watermark" in record.reason
            assert model.timestamp(arrival.time).removesuffix("Z").rstrip("0").rstrip(".") in record.reason
        newest = max(newest, arrival.time)


def assert_duplicates(stream: WideStream, result: dict[Any, Record], late: dict[Any, Record]) -> None:
    """The first of its id passes; a late event is remembered too, unless it was too old to be judged."""
    remembered: dict[tuple[str, str], int] = {}
    for arrival in stream.arrivals:
        seen = remembered.get((arrival.key, arrival.row["id"]))
        duplicate = seen is not None and abs(arrival.time - seen) < WITHIN_MS
        if arrival.position in late:
            if "can't tell whether this is a duplicate" not in late[arrival.position].reason and not duplicate:
                remembered[arrival.key, arrival.row["id"]] = arrival.time
            continue
        assert duplicate == (arrival.position not in result), arrival
        if not duplicate:
            remembered[arrival.key, arrival.row["id"]] = arrival.time


def counting(name: str, source: str, out_of_order: str = "10s") -> hr.Pipeline:
    pipeline = hr.Pipeline(name)
    counted = (
        pipeline.read(source, schema="k STRING, at TIMESTAMP")
        .event_time("at", out_of_order=out_of_order)
        .key_by("k")
        .rolling("counted", count=hr.last("1m").count())
    )
    counted.write(f"{name}-results")
    counted.late.write(f"{name}-late")
    return pipeline


def event(key: str, second: float) -> Sent:
    return Sent.row({"k": key, "at": model.timestamp(START + int(second * 1000))}, key=key)


def rows(records: list[Record]) -> list[tuple[str, int | None]]:
    return [(record.row["k"], record.row.get("count")) for record in records]


def test_late_rows_reach_the_kernel_in_small_batches(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    """The canary of Spark's planner: it drops late rows itself when the watermarked column reaches the operator."""
    name, source = fresh("canary"), topic("canary", partitions=1)
    pipeline = counting(name, source)
    # The batch of the first three moves the watermark to 3590.
    sent = [event("a", 0), event("a", 30), event("b", 3600), event("a", 3589.999), event("a", 3590), event("c", 0)]
    produce(engine.bootstrap, source, sent)
    engine.replay(pipeline, tmp_path, max_rows=3)
    assert rows(engine.read(f"{name}-results")) == [("a", 1), ("a", 2), ("b", 1), ("a", 1)]
    late = sorted(engine.read(f"{name}-late"), key=lambda record: record.source)
    assert rows(late) == [("a", None), ("c", None)]
    assert late[0].reason == ("event time 2024-05-01T12:59:49.999Z is 0.001s behind the watermark 2024-05-01T12:59:50Z")
    assert late[1].reason == "event time 2024-05-01T12:00:00Z is 59m50s behind the watermark 2024-05-01T12:59:50Z"
    assert [record.key for record in late] == [b"a", b"c"]


def test_late_rows_reach_the_kernel_in_real_time(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("canary"), topic("canary", partitions=1)
    with engine.live(counting(name, source), Mode.REALTIME, tmp_path) as told:
        reader = LogReader(engine.bootstrap, f"{name}-results", f"{name}-late")
        produce(engine.bootstrap, source, [event("b", 3600)])
        told.until(lambda told: any(batch.watermark for batch in told.batches), "the watermark to move")
        produce(engine.bootstrap, source, [event("a", 0), event("a", 3595)])
        reader.until(lambda records: len(records) >= 3, "both events")
        reader.close()
    assert ("a", 1) in rows(engine.read(f"{name}-results"))
    late = engine.read(f"{name}-late")
    assert {(record.source, record.row["k"]) for record in late} == {((0, 1), "a")}
    assert "59m50s behind the watermark" in late[0].reason


def test_the_second_copy_of_a_late_event_is_a_duplicate(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("late-copy"), topic("late-copy", partitions=1)
    pipeline = hr.Pipeline(name)
    once = (
        pipeline.read(source, schema="k STRING, at TIMESTAMP")
        .event_time("at", out_of_order="10s")
        .key_by("k")
        .dedupe("at", within="2h")
        .rolling("counted", count=hr.last("1m").count())
    )
    once.write(f"{name}-results")
    once.late.write(f"{name}-late")
    once.duplicates.write(f"{name}-duplicates")
    produce(engine.bootstrap, source, [event("a", 3600), event("b", 10), event("b", 10), event("b", -7200)])
    engine.replay(pipeline, tmp_path, max_rows=1)
    assert rows(engine.read(f"{name}-results")) == [("a", 1)]
    assert [record.source for record in engine.read(f"{name}-duplicates")] == [(0, 2)]
    late = engine.read(f"{name}-late")
    assert [record.source for record in late] == [(0, 1), (0, 3)]
    assert "can't tell whether this is a duplicate" not in late[0].reason
    assert "step `dedupe-at` remembers ids for 2h and can't tell whether this is a duplicate" in late[1].reason
