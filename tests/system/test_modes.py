"""The same events give the same results, those of the model, in every mode and every batching."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest

import headrace as hr
from headrace.engine.settings import Mode
from tests.system.model import Distinct
from tests.system.records import LogReader, Position, Record, Sent, produce
from tests.system.running import Engine, fresh, shuffles_and_stores, wait_for
from tests.system.wide_stream import START, WideStream, declare, outputs, produce_and_await, reader_of, wrong_results

Topic = Callable[..., str]
SEED = 20240501
LITTLE = 100
"""So many rows auto mode leaves to real time."""


@pytest.fixture(scope="module")
def stream() -> WideStream:
    return WideStream.random(SEED)


@pytest.fixture(scope="module")
def source(stream: WideStream, engine: Engine, topic: Topic) -> str:
    """The whole stream, in the log."""
    name = topic("wide", partitions=2)
    produce(engine.bootstrap, name, stream.sent)
    return name


@pytest.fixture(scope="module")
def at_once(source: str, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Record]]:
    """What a replay gives that takes the whole stream in one batch."""
    name = fresh("at-once")
    engine.replay(declare(name, source), tmp_path_factory.mktemp("at-once"))
    return outputs(engine, name)


def contents(records: Iterable[Record]) -> set[tuple[Position, bytes | None, bytes | None]]:
    """What was written, whatever its topics are called."""
    return {(record.source, record.key, record.value) for record in records}


def assert_same(found: dict[str, list[Record]], wanted: dict[str, list[Record]], *, repeats: bool = False) -> None:
    for kind in wanted:
        assert contents(found[kind]) == contents(wanted[kind]), kind
        if not repeats:
            assert len(found[kind]) == len(wanted[kind]), f"{kind}: some were written twice"


def test_results_and_duplicates_are_those_of_the_model(stream: WideStream, at_once: dict[str, list[Record]]) -> None:
    assert at_once["late"] == []
    assert {record.source for record in at_once["duplicates"]} == stream.duplicates
    assert len(at_once["duplicates"]) == len(stream.duplicates) > 50
    assert {record.source for record in at_once["results"]} == set(stream.expected)
    assert len(at_once["results"]) == len(stream.expected)
    assert wrong_results(at_once["results"], stream.expected) == {}


def test_approximate_counts_are_those_of_spark(
    stream: WideStream, at_once: dict[str, list[Record]], engine: Engine, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    some = sorted(stream.expected)[::7]
    wanted: dict[tuple[Position, str], Distinct] = {
        (position, name): value
        for position in some
        for name, value in stream.expected[position].items()
        if isinstance(value, Distinct)
    }
    found = {
        (record.source, name): record.row[name]
        for record in at_once["results"]
        if record.source in some
        for name in ("distinct_s", "distinct_n")
    }
    assert found.keys() == wanted.keys()
    numbers = {window: number for number, window in enumerate(wanted)}
    counts: dict[int, int] = {}
    for name, type_ in (("distinct_s", "string"), ("distinct_n", "bigint")):
        lines = [
            json.dumps({"window": numbers[window], "value": value})
            for window in wanted
            if window[1] == name
            for value in wanted[window].values
        ]
        (tmp_path / name).write_text("\n".join(lines))
        frame = engine.spark.read.schema(f"window int, value {type_}").json(str(tmp_path / name))
        counted = frame.groupBy("window").agg(F.approx_count_distinct("value").alias("count")).collect()
        counts |= {row["window"]: row["count"] for row in counted}
    assert found == {window: counts.get(number, 0) for window, number in numbers.items()}


def test_small_batches_give_the_same(
    source: str, engine: Engine, at_once: dict[str, list[Record]], tmp_path: Path
) -> None:
    name = fresh("small-batches")
    batches = engine.replay(declare(name, source), tmp_path, max_rows=97)
    assert len([batch for batch in batches if batch.input_rows]) > 12
    assert_same(outputs(engine, name), at_once)


def in_parts(sent: list[Sent], parts: int) -> list[list[Sent]]:
    size = -(-len(sent) // parts)
    return [sent[at : at + size] for at in range(0, len(sent), size)]


def test_micro_batches_give_the_same_while_events_come_in(
    stream: WideStream, engine: Engine, topic: Topic, at_once: dict[str, list[Record]], tmp_path: Path
) -> None:
    name, source = fresh("micro-batches"), topic("wide", partitions=2)
    with engine.live(declare(name, source), Mode.MICROBATCH, tmp_path):
        reader, total = reader_of(engine, name), 0
        for part in in_parts(stream.sent, 3):
            total += len(part)
            produce_and_await(engine, reader, source, part, total)
        reader.close()
    assert_same(outputs(engine, name), at_once)


def test_real_time_gives_the_same_across_checkpoints(
    stream: WideStream, engine: Engine, topic: Topic, at_once: dict[str, list[Record]], tmp_path: Path
) -> None:
    name, source = fresh("real-time"), topic("wide", partitions=2)
    with engine.live(declare(name, source), Mode.REALTIME, tmp_path) as told:
        reader, total = reader_of(engine, name), 0
        for number, part in enumerate(in_parts(stream.sent, 3)):
            total += len(part)
            produce_and_await(engine, reader, source, part, total)
            told.until(lambda told, done=number: len(told.batches) > done, "a checkpoint")  # type: ignore[misc]
        reader.close()
        assert told.batches[-1].watermark is not None
        assert [shuffles_and_stores(query) for query in engine.queries(name)] == [(1, 1)]
    assert_same(outputs(engine, name), at_once)


def test_auto_mode_catches_up_and_goes_on_in_real_time(
    stream: WideStream, engine: Engine, topic: Topic, at_once: dict[str, list[Record]], tmp_path: Path
) -> None:
    name, source = fresh("auto"), topic("wide", partitions=2)
    backlog, fresh_events = stream.sent[:1000], stream.sent[1000:]
    produce(engine.bootstrap, source, backlog)
    # No boundary while events come in: where one partition is ahead, it would make those of the other late.
    with engine.live(declare(name, source), Mode.AUTO, tmp_path, max_rows=400, interval_ms=60_000) as told:
        told.until(lambda told: ("started", "realtime") in [(e.event, e.mode) for e in told.events], "the switch")
        reader = reader_of(engine, name)
        produce_and_await(engine, reader, source, fresh_events, len(stream.sent))
        reader.close()
    assert [(e.event, e.mode) for e in told.events][:3] == [
        ("started", "microbatch"),
        ("switching", "realtime"),
        ("started", "realtime"),
    ]
    assert_same(outputs(engine, name), at_once)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (LITTLE, ["started microbatch", f"switching realtime: lag is {LITTLE} rows", "started realtime"]),
        (
            LITTLE + 1,
            ["started microbatch", "started microbatch", "switching realtime: lag is 0 rows", "started realtime"],
        ),
    ],
    ids=["little", "much"],
)
def test_auto_mode_switches_only_when_little_came_in_meanwhile(
    engine: Engine, topic: Topic, tmp_path: Path, more: int, wanted: list[str]
) -> None:
    name, source = fresh("auto"), topic("auto", partitions=1)
    pipeline = hr.Pipeline(name)
    timed = pipeline.read(source, schema="k STRING, at BIGINT").event_time("at").key_by("k")
    timed.rolling("counted", count=hr.last("1h").count()).write(f"{name}-out")
    events = [Sent.row({"k": "a", "at": START + number}) for number in range(10 + more)]
    produce(engine.bootstrap, source, events[:10])

    def more_comes_in() -> None:
        wait_for(lambda: not engine.queries(name), "all that was there to be done")
        produce(engine.bootstrap, source, events[10:])

    with engine.live(pipeline, Mode.AUTO, tmp_path, interval_ms=60_000, switch_lag=LITTLE, first=more_comes_in) as told:
        told.until(lambda told: ("started", "realtime") in [(e.event, e.mode) for e in told.events], "real time")
        reader = LogReader(engine.bootstrap, f"{name}-out")
        reader.until(lambda records: len(records) >= len(events), "all events")
        reader.close()
    said = [f"{e.event} {e.mode}: {e.message}".removesuffix(": ") for e in told.events]
    assert said[:-1] == wanted
    assert [record.row["count"] for record in engine.read(f"{name}-out")] == list(range(1, len(events) + 1))


@pytest.mark.soak
def test_one_checkpoint_goes_through_all_modes(
    stream: WideStream, engine: Engine, topic: Topic, at_once: dict[str, list[Record]], tmp_path: Path
) -> None:
    name, source = fresh("all-modes"), topic("wide", partitions=2)
    parts = in_parts(stream.sent, 4)
    pipeline = declare(name, source)
    produce(engine.bootstrap, source, parts[0])
    engine.replay(pipeline, tmp_path, max_rows=200)
    total = len(parts[0])
    for part, mode in ((parts[1], Mode.MICROBATCH), (parts[2], Mode.REALTIME)):
        total += len(part)
        with engine.live(pipeline, mode, tmp_path):
            reader = reader_of(engine, name)
            produce_and_await(engine, reader, source, part, total)
            reader.close()
    produce(engine.bootstrap, source, parts[3])
    engine.replay(pipeline, tmp_path, max_rows=200)
    assert_same(outputs(engine, name), at_once, repeats=True)


def test_two_runs_in_one_session_each_hear_of_their_own_batches_only(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    names = [fresh("neighbour"), fresh("neighbour")]
    with ExitStack() as running:
        told = []
        for name in names:
            source = topic(name, partitions=1)
            produce(engine.bootstrap, source, [Sent.row({"id": 1})])
            pipeline = hr.Pipeline(name)
            pipeline.read(source, schema="id BIGINT").write(f"{name}-out")
            told.append(running.enter_context(engine.live(pipeline, Mode.MICROBATCH, tmp_path / name)))
        for each in told:
            each.until(lambda t: any(batch.input_rows for batch in t.batches), "its batch")
    queries = [{batch.query for batch in each.batches} for each in told]
    assert queries[0].isdisjoint(queries[1])
    for name, each, heard in zip(names, told, queries, strict=True):
        assert [query for query in heard if name not in query] == []
        assert sum(batch.input_rows for batch in each.batches) == 1
