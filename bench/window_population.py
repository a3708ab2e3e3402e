"""Cost of an event against the population of its window: ten times more events per window may at most double it.

One hot key, one partition, the kernel's own operator in replay; the windows hold about 1,000 or about 10,000 events.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

import headrace as hr
from bench.harness import broker, bulk_producer, by_turns, emit, median, options, ratio, send, session
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.log.topics import Topics


def pipeline(window_seconds: int) -> hr.Pipeline:
    made = hr.Pipeline(f"population-{window_seconds}")
    events = made.read("hot", schema="card STRING, amount DOUBLE, at BIGINT").event_time("at", out_of_order="1s")
    rolled = events.key_by("card").rolling(
        "hot-card",
        n=hr.last(f"{window_seconds}s").count(),
        spend=hr.last(f"{window_seconds}s").sum("amount"),
        top=hr.last(f"{window_seconds}s").max("amount"),
    )
    rolled.write("hot-out")
    return made


def load(bootstrap: str, rows: int) -> None:
    """Ten events per second of event time on one card."""
    Topics(bootstrap).create("hot", partitions=1)
    producer = bulk_producer(bootstrap)
    start = int(time.time() * 1000) - rows * 100
    for i in range(rows):
        value = json.dumps({"card": "hot", "amount": (i * 7919 % 10_007) / 100, "at": start + i * 100})
        send(producer, "hot", key=b"hot", value=value)
    producer.flush()


def replay(spark: SparkSession, bootstrap: str, folder: Path, window_seconds: int) -> None:
    # Small batches: the state is read and written many times, as it is in a live job.
    settings = RunSettings(max_rows_per_batch=20_000, state_partitions=1)
    checkpoint = folder / uuid4().hex
    with Run(
        pipeline(window_seconds),
        bootstrap=bootstrap,
        mode=Mode.REPLAY,
        checkpoint=checkpoint,
        settings=settings,
        spark=spark,
    ) as run:
        run.wait()


def main() -> None:
    a = options(rows=100_000, rounds=3)
    with broker() as (bootstrap, folder):
        load(bootstrap, a.rows)
        spark = session(folder, state_partitions=1)
        took = by_turns(
            a.rounds,
            {
                "1,000 per window": lambda: replay(spark, bootstrap, folder, 100),
                "10,000 per window": lambda: replay(spark, bootstrap, folder, 1000),
            },
        )
        spark.stop()
    emit(
        bench="window_population",
        rows=a.rows,
        seconds_at_1000=round(median(took["1,000 per window"]), 2),
        seconds_at_10000=round(median(took["10,000 per window"]), 2),
        ratio=ratio(took["10,000 per window"], took["1,000 per window"]),
        target_at_most=2.0,
    )


if __name__ == "__main__":
    main()
