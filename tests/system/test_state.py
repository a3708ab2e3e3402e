"""State: bounded while a key is hot, gone when it falls silent, right however deep the tree is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine.settings import Mode
from tests.system import model
from tests.system.model import Arrival, timestamp
from tests.system.records import LogReader, Sent, positions, produce
from tests.system.running import Engine, fresh
from tests.system.wide_stream import START

Topic = Callable[..., str]
HOT_EVENTS = 20_000
OF_ONE_KEY = 6
"""A set of ids and a tree, and for each the time it is due with the key that waits for it."""


def hot_key(name: str, source: str) -> tuple[hr.Pipeline, dict[str, Any]]:
    short, long = hr.last("1s"), hr.last("10s")
    aggregates: dict[str, Any] = {
        "count": long.count(),
        "count_short": short.count(),
        "sum": long.sum("d"),
        "sum_short": short.sum("d"),
        "least": long.min("d"),
        "greatest": long.max("d"),
        "spread": long.stddev("d"),
        "before": hr.latest("n", back=1),
        "far_back": hr.latest("n", back=700),
    }
    pipeline = hr.Pipeline(name)
    (
        pipeline.read(source, schema="n BIGINT, k STRING, at TIMESTAMP, d DOUBLE")
        .event_time("at", out_of_order="2s")
        .key_by("k")
        .rolling("hot", **aggregates)
        .write(f"{name}-results")
    )
    return pipeline, aggregates


@pytest.mark.soak
def test_a_hot_key_is_right_and_its_state_stays_bounded(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    rng = random.Random(11)
    sent: list[Sent] = []
    rows: list[dict[str, Any]] = []
    for n in range(HOT_EVENTS):
        # A hundred events a second, up to a second and a half out of order; a busy start makes the first leaf split.
        behind = rng.choice((0, 0, 0, rng.randrange(1500)))
        row = {"n": n, "k": "hot", "at": START + n * 10 - behind, "d": round(rng.uniform(-1e4, 1e4), 3)}
        rows.append(row)
        sent.append(Sent.row(row | {"at": timestamp(START + n * 10 - behind)}, key="hot"))
    name, source = fresh("hot-key"), topic("hot-key", partitions=1)
    produce(engine.bootstrap, source, sent)
    pipeline, aggregates = hot_key(name, source)
    batches = engine.replay(pipeline, tmp_path, max_rows=2500)

    results = {record.source: record.row for record in engine.read(f"{name}-results")}
    assert len(results) == HOT_EVENTS
    assert engine.read(f"{name}.late") == []
    arrivals = [Arrival(at, "hot", row["at"], row) for at, row in zip(positions(sent), rows, strict=True)]
    for number in range(0, HOT_EVENTS, 189):
        # All that the window of this event can hold has arrived within the last 1300 events.
        nearby = sorted(arrivals[max(0, number - 1300) : number + 1], key=lambda arrival: arrival.time)
        expected = model.results_of(arrivals[number], nearby, aggregates)
        found = results[arrivals[number].position]
        assert (found["count"], found["count_short"]) == (expected["count"], expected["count_short"])
        for name_ in ("sum", "sum_short", "least", "greatest"):
            assert float(found[name_]) == expected[name_], (number, name_)
        if expected["spread"] is not None:
            assert abs(float(found["spread"]) - expected["spread"]) <= 1e-14 * expected["spread"]
        assert (found.get("before"), found.get("far_back")) == (expected["before"], expected["far_back"])

    # A batch of 25 s, the window and the tolerance are 37 s, or 3,700 events, in leaves of up to 64; all events that
    # ever were would fill more than 300.
    assert 32 < max(batch.state_rows for batch in batches) < 200


def sessions(name: str, source: str) -> hr.Pipeline:
    pipeline = hr.Pipeline(name)
    (
        pipeline.read(source, schema="id STRING, k STRING, at TIMESTAMP")
        .event_time("at", out_of_order="10s")
        .key_by("k")
        .dedupe("id", within="5m")
        .rolling("counted", count=hr.last("1m").count())
        .write(f"{name}-results")
    )
    return pipeline


def burst(second: int, keys: int, prefix: str) -> list[Sent]:
    return [
        Sent.row({"id": f"{second}-{i}", "k": f"{prefix}{i % keys}", "at": timestamp(START + second * 1000)})
        for i in range(2 * keys)
    ]


def test_the_state_of_silent_keys_expires_in_replay(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("silence"), topic("silence", partitions=1)
    pipeline = sessions(name, source)
    produce(engine.bootstrap, source, burst(0, 150, "silent"))
    busy = engine.replay(pipeline, tmp_path)
    assert max(batch.state_rows for batch in busy) >= 300, "a set of ids and a tree for each of 150 keys"
    produce(engine.bootstrap, source, burst(3600, 1, "other"))
    replayed = engine.replay(pipeline, tmp_path)
    assert all(batch.input_rows > 0 for batch in replayed), "no batch only to clear away state: the next run does"
    produce(engine.bootstrap, source, burst(3601, 1, "other"))
    quiet = engine.replay(pipeline, tmp_path)
    assert quiet[-1].state_rows <= OF_ONE_KEY, "those of the one key that spoke last"
    # And the keys that fell silent begin anew.
    produce(engine.bootstrap, source, burst(3700, 150, "silent"))
    engine.replay(pipeline, tmp_path)
    counts = [(r.row["k"], r.row["count"]) for r in engine.read(f"{name}-results") if r.source[1] >= 304]
    assert sorted(counts) == sorted((f"silent{i}", count) for i in range(150) for count in (1, 2))


def counted(name: str, source: str) -> hr.Pipeline:
    pipeline = hr.Pipeline(name)
    (
        pipeline.read(source, schema="k STRING, at TIMESTAMP")
        .event_time("at", out_of_order="10s")
        .key_by("k")
        .rolling("counted", count=hr.last("1m").count())
        .write(f"{name}-results")
    )
    return pipeline


def at_seconds(seconds: Iterable[int], start: int = START) -> list[Sent]:
    return [Sent.row({"k": "a", "at": timestamp(start + second * 1000)}) for second in seconds]


def test_a_batch_leaves_no_state_that_the_watermark_after_it_makes_obsolete(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    name, source = fresh("obsolete"), topic("obsolete", partitions=1)
    pipeline = counted(name, source)
    produce(engine.bootstrap, source, at_seconds(range(3000)))
    (batch,) = engine.replay(pipeline, tmp_path)
    assert batch.state_rows <= 8, "70 s in leaves of up to 64 events, not 3,000 s in 47 of them"
    # As old as an event may be that is on time, and one that is a second older.
    produce(engine.bootstrap, source, at_seconds((2989, 2988, 3000)))
    engine.replay(pipeline, tmp_path)
    counts = [record.row["count"] for record in engine.read(f"{name}-results")]
    assert counts == [min(n + 1, 60) for n in range(3000)] + [61, 61]
    assert [record.source[1] for record in engine.read(f"{name}.late")] == [3001]


def test_what_the_oldest_event_on_time_needs_is_kept(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("needed"), topic("needed", partitions=1)
    pipeline = counted(name, source)
    produce(engine.bootstrap, source, at_seconds((930, 931, 1000)))
    engine.replay(pipeline, tmp_path)
    produce(engine.bootstrap, source, at_seconds((990,)))
    engine.replay(pipeline, tmp_path)
    counts = [record.row["count"] for record in engine.read(f"{name}-results")]
    assert counts == [1, 2, 1, 2], "the last is that of 931 and 990"


def test_before_1970_there_is_no_watermark_and_all_state_is_kept(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("before-1970"), topic("before-1970", partitions=1)
    pipeline = counted(name, source)
    produce(engine.bootstrap, source, at_seconds((-5000, -100), start=0))
    engine.replay(pipeline, tmp_path)
    produce(engine.bootstrap, source, at_seconds((-4990,), start=0))
    engine.replay(pipeline, tmp_path)
    assert [record.row["count"] for record in engine.read(f"{name}-results")] == [1, 1, 2]


@pytest.mark.soak
def test_the_state_of_silent_keys_expires_in_real_time(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("silence"), topic("silence", partitions=1)
    with engine.live(sessions(name, source), Mode.REALTIME, tmp_path) as told:
        reader = LogReader(engine.bootstrap, f"{name}-results")
        produce(engine.bootstrap, source, burst(0, 150, "silent"))
        reader.until(lambda records: len(records) == 300, "the events")
        told.until(lambda told: any(batch.state_rows >= 300 for batch in told.batches), "state to be there")
        produce(engine.bootstrap, source, burst(3600, 1, "other"))
        told.until(lambda told: told.batches[-1].state_rows <= OF_ONE_KEY, "state to be gone")
        reader.close()
