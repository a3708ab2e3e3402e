"""Replay throughput of the fraud job, against a bare Spark aggregation over the same topic in the same run."""

from __future__ import annotations

import argparse
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.harness import broker, emit, load_transactions, median, note, seconds, session
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
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--max-rows", type=int, default=1_000_000)
    arguments = options.parse_args()
    with broker() as (bootstrap, folder):
        note(f"loading {arguments.rows:,} transactions")
        load_transactions(bootstrap, "transactions", arguments.rows)
        spark = session(folder)
        bare, job = [], []
        for round_ in range(arguments.rounds + 1):
            b = seconds(lambda: bare_aggregation(spark, bootstrap, folder, arguments.max_rows))
            f = seconds(lambda: fraud_job(spark, bootstrap, folder, arguments.max_rows))
            note(f"round {round_}: bare {arguments.rows / b:,.0f}/s, fraud {arguments.rows / f:,.0f}/s")
            # The first round warms up the JVM.
            if round_ > 0:
                bare.append(arguments.rows / b)
                job.append(arguments.rows / f)
        spark.stop()
    emit(
        bench="replay",
        rows=arguments.rows,
        fraud_rows_per_second=round(median(job)),
        bare_rows_per_second=round(median(bare)),
        ratio=round(median([j / b for j, b in zip(job, bare, strict=True)]), 3),
        target=0.6,
    )


if __name__ == "__main__":
    main()
