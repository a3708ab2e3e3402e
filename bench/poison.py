"""Throughput with one record in a hundred poison, against clean input, in one run; and every letter accounted for."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from confluent_kafka import Producer

import headrace as hr
from bench.harness import broker, emit, median, note, seconds, session
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.log.dead_letters import DeadLetters
from headrace.log.producer import producer_config
from headrace.log.topics import Topics
from tests.system.poison import MAX_BYTES, REASONS, SCHEMA, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load(bootstrap: str, topic: str, count: int, poison: float) -> Counter[str]:
    """So many records; how many of each kind of poison are among them."""
    Topics(bootstrap).create(topic, partitions=2)
    producer = Producer(producer_config(bootstrap, **{"linger.ms": 50, "queue.buffering.max.messages": 500_000}))
    kinds: Counter[str] = Counter()
    for number, (kind, value) in enumerate(records(count, seed=1, poison=poison)):
        if kind is not None:
            kinds[kind] += 1
        while True:
            try:
                producer.produce(topic, value, partition=number % 2)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return kinds


def replay(spark: SparkSession, bootstrap: str, folder: Path, topic: str, max_rows: int) -> str:
    name = f"{topic}-{uuid4().hex[:8]}"
    pipeline = hr.Pipeline(name)
    timed = pipeline.read(topic, schema=SCHEMA, max_bytes=MAX_BYTES).event_time("at", out_of_order="1h")
    timed.key_by("card").rolling("spend", n=hr.last("1h").count(), spend=hr.last("1h").sum("amount")).write(
        f"{name}-out"
    )
    settings = RunSettings(max_rows_per_batch=max_rows)
    with Run(
        pipeline, bootstrap=bootstrap, mode=Mode.REPLAY, checkpoint=folder / name, settings=settings, spark=spark
    ) as run:
        run.wait()
    return name


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--max-rows", type=int, default=250_000)
    a = options.parse_args()
    with broker() as (bootstrap, folder):
        note(f"loading {a.rows:,} records twice")
        load(bootstrap, "clean", a.rows, 0.0)
        kinds = load(bootstrap, "poisoned", a.rows, 0.01)
        spark = session(folder)
        clean: list[float] = []
        poisoned: list[float] = []
        names: list[str] = []
        for round_ in range(a.rounds + 1):
            c = seconds(lambda: replay(spark, bootstrap, folder, "clean", a.max_rows))
            p = seconds(lambda: names.append(replay(spark, bootstrap, folder, "poisoned", a.max_rows)))
            note(f"round {round_}: clean {c:.1f} s, poisoned {p:.1f} s")
            if round_ > 0:
                clean.append(c)
                poisoned.append(p)
        spark.stop()
        found: Counter[str] = Counter()
        for letter in DeadLetters(bootstrap, names[-1]).letters():
            found[next((k for k, reason in REASONS.items() if reason in letter.reason), "another reason")] += 1
    assert found == kinds, f"letters {found}, poison {kinds}"
    emit(
        bench="poison",
        rows=a.rows,
        poison=kinds.total(),
        right_reasons=found.total(),
        clean_rows_per_second=round(a.rows / median(clean)),
        poisoned_rows_per_second=round(a.rows / median(poisoned)),
        ratio=round(median([c / p for c, p in zip(clean, poisoned, strict=True)]), 3),
        target=0.9,
    )


if __name__ == "__main__":
    main()
