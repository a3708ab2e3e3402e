"""A short run of everything, for the class archives of `headrace prepare`.

    python -m headrace.cli.class_training [--broker ARCHIVE] [--session ARCHIVE]

A broker and a session work on a small pipeline, in a replay and in real time: their JVMs load what a run needs. Each
writes the archive that is asked of it when it ends. A process of its own, because both JVMs must end, and Spark starts
once in a process.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import headrace as hr
from headrace.engine.progress import Progress, Record
from headrace.engine.run import Run
from headrace.engine.session import open_session
from headrace.engine.settings import Mode, RunSettings
from headrace.jvm.class_archive import making
from headrace.log.broker import EmbeddedBroker
from headrace.log.producer import producer_config
from headrace.log.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVENTS = 200
_TOPIC = "payments"
_PATIENCE_SECONDS = 120.0


def main() -> None:
    """Work a little, and end both JVMs."""
    options = argparse.ArgumentParser()
    options.add_argument("--broker", type=Path)
    options.add_argument("--session", type=Path)
    asked = options.parse_args()
    if asked.broker is not None:
        os.environ["HEADRACE_BROKER_OPTS"] = shlex.join(making(asked.broker))
    with tempfile.TemporaryDirectory(prefix="headrace-training-") as scratch:
        folder = Path(scratch)
        with EmbeddedBroker(folder / "broker") as broker:
            Topics(broker.bootstrap).create(_TOPIC, partitions=2)
            _send(broker.bootstrap)
            spark = open_session(
                "class-training",
                slots=8,
                state_partitions=2,
                log_file=folder / "spark.log",
                jvm_options=None if asked.session is None else making(asked.session),
            )
            for mode in (Mode.REPLAY, Mode.REALTIME):
                _run(spark, broker.bootstrap, mode, folder / "checkpoint")
            _end(spark)


def _pipeline() -> hr.Pipeline:
    from pyspark.sql import functions as F

    pipeline = hr.Pipeline("class-training")
    keyed = (
        pipeline.read(_TOPIC, schema="id STRING, card STRING, amount DOUBLE, at TIMESTAMP")
        .event_time("at", out_of_order="30s", max_skew="5m")
        .key_by("card")
    )
    keyed.dedupe("id", within="1m").rolling(
        "recent", n=hr.last("1m").count(), spent=hr.last("1m").sum("amount"), before=hr.latest("amount", back=1)
    ).where("n > 0").write("recent")
    keyed.window("spent", hr.tumbling("1m"), n=F.count("*"), spent=F.sum("amount")).write("spent")
    return pipeline


def _send(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(producer_config(bootstrap))
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    for number in range(_EVENTS):
        card = f"card-{number % 10}"
        payment = {"id": str(number), "card": card, "amount": 1.5, "at": at}
        producer.produce(_TOPIC, json.dumps(payment).encode(), card.encode())
    producer.flush()


def _run(spark: SparkSession, bootstrap: str, mode: Mode, checkpoint: Path) -> None:
    """Until it has told of a batch of each query; a replay ends by itself."""
    told: set[str] = set()
    enough = threading.Event()

    def listen(record: Record) -> None:
        if isinstance(record, Progress):
            told.add(record.query)
            if len(told) == 2:
                enough.set()

    with Run(
        _pipeline(),
        bootstrap=bootstrap,
        mode=mode,
        checkpoint=checkpoint,
        settings=RunSettings(checkpoint_interval_ms=5_000),
        on_progress=listen,
        spark=spark,
    ) as run:
        if mode is Mode.REPLAY:
            run.wait()
        else:
            enough.wait(_PATIENCE_SECONDS)
            run.stop()


def _end(spark: SparkSession) -> None:
    """End the JVM and wait for that: it writes the archive last."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_PATIENCE_SECONDS)


if __name__ == "__main__":
    main()
