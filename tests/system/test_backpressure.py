"""Intake that is held back: to a rate, or to what the slowest part of the job can take."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine.progress import Progress
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.errors import UnsupportedModeError
from tests.system.records import Sent, produce, read_all
from tests.system.running import Engine, fresh

Topic = Callable[..., str]
SCHEMA = "id BIGINT NOT NULL"


def filled(engine: Engine, topic: Topic, count: int) -> str:
    source = topic("pressure", partitions=2)
    produce(engine.bootstrap, source, [Sent.row({"id": i}, partition=i % 2) for i in range(count)])
    return source


def run(engine: Engine, pipeline: hr.Pipeline, checkpoint: Path, settings: RunSettings) -> list[Progress]:
    batches = engine.replay(pipeline, checkpoint, settings=settings)
    return [batch for batch in batches if batch.input_rows]


def test_no_more_than_the_rate_is_read_and_all_of_it_in_the_end(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    source = filled(engine, topic, 900)
    pipeline = hr.Pipeline(fresh("rated"))
    pipeline.read(source, schema=SCHEMA).write(f"{source}-out")
    began = time.monotonic()
    batches = run(engine, pipeline, tmp_path, RunSettings(max_rate=300))
    took = time.monotonic() - began
    assert sorted(record.row["id"] for record in read_all(engine.bootstrap, f"{source}-out")) == list(range(900))
    assert max(batch.input_rows for batch in batches) <= 302, "a second's worth, and a row more per partition at most"
    assert took >= (900 - 302) / 300, "however fast the machine is"


def test_a_slow_step_makes_batches_small_and_nothing_is_lost(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    source = filled(engine, topic, 1600)

    def slowly(df: Any) -> Any:
        from pyspark.sql import functions as F

        def pause(id: int) -> int:
            time.sleep(0.005)
            return id

        return df.withColumn("id", F.udf(pause, "bigint")("id"))

    pipeline = hr.Pipeline(fresh("slow"))
    pipeline.read(source, schema=SCHEMA).apply(slowly, schema=SCHEMA).write(f"{source}-out")
    batches = run(engine, pipeline, tmp_path, RunSettings(latency_target_ms=1000, max_rows_per_batch=600))
    told = [batch.input_rows for batch in batches if "-apply-" in batch.query]
    # 600 rows take a second and a half in two tasks, of which half a second is allowed.
    assert told[0] == 600
    assert max(told[2:]) < 400, told
    assert sorted(record.row["id"] for record in read_all(engine.bootstrap, f"{source}-out")) == list(range(1600))


def test_real_time_refuses_a_rate(engine: Engine, topic: Topic) -> None:
    pipeline = hr.Pipeline(fresh("rated"))
    source = topic("rated", partitions=2)
    pipeline.read(source, schema=SCHEMA).write(f"{source}-out")
    with pytest.raises(UnsupportedModeError, match="max rate"):
        Run(pipeline, bootstrap=engine.bootstrap, mode=Mode.REALTIME, settings=RunSettings(max_rate=10))
