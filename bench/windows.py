"""Windows in replay: tumbling against Spark's own, and hopping of 60 against tumbling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import headrace as hr
from bench.harness import by_turns, emit, median, options, ratio, transactions
from headrace.engine.progress import Progress, Record
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.log.topics import Topics

SCHEMA = "txn_id STRING, card_id STRING, amount DOUBLE, merchant STRING, lat DOUBLE, lon DOUBLE, occurred_at TIMESTAMP"


def windowed(name: str, windowing: hr.Windowing, out_of_order: str = "30s") -> hr.Pipeline:
    """Count and sum per card and window, into Kafka, exactly once."""
    pipeline = hr.Pipeline(name)
    events = pipeline.read("transactions", schema=SCHEMA).event_time("occurred_at", out_of_order=out_of_order)
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


def open_windows(spark: SparkSession, bootstrap: str, size: int, hop: int) -> int:
    """How many windows of so many seconds the transactions are in, all cards together."""
    slices = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "transactions")
        .load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("t"))
        .where("t.card_id IS NOT NULL AND t.occurred_at IS NOT NULL")
        .select("t.card_id", F.floor(F.unix_timestamp("t.occurred_at") / hop).alias("slice"))
        .distinct()
    )
    # An event opens one window for each hop of a size, of which the card's next event may have some open already.
    following = F.lead("slice").over(Window.partitionBy("card_id").orderBy("slice"))
    opened = F.least(F.coalesce(following - F.col("slice"), F.lit(size // hop)), F.lit(size // hop))
    return int(slices.select(opened.alias("opened")).agg(F.sum("opened")).collect()[0][0])


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
    with transactions(a.rows) as (spark, bootstrap, folder):
        tumbling = windowed("tumbling", hr.tumbling("10m"))
        hopping = windowed("hopping", hr.hopping("10m", every="10s"))
        ten_minutes = partial(F.window, "occurred_at", "10 minutes")
        took = by_turns(
            a.rounds,
            {
                "Spark's own": lambda: native(spark, bootstrap, folder, ten_minutes, a.max_rows),
                "tumbling": lambda: headrace(spark, bootstrap, folder, tumbling, a.max_rows),
                "hopping of 60": lambda: headrace(spark, bootstrap, folder, hopping, a.max_rows),
            },
        )
        # Nothing closes within a month, so that every window is open in the end.
        state: dict[str, object] = {}
        for name, windowing, hop in (
            ("tumbling", hr.tumbling("10m"), 600),
            ("hopping_60", hr.hopping("10m", every="10s"), 10),
        ):
            fullest = headrace(spark, bootstrap, folder, windowed(f"open-{name}", windowing, "30d"), a.max_rows)
            windows = open_windows(spark, bootstrap, 600, hop)
            state[f"{name}_open_windows"] = windows
            state[f"{name}_state_rows_per_window"] = round(fullest.state_rows / windows, 3)
            state[f"{name}_state_bytes_per_window"] = round(fullest.state_bytes / windows, 1)
    emit(
        bench="windows",
        rows=a.rows,
        tumbling_rows_per_second=round(a.rows / median(took["tumbling"])),
        native_rows_per_second=round(a.rows / median(took["Spark's own"])),
        ratio=ratio(took["Spark's own"], took["tumbling"]),
        target=0.8,
        hopping_60_over_tumbling=ratio(took["hopping of 60"], took["tumbling"]),
        **state,
    )


if __name__ == "__main__":
    main()
