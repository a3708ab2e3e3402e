"""What things are called, on the real log: columns in another case, queries that are found again, the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine import hidden
from headrace.engine.plan import Route
from headrace.engine.settings import Mode
from headrace.errors import CheckpointMismatchError
from headrace.log.broker import EmbeddedBroker
from headrace.log.topics import Topics
from tests.system.records import LogReader, Sent, produce, read_all
from tests.system.running import Engine, fresh

Topic = Callable[..., str]
SCHEMA = "user STRING, x BIGINT, at TIMESTAMP"

# Made while no SparkContext exists, whatever other tests start later.
LARGE = F.col("X") > 0
SUM = F.sum("X")


def events(*numbers: int, user: str = "ann") -> list[Sent]:
    rows = ({"user": user, "x": n, "at": f"2026-01-01T10:{n // 60:02}:{n % 60:02}Z"} for n in numbers)
    return [Sent.row(row, key="the source's") for row in rows]


def test_columns_are_found_in_any_case(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("cases"), topic("cases", partitions=1)
    produce(engine.bootstrap, source, events(1, 2, 2, 0, 200))
    pipeline = hr.Pipeline(name)
    rows = pipeline.read(source, schema=SCHEMA).with_column("X", "x * 10").where(LARGE)
    timed = rows.event_time("AT", out_of_order="1s").key_by("USER")
    timed.dedupe("X", name="once").rolling(
        "recent", total=hr.last("1m").sum("X"), before=hr.latest("At", back=1)
    ).select("User", "X", "total").write(f"{name}-recent")
    timed.window("minutes", hr.tumbling("1m"), sum=SUM).write(f"{name}-minutes")
    rows.select("X", "USER").write(f"{name}-copy", key="User")
    engine.replay(pipeline, tmp_path)
    assert [r.row for r in engine.read(f"{name}-recent")] == [
        {"user": "ann", "x": 10, "total": 10},
        {"user": "ann", "x": 20, "total": 30},
        {"user": "ann", "x": 2000, "total": 2000},
    ]
    copies = engine.read(f"{name}-copy")
    assert [r.row for r in copies] == [{"x": x, "user": "ann"} for x in (10, 20, 20, 2000)]
    assert {r.key for r in copies} == {b"ann"}
    assert [r.row["sum"] for r in read_all(engine.bootstrap, f"{name}-minutes")] == [50]


def test_what_a_key_column_is_called_does_not_matter_to_tombstones(engine: Engine) -> None:
    from headrace.engine.tombstones import with_deletes

    kept = f"{hidden.ROUTE} INT, {hidden.INTAKE_REASON} STRING, {hidden.RECORD_KEY} BINARY"
    keys = [b"""{"it's": 7, "a.b?": "x"}""", b"""{"it's": null, "a.b?": "x"}""", b"{"]
    dead = (Route.DEAD_LETTER.value, hidden.NO_PAYLOAD)
    records = [(None, None, *dead, key) for key in keys]
    rows = engine.spark.createDataFrame(records, f"`it's` INT, `a.b?` STRING, {kept}")
    found = with_deletes(rows, ("it's", "a.b?")).collect()
    assert [(row["it's"], row["a.b?"], row["row_kind"]) for row in found] == [
        (7, "x", "-D"),
        (None, None, None),
        (None, None, None),
    ]


def applied(name: str, source: str, comment: str = "") -> hr.Pipeline:
    """As a file declares it that has a comment more, or not."""
    text = f"""
rows = pipeline.read({source!r}, schema={SCHEMA!r})
{comment}
rows.apply(lambda df: df.where("x > 0"), schema={SCHEMA!r}).write("{name}-out")
"""
    pipeline = hr.Pipeline(name)
    exec(compile(text, "job.py", "exec"), {"pipeline": pipeline})
    return pipeline


def test_a_comment_more_writes_nothing_again(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("comment"), topic("comment", partitions=1)
    produce(engine.bootstrap, source, events(0, 1, 2))
    engine.replay(applied(name, source), tmp_path)
    produce(engine.bootstrap, source, events(3))
    engine.replay(applied(name, source, "# What is not above zero\n# is of no use.\n"), tmp_path)
    assert [(r.row["x"], r.id.split("/")[-1]) for r in engine.read(f"{name}-out")] == [
        (x, f"{name}-apply-{source}") for x in (1, 2, 3)
    ]


def test_a_checkpoint_is_bound_to_the_cluster_that_it_was_made_on(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("bound"), topic("bound", partitions=1)
    produce(engine.bootstrap, source, events(1))
    pipeline = hr.Pipeline(name)
    pipeline.read(source, schema=SCHEMA).write(f"{name}-out")
    engine.replay(pipeline, tmp_path)
    file = tmp_path / "headrace.json"
    note = json.loads(file.read_text())
    assert note["cluster"] == Topics(engine.bootstrap).cluster_id()
    file.write_text(json.dumps(note | {"cluster": "another"}))
    with pytest.raises(CheckpointMismatchError, match="belongs to the Kafka cluster `another`, and this run is on"):
        engine.replay(pipeline, tmp_path)


def test_an_embedded_broker_is_the_same_cluster_as_long_as_it_has_its_data(tmp_path: Path) -> None:
    ids = []
    for folder in ("one", "one", "two"):
        with EmbeddedBroker(tmp_path / folder) as broker:
            ids.append(Topics(broker.bootstrap, timeout=30).cluster_id())
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize("mode", [Mode.MICROBATCH, pytest.param(Mode.REALTIME, marks=pytest.mark.soak)])
def test_a_query_may_come_to_read_control_records_but_not_leave_them(
    engine: Engine, topic: Topic, tmp_path: Path, mode: Mode
) -> None:
    name, source = fresh("control"), topic("control", partitions=1)

    def per_minute(**time: Any) -> hr.Pipeline:
        pipeline = hr.Pipeline(name)
        timed = pipeline.read(source, schema=SCHEMA).event_time("at", out_of_order="1s", **time)
        timed.key_by("user").window("minutes", hr.tumbling("1m"), n="count(*)").write(f"{name}-out")
        return pipeline

    produce(engine.bootstrap, source, events(57, 58))
    engine.replay(per_minute(), tmp_path)
    produce(engine.bootstrap, source, events(59))
    with engine.live(per_minute(close_idle="2s"), mode, tmp_path):
        reader = LogReader(engine.bootstrap, f"{name}-out")
        (record,) = reader.until(lambda records: len(records) == 1, "the window to close by the clock")
        reader.close()
    assert record.row["n"] == 3, "the events of before are in the state"
    with pytest.raises(CheckpointMismatchError, match="has read control records, and now has no use for them"):
        engine.replay(per_minute(), tmp_path)
