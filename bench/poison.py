"""Throughput with one record in a hundred poison, against clean input, in one run; and every letter accounted for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import headrace as hr
from bench.harness import broker, bulk_producer, by_turns, emit, median, note, options, ratio, send, session
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.log.dead_letters import DeadLetters
from headrace.log.topics import Topics
from tests.system.poison import MAX_BYTES, REASONS, SCHEMA, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load(bootstrap: str, topic: str, count: int, poison: float) -> Counter[str]:
    """So many records; how many of each kind of poison are among them."""
    Topics(bootstrap).create(topic, partitions=2)
    producer = bulk_producer(bootstrap)
    kinds: Counter[str] = Counter()
    for number, (kind, value) in enumerate(records(count, seed=1, poison=poison)):
        if kind is not None:
            kinds[kind] += 1
        send(producer, topic, value=value, partition=number % 2)
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
    a = options(rows=1_000_000, rounds=3, max_rows=250_000)
    names: list[str] = []
    with broker() as (bootstrap, folder):
        note(f"loading {a.rows:,} records twice")
        load(bootstrap, "clean", a.rows, 0.0)
        kinds = load(bootstrap, "poisoned", a.rows, 0.01)
        spark = session(folder)
        took = by_turns(
            a.rounds,
            {
                "clean": lambda: replay(spark, bootstrap, folder, "clean", a.max_rows),
                "poisoned": lambda: names.append(replay(spark, bootstrap, folder, "poisoned", a.max_rows)),
            },
        )
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
        clean_rows_per_second=round(a.rows / median(took["clean"])),
        poisoned_rows_per_second=round(a.rows / median(took["poisoned"])),
        ratio=ratio(took["clean"], took["poisoned"]),
        target=0.9,
    )


if __name__ == "__main__":
    main()
