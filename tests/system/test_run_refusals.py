"""What a run refuses when it has started Spark, and before it has read an event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.run import Run
from headrace.engine.settings import Mode
from headrace.errors import InvalidExpressionError, UnsupportedModeError
from headrace.log.topics import Topics
from tests.system.records import LogReader, Sent, produce
from tests.system.running import Engine, fresh

Topic = Callable[..., str]

SCHEMA = "id STRING, n BIGINT, at TIMESTAMP"
ROWS = [{"id": f"o{i}", "n": i, "at": "2026-01-01T10:00:00Z"} for i in range(3)]


def in_python(rows: Any) -> Any:
    return rows.withColumn("n", F.udf(lambda n: n + 1, "bigint")("n"))


def with_python(source: str) -> hr.Pipeline:
    pipeline = hr.Pipeline(fresh("python"))
    pipeline.read(source, schema=SCHEMA).apply(in_python).write(f"{pipeline.name}-out")
    return pipeline


def test_auto_stays_in_micro_batch_where_a_function_runs_in_python(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    source = topic("python", partitions=1)
    produce(engine.bootstrap, source, map(Sent.row, ROWS[:2]))
    pipeline = with_python(source)
    with engine.live(pipeline, Mode.AUTO, tmp_path) as told:
        reader = LogReader(engine.bootstrap, f"{pipeline.name}-out")
        reader.until(lambda records: len(records) == 2, "what was there")
        produce(engine.bootstrap, source, map(Sent.row, ROWS[2:]))
        records = reader.until(lambda records: len(records) == 3, "what came then")
    assert sorted(record.row["n"] for record in records) == [1, 2, 3]
    assert {event.mode for event in told.events} == {"microbatch"}


def test_real_time_is_refused_there_with_the_line(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    pipeline = with_python(topic("python", partitions=1))
    run = Run(pipeline, bootstrap=engine.bootstrap, mode=Mode.REALTIME, checkpoint=tmp_path, spark=engine.spark)
    with pytest.raises(UnsupportedModeError, match="uses the Python function `<lambda>`, which can't run in") as caught:
        run.start()
    assert caught.value.location is not None
    assert Path(caught.value.location.file).name == Path(__file__).name


@pytest.mark.parametrize("last", ["query", "sink"])
def test_an_expression_that_spark_does_not_take_keeps_all_queries_from_starting(
    engine: Engine, topic: Topic, tmp_path: Path, last: str
) -> None:
    source = topic("clicks", partitions=1)
    produce(engine.bootstrap, source, map(Sent.row, ROWS))
    pipeline = hr.Pipeline(fresh("clicks"))
    clicks = pipeline.read(source, schema=SCHEMA)
    timed = clicks.event_time("at")
    timed.key_by("id").rolling("seen", count=hr.last("1h").count()).write(f"{pipeline.name}-out")
    if last == "query":
        timed.key_by("n").rolling("again", times=hr.last("1h").count()).where("nosuch(times)").write("never")
    else:
        clicks.where("nosuch(n)").write(hr.sinks.files(str(tmp_path / "files")))
    run = Run(pipeline, bootstrap=engine.bootstrap, mode=Mode.REPLAY, checkpoint=tmp_path / "c", spark=engine.spark)
    with pytest.raises(InvalidExpressionError, match="where"), run:
        run.wait()
    assert engine.read(f"{pipeline.name}-out") == []
    assert Topics(engine.bootstrap).end_offsets(f"{pipeline.name}-out") == {0: 0}
