"""End-to-end latency of the fraud job in real time: producer timestamp to consumer, for every decision."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.harness import broker, emit, note
from examples.fraud.generator import Traffic, Transactions
from headrace.log.consumer import consumer_config
from headrace.log.producer import producer_config
from headrace.log.topics import Topics

WARM_UP_SECONDS = 300


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def produce(bootstrap: str, topic: str, rate: float, seconds: float, stop: threading.Event) -> None:
    """Paced by the clock; the Kafka timestamp is the moment of sending."""
    producer = Producer(producer_config(bootstrap, **{"linger.ms": 0}))
    started = time.time()
    emissions = Transactions(Traffic(rate=rate), start_ms=int(started * 1000))
    for emission in islice(emissions, int(rate * seconds)):
        wait = emission.at_ms / 1000 - time.time()
        if wait > 0:
            time.sleep(wait)
        if stop.is_set():
            break
        producer.produce(topic, key=emission.key, value=emission.value)
        producer.poll(0)
    producer.flush()


def latencies(bootstrap: str, topic: str, since: float, until: float, having: bytes) -> list[float]:
    """Milliseconds from the source record's timestamp to its arrival here, of what arrives between the two moments.

    Only records whose value has `having` in it count.
    """
    fast = {"fetch.wait.max.ms": 5, "isolation.level": "read_uncommitted", "auto.offset.reset": "latest"}
    consumer = Consumer(consumer_config(bootstrap, f"latency-{uuid4().hex}", **fast))
    consumer.subscribe([topic])
    found = []
    while time.time() < until:
        message = consumer.poll(0.1)
        now = time.time()
        if message is None or message.error() or now < since:
            continue
        stamp = dict(message.headers() or []).get("headrace-source-timestamp")
        if stamp is not None and having in (message.value() or b""):
            found.append(now * 1000 - int(stamp))
    consumer.close()
    return found


def bare_round_trip(bootstrap: str, rate: float, seconds: float) -> list[float]:
    """The floor: a producer and a consumer with nothing between them."""
    topic = f"bare-{uuid4().hex[:8]}"
    Topics(bootstrap).create(topic, partitions=2)
    producer = Producer(producer_config(bootstrap, **{"linger.ms": 0}))
    fast = {"fetch.wait.max.ms": 5, "isolation.level": "read_uncommitted", "auto.offset.reset": "earliest"}
    consumer = Consumer(consumer_config(bootstrap, f"bare-{uuid4().hex}", **fast))
    # Assigned, not subscribed: joining a group takes seconds, which are not the log's.
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])

    def send() -> None:
        for i in range(int(rate * seconds)):
            producer.produce(topic, value=str(time.time() * 1000).encode(), key=str(i))
            producer.poll(0)
            time.sleep(1 / rate)
        producer.flush()

    thread = threading.Thread(target=send)
    thread.start()
    found: list[float] = []
    while thread.is_alive():
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            found.append(time.time() * 1000 - float(message.value() or b"0"))
    thread.join()
    consumer.close()
    # The first second includes making the connections.
    return sorted(found[int(rate) :])


def measure(bench: str, target: str, output: str, having: bytes = b"") -> None:
    """Run a pipeline over `transactions` in real time, and print the latency of the records of one output."""
    options = argparse.ArgumentParser()
    options.add_argument("--rate", type=float, default=500.0)
    options.add_argument("--seconds", type=float, default=180.0, help="measured, after the warm-up; spans checkpoints")
    arguments = options.parse_args()
    with broker() as (bootstrap, folder):
        floor = bare_round_trip(bootstrap, arguments.rate, 10)
        Topics(bootstrap).create("transactions", partitions=2)
        progress = folder / "progress.jsonl"
        command = [sys.executable, "-m", "headrace", "run", target, "--mode", "realtime", "--bootstrap", bootstrap]
        command += ["--checkpoint", str(folder / "checkpoint"), "--progress-file", str(progress)]
        with (folder / "job.log").open("wb") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log)
        stop = threading.Event()
        try:
            await_started(job, progress)
            note(f"running; warming up for {WARM_UP_SECONDS} s, then measuring for {arguments.seconds:.0f} s")
            total = WARM_UP_SECONDS + arguments.seconds
            sender = threading.Thread(target=produce, args=(bootstrap, "transactions", arguments.rate, total, stop))
            began = time.time()
            sender.start()
            found = sorted(latencies(bootstrap, output, began + WARM_UP_SECONDS, began + total, having))
            sender.join()
            note(progress.read_text())
        finally:
            stop.set()
            job.terminate()
            job.wait(60)
    emit(
        bench=bench,
        rate=arguments.rate,
        records=len(found),
        p50_ms=round(percentile(found, 0.5), 1),
        p95_ms=round(percentile(found, 0.95), 1),
        p99_ms=round(percentile(found, 0.99), 1),
        max_ms=round(found[-1], 1),
        bare_p50_ms=round(percentile(floor, 0.5), 1),
        bare_p99_ms=round(percentile(floor, 0.99), 1),
        p50_over_bare=round(percentile(found, 0.5) / percentile(floor, 0.5), 1),
        p99_over_bare=round(percentile(found, 0.99) / percentile(floor, 0.99), 1),
        target_p50_ms=10,
        target_p99_ms=50,
    )


def await_started(job: subprocess.Popen[bytes], progress: Path) -> None:
    deadline = time.monotonic() + 180
    while not (progress.exists() and '"started"' in progress.read_text()):
        if job.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the job did not start")
        time.sleep(0.2)


if __name__ == "__main__":
    measure("latency", "examples.fraud:fraud", "decisions")
