"""What may change between two runs on one checkpoint changes no result, nor what becomes of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import headrace as hr
from headrace.errors import CheckpointMismatchError
from tests.system.model import timestamp
from tests.system.records import Sent, produce, read_all, to_json
from tests.system.running import Engine, fresh
from tests.system.wide_stream import START

Topic = Callable[..., str]
Step = Callable[[hr.Stream, bool], hr.Stream]

COLUMNS = {
    "k": "STRING",
    "at": "TIMESTAMP",
    "text": "STRING",
    "b": "DOUBLE",
    "a": "BIGINT",
    "z": "STRING",
    "id": "STRING",
}


def ordered(named: dict[str, Any], changed: bool) -> dict[str, Any]:
    """The same in another order."""
    return dict(reversed(named.items())) if changed else named


def rolling(stream: hr.Stream, changed: bool) -> hr.Stream:
    hour = hr.last("1h")
    aggregates = {"most": hour.max("a"), "total": hour.sum("a"), "mean": hour.avg("b"), "least": hour.min("text")}
    before = {"before": hr.latest("text", "b", back=3)}
    return stream.key_by("k").rolling("seen", **ordered(aggregates | before, changed))


def window(kind: hr.Windowing, **options: Any) -> Step:
    named = {"n": "count(*)", "total": "sum(a)", "mean": "avg(b)", "words": "collect_set(text)", "least": "min(text)"}
    return lambda stream, changed: stream.key_by("k").window("sums", kind, **options, **ordered(named, changed))


STEPS: dict[str, Step] = {
    "rolling": rolling,
    "tumbling": window(hr.tumbling("1h"), trigger=hr.each()),
    "retracted": window(hr.tumbling("1h"), trigger=hr.each(), panes="retracting"),
    "hopping": window(hr.hopping("20m", every="5m")),
    "sliding": window(hr.sliding("10m")),
    "session": window(hr.session("2m"), trigger=hr.each()),
}


def declared(name: str, source: str, step: Step, changed: bool) -> hr.Pipeline:
    pipeline = hr.Pipeline(name)
    schema = ", ".join(f"{column} {type}" for column, type in ordered(COLUMNS, changed).items())
    stream = pipeline.read(source, schema=schema).event_time("at", out_of_order="5m")
    step(stream.select(*ordered(COLUMNS, changed)), changed).write(f"{name}-out")
    return pipeline


def events(number: int) -> Iterator[Sent]:
    random, time = Random(number), START
    for i in range(number):
        time += random.randrange(90_000)
        row = {"k": "abc"[i % 3], "at": timestamp(time - random.randrange(240_000)), "id": str(i), "z": "z" * (i % 7)}
        yield Sent.row(row | {"a": random.randrange(1000), "b": random.random(), "text": "x" * random.randrange(40)})


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"words": sorted(row["words"])} if "words" in row else row


@pytest.mark.parametrize("kind", STEPS)
def test_columns_and_aggregates_may_change_places(engine: Engine, topic: Topic, tmp_path: Path, kind: str) -> None:
    """In the schema, in a select, in the step: while there is state of before, more of it than fits one node."""
    sent = list(events(600))
    found = []
    for changes in (False, True):
        name, source = fresh(f"ordered-{kind}"), topic("ordered", partitions=1)
        for half, changed in ((sent[:300], False), (sent[300:], changes)):
            produce(engine.bootstrap, source, half)
            engine.replay(declared(name, source, STEPS[kind], changed), tmp_path / name)
        rows = [comparable(record.row) for record in read_all(engine.bootstrap, f"{name}-out")]
        found.append(sorted(to_json(dict(sorted(row.items()))) for row in rows))
    unchanged, changed_places = found
    assert len(unchanged) >= 30
    assert changed_places == unchanged


@pytest.mark.parametrize("at_first", [True, False], ids=["taken out", "put in"])
def test_a_where_between_two_steps_may_come_and_go(
    engine: Engine, topic: Topic, tmp_path: Path, at_first: bool
) -> None:
    """Keys that have fallen silent are cleaned up all the same: their timers find the step that they are for."""
    name, source = fresh("between"), topic("between", partitions=1)

    def pipeline(filtered: bool) -> hr.Pipeline:
        made = hr.Pipeline(name)
        stream = made.read(source, schema="k STRING, at TIMESTAMP, id BIGINT").event_time("at")
        once = stream.key_by("k").dedupe("id", within="1m")
        kept = once.where("id >= 0") if filtered else once
        kept.rolling("seen", n=hr.last("1m").count()).write(f"{name}-out")
        return made

    def send(*rows: tuple[str, int]) -> int:
        sent = [Sent.row({"k": k, "at": timestamp(START + s * 1000), "id": s}) for k, s in rows]
        produce(engine.bootstrap, source, sent)
        return len(sent)

    send(*((f"k{i}", i % 5) for i in range(50)))
    (batch,) = engine.replay(pipeline(at_first), tmp_path)
    assert batch.state_rows > 50
    for second in (1000, 2000, 3000):
        send(("other", second))
        (batch,) = engine.replay(pipeline(not at_first), tmp_path)
    assert batch.state_rows < 20, "what is left is that of the other key"
    assert len(engine.read(f"{name}-out")) == 53


def test_the_time_of_results_decides_how_windows_are_kept_so_it_may_not_change(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    name, source = fresh("timed"), topic("timed", partitions=1)
    hopping = hr.hopping("20m", every="10m")

    def at(time: hr.ResultTime) -> hr.Pipeline:
        made = hr.Pipeline(name)
        stream = made.read(source, schema="k STRING, at TIMESTAMP").event_time("at")
        stream.key_by("k").window("sums", hopping, result_time=time, n="count(*)").write(f"{name}-out")
        return made

    produce(engine.bootstrap, source, [Sent.row({"k": "a", "at": timestamp(START)})])
    engine.replay(at(hr.at_end()), tmp_path)
    with pytest.raises(CheckpointMismatchError, match="result_time"):
        engine.replay(at(hr.at_latest()), tmp_path)
