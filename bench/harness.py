"""What benchmarks share: a broker with a loaded topic, a session, timing, JSON lines."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from examples.fraud.generator import Traffic, Transactions
from headrace.log.broker import EmbeddedBroker
from headrace.log.producer import producer_config
from headrace.log.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def load_transactions(bootstrap: str, topic: str, count: int, *, partitions: int = 2, rate: float = 500.0) -> None:
    """The demo's transactions, as many as wanted, as fast as Kafka takes them."""
    Topics(bootstrap).create(topic, partitions=partitions)
    producer = Producer(producer_config(bootstrap, **{"linger.ms": 50, "queue.buffering.max.messages": 500_000}))
    start = int(time.time() * 1000) - int(count / rate * 1000)
    for emission in islice(Transactions(Traffic(rate=rate), start_ms=start), count):
        while True:
            try:
                producer.produce(topic, key=emission.key, value=emission.value, timestamp=emission.at_ms)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def session(folder: Path, *, slots: int = 4, state_partitions: int = 2) -> SparkSession:
    """Spark as a run has it."""
    from headrace.engine.session import open_session

    return open_session(
        "bench", slots=slots, state_partitions=state_partitions, log_file=folder / "spark.log", report=note
    )


def seconds(work: Callable[[], object]) -> float:
    """How long the work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median(values: list[float]) -> float:
    """The middle one."""
    return statistics.median(values)
