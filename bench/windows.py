"""Windows in replay: tumbling against Spark's own, and hopping of 60 against tumbling."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from bench.harness import broker, emit, load_transactions, median, note, seconds, session
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
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--max-rows", type=int, default=1_000_000)
    a = options.parse_args()
    with broker() as (bootstrap, folder):
        note(f"loading {a.rows:,} transactions")
        load_transactions(bootstrap, "transactions", a.rows)
        spark = session(folder)
        tumbling = windowed("tumbling", hr.tumbling("10m"))
        hopping = windowed("hopping", hr.hopping("10m", every="10s"))
        ours, theirs, hops, state = [], [], [], tumbling_state(None)
        for round_ in range(a.rounds + 1):
            n = seconds(
                lambda: native(spark, bootstrap, folder, lambda: F.window("occurred_at", "10 minutes"), a.max_rows)
            )
            told: list[Progress] = []
            t = seconds(lambda: told.append(headrace(spark, bootstrap, folder, tumbling, a.max_rows)))  # noqa: B023
            h = seconds(lambda: headrace(spark, bootstrap, folder, hopping, a.max_rows))
            note(f"round {round_}: Spark's own {n:.1f} s, tumbling {t:.1f} s, hopping of 60 {h:.1f} s")
            state = tumbling_state(told[0])
            if round_ > 0:
                theirs.append(n)
                ours.append(t)
                hops.append(h)
        spark.stop()
    emit(
        bench="windows",
        rows=a.rows,
        tumbling_rows_per_second=round(a.rows / median(ours)),
        native_rows_per_second=round(a.rows / median(theirs)),
        ratio=round(median([n / t for n, t in zip(theirs, ours, strict=True)]), 3),
        target=0.8,
        hopping_60_over_tumbling=round(median([h / t for h, t in zip(hops, ours, strict=True)]), 2),
        **json.loads(state),
    )


def tumbling_state(progress: Progress | None) -> str:
    """State per open window, at its fullest: each window is one row of state, and each key one more."""
    if progress is None or not progress.state_rows:
        return "{}"
    return json.dumps({"state_rows": progress.state_rows, "state_bytes": progress.state_bytes})


if __name__ == "__main__":
    main()
