"""Replay throughput of the fraud job, against a bare Spark aggregation over the same topic in the same run."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.harness import by_turns, emit, median, options, ratio, transactions
from examples.fraud import fraud
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings


def bare_aggregation(spark: SparkSession, bootstrap: str, folder: Path, max_rows: int) -> None:
    """What anybody would write: parse, group, count and sum; no sink to speak of."""
    schema = (
        "txn_id string, card_id string, amount double, merchant string, lat double, lon double, occurred_at timestamp"
    )
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "transactions")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_rows)
        .load()
        .select(F.from_json(F.col("value").cast("string"), schema).alias("t"))
        .select("t.*")
    )
    query = (
        rows.groupBy("card_id")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("spend"))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(folder / f"bare-{uuid4().hex}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def fraud_job(spark: SparkSession, bootstrap: str, folder: Path, max_rows: int, *, publish: bool = True) -> None:
    """The flagship in replay mode, into Kafka, exactly once."""
    with Run(
        fraud,
        bootstrap=bootstrap,
        mode=Mode.REPLAY,
        checkpoint=folder / f"fraud-{uuid4().hex}",
        settings=RunSettings(max_rows_per_batch=max_rows),
        spark=spark,
        publish=publish,
    ) as run:
        run.wait()


def main() -> None:
    a = options(rows=1_000_000, rounds=5, max_rows=RunSettings().max_rows_per_batch)
    with transactions(a.rows) as (spark, bootstrap, folder):
        took = by_turns(
            a.rounds,
            {
                "bare": lambda: bare_aggregation(spark, bootstrap, folder, a.max_rows),
                "fraud": lambda: fraud_job(spark, bootstrap, folder, a.max_rows),
            },
        )
    emit(
        bench="replay",
        rows=a.rows,
        fraud_rows_per_second=round(a.rows / median(took["fraud"])),
        bare_rows_per_second=round(a.rows / median(took["bare"])),
        ratio=ratio(took["bare"], took["fraud"]),
        target=0.6,
    )


if __name__ == "__main__":
    main()
