"""Windows in replay: tumbling against Spark's own, and hopping of 60 against tumbling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from bench.harness import by_turns, emit, median, options, ratio, transactions
from headrace.engine.progress import Progress, Record
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.log.topics import Topics

SCHEMA = "txn_id STRING, card_id STRING, amount DOUBLE, merchant STRING, lat DOUBLE, lon DOUBLE, occurred_at TIMESTAMP"


def windowed(name: str, windowing: hr.Windowing) -> hr.Pipeline:
    """Count and sum per card and window, into Kafka, exactly once."""
    pipeline = hr.Pipeline(name)
    events = pipeline.read("transactions", schema=SCHEMA).event_time("occurred_at", out_of_order="30s")
    spend = events.key_by("card_id").window("spend", windowing, n=F.count("*"), spend=F.sum("amount"))
    spend.write(f"{name}-out")
    return pipeline


def headrace(spark: SparkSession, bootstrap: str, folder: Path, pipeline: hr.Pipeline, max_rows: int) -> Progress:
    told: list[Record] = []
    with Run(
        pipeline,
        bootstrap=bootstrap,
        mode=Mode.REPLAY,
        checkpoint=folder / uuid4().hex,
        settings=RunSettings(max_rows_per_batch=max_rows),
        on_progress=told.append,
        spark=spark,
    ) as run:
        run.wait()
    return max((p for p in told if isinstance(p, Progress)), key=lambda p: p.state_rows)


def native(spark: SparkSession, bootstrap: str, folder: Path, window: Callable[[], Column], max_rows: int) -> None:
    """The same with Spark's own window and groupBy, into Spark's own Kafka sink."""
    topic = f"native-{uuid4().hex[:8]}"
    Topics(bootstrap).create(topic, partitions=2)
    rows: DataFrame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "transactions")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_rows)
        .load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("t"))
        .select("t.*")
        .withWatermark("occurred_at", "30 seconds")
    )
    result = rows.groupBy(window(), "card_id").agg(F.count("*").alias("n"), F.sum("amount").alias("spend"))
    (
        result.select(F.lit(topic).alias("topic"), F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.linger.ms", "20")
        .option("kafka.batch.size", "500000")
        .option("kafka.compression.type", "lz4")
        .outputMode("append")
        .option("checkpointLocation", str(folder / topic))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def main() -> None:
    a = options(rows=1_000_000, rounds=3, max_rows=1_000_000)
    told: list[Progress] = []
    with transactions(a.rows) as (spark, bootstrap, folder):
        tumbling = windowed("tumbling", hr.tumbling("10m"))
        hopping = windowed("hopping", hr.hopping("10m", every="10s"))
        ten_minutes = partial(F.window, "occurred_at", "10 minutes")
        took = by_turns(
            a.rounds,
            {
                "Spark's own": lambda: native(spark, bootstrap, folder, ten_minutes, a.max_rows),
                "tumbling": lambda: told.append(headrace(spark, bootstrap, folder, tumbling, a.max_rows)),
                "hopping of 60": lambda: headrace(spark, bootstrap, folder, hopping, a.max_rows),
            },
        )
    emit(
        bench="windows",
        rows=a.rows,
        tumbling_rows_per_second=round(a.rows / median(took["tumbling"])),
        native_rows_per_second=round(a.rows / median(took["Spark's own"])),
        ratio=ratio(took["Spark's own"], took["tumbling"]),
        target=0.8,
        hopping_60_over_tumbling=ratio(took["hopping of 60"], took["tumbling"]),
        # At their fullest: each open window is one row of state, and each key one more.
        state_rows=told[-1].state_rows,
        state_bytes=told[-1].state_bytes,
    )


if __name__ == "__main__":
    main()
