"""Cost of an event against the population of its window: ten times more events per window may at most double it.

One hot key, one partition, the kernel's own operator in replay; the windows hold about 1,000 or about 10,000 events.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Producer
from pyspark.sql import SparkSession

import headrace as hr
from bench.harness import broker, emit, median, note, seconds, session
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.log.producer import producer_config
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
    producer = Producer(producer_config(bootstrap, **{"queue.buffering.max.messages": 500_000}))
    start = int(time.time() * 1000) - rows * 100
    for i in range(rows):
        value = json.dumps({"card": "hot", "amount": (i * 7919 % 10_007) / 100, "at": start + i * 100})
        while True:
            try:
                producer.produce("hot", key=b"hot", value=value)
                break
            except BufferError:
                producer.poll(0.1)
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
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    with broker() as (bootstrap, folder):
        load(bootstrap, arguments.rows)
        spark = session(folder, state_partitions=1)
        ratios, small, large = [], [], []
        for round_ in range(arguments.rounds + 1):
            few = seconds(lambda: replay(spark, bootstrap, folder, 100))
            many = seconds(lambda: replay(spark, bootstrap, folder, 1000))
            note(f"round {round_}: 1,000 per window {few:.2f} s, 10,000 per window {many:.2f} s")
            if round_ > 0:
                small.append(few)
                large.append(many)
                ratios.append(many / few)
        spark.stop()
    emit(
        bench="window_population",
        rows=arguments.rows,
        seconds_at_1000=round(median(small), 2),
        seconds_at_10000=round(median(large), 2),
        ratio=round(median(ratios), 3),
        target_at_most=2.0,
    )


if __name__ == "__main__":
    main()
