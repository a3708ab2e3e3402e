"""What benchmarks share: options, a broker with a loaded topic, a session, contenders by turns, JSON lines."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from examples.fraud.generator import Traffic, Transactions
from headrace.log.broker import EmbeddedBroker
from headrace.log.producer import producer_config
from headrace.log.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def options(**defaults: int) -> argparse.Namespace:
    """What the command line says, or else the defaults: `options(rows=1_000_000)` is --rows."""
    parser = argparse.ArgumentParser()
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    return parser.parse_args()


def emit(**figures: object) -> None:
    """One result as a JSON line."""
    print(json.dumps(figures), flush=True)


def note(message: str) -> None:
    """What is going on, for the person who waits."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def broker() -> Iterator[tuple[str, Path]]:
    """A broker of its own and a scratch folder, both gone at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        EmbeddedBroker(data_dir=Path(folder) / "broker") as running,
    ):
        yield running.bootstrap, Path(folder)


@contextmanager
def transactions(rows: int) -> Iterator[tuple[SparkSession, str, Path]]:
    """A session, a broker whose topic `transactions` has so many of them, and a scratch folder."""
    with broker() as (bootstrap, folder):
        note(f"loading {rows:,} transactions")
        load_transactions(bootstrap, "transactions", rows)
        spark = session(folder)
        try:
            yield spark, bootstrap, folder
        finally:
            spark.stop()


def bulk_producer(bootstrap: str) -> Producer:
    """A producer that is made for many records, not for quick ones."""
    return Producer(producer_config(bootstrap, **{"linger.ms": 50, "queue.buffering.max.messages": 500_000}))


def load_transactions(bootstrap: str, topic: str, count: int, *, partitions: int = 2, rate: float = 500.0) -> None:
    """The demo's transactions, as many as wanted, as fast as Kafka takes them."""
    Topics(bootstrap).create(topic, partitions=partitions)
    producer = bulk_producer(bootstrap)
    start = int(time.time() * 1000) - int(count / rate * 1000)
    for emission in islice(Transactions(Traffic(rate=rate), start_ms=start), count):
        send(producer, topic, key=emission.key, value=emission.value, timestamp=emission.at_ms)
    producer.flush()


def send(producer: Producer, topic: str, **record: Any) -> None:
    """One record, when the producer has room for it."""
    while True:
        try:
            producer.produce(topic, **record)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)


def session(folder: Path, *, slots: int = 4, state_partitions: int = 2) -> SparkSession:
    """Spark as a run has it."""
    from headrace.engine.session import open_session

    return open_session(
        "bench", slots=slots, state_partitions=state_partitions, log_file=folder / "spark.log", report=note
    )


def by_turns(rounds: int, contenders: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """How many seconds each contender takes in each round; a round before them warms up the JVM and does not count.

    A contender of which only a part counts returns the seconds of that part.
    """
    took: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        now = {name: _counted(work) for name, work in contenders.items()}
        note(f"round {round_}: " + ", ".join(f"{name} {value:.1f} s" for name, value in now.items()))
        if round_ > 0:
            for name, value in now.items():
                took[name].append(value)
    return took


def _counted(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    own = work()
    return own if isinstance(own, float) else time.perf_counter() - started


def seconds(work: Callable[[], object]) -> float:
    """How long the work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median(values: list[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def ratio(of: list[float], to: list[float]) -> float:
    """The median of the ratios, round by round."""
    return round(median([a / b for a, b in zip(of, to, strict=True)]), 3)
