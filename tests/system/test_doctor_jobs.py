"""The doctor and real jobs: troubles caused by a pipeline that Spark runs; a healthy one has none.

One job at a time, so that none is in trouble because of another. test_doctor.py has all findings, with jobs that
are played, all at once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import headrace as hr
from headrace.engine.session import started_with
from headrace.engine.settings import Mode
from headrace.log.producer import producer_config
from headrace.ops.doctor.evidence import gather
from headrace.ops.doctor.rules import Finding, diagnose
from tests.system.consumer_groups import READERS
from tests.system.records import DEADLINE
from tests.system.running import Engine, Told, beside, fresh, wait_for

SECONDS = 6.0
SCHEMA = "user STRING NOT NULL, at TIMESTAMP NOT NULL, amount DOUBLE"
SLOW = "java_method('java.lang.Thread', 'sleep', 50L) IS NOT NULL"
"""A step that takes its time for each event, and leaves the cores alone."""
Topic = Callable[..., str]


class Patient:
    """A pipeline that counts per user, and somebody who sends events to it."""

    def __init__(self, engine: Engine, topic: Topic, label: str, *, partitions: int = 2, **timing: Any) -> None:
        self.name = fresh(label)
        self.source, self.out = topic(f"{label}-in", partitions=partitions), topic(f"{label}-out", partitions=1)
        self._engine, self._timing = engine, timing or {"out_of_order": "1h"}
        self._producer = Producer(producer_config(engine.bootstrap, **{"linger.ms": 5}))

    def pipeline(self, where: str | None = None) -> hr.Pipeline:
        declared = hr.Pipeline(self.name)
        events = declared.read(self.source, schema=SCHEMA)
        timed = (events.where(where) if where else events).event_time("at", **self._timing)
        timed.key_by("user").rolling("counts", n=hr.last("1m").count()).write(self.out)
        return declared

    def send(self, count: int, *, partition: int | None = None, user: str | None = None, amount: object = 1.5) -> None:
        now = datetime.now(UTC)
        place: dict[str, Any] = {} if partition is None else {"partition": partition}
        for number in range(count):
            name = user or f"user-{number % 50}"
            at = (now + timedelta(milliseconds=number)).isoformat(timespec="milliseconds")
            value = json.dumps({"user": name, "at": at, "amount": amount}).encode()
            self._producer.produce(self.source, value, name.encode(), **place)
        self._producer.flush()

    def replay(self, checkpoint: Path, where: str | None = None) -> None:
        self._engine.replay(self.pipeline(where), checkpoint)

    @contextmanager
    def running(
        self, checkpoint: Path, traffic: Callable[[], None], *, where: str | None = None, max_rows: int = 10_000
    ) -> Iterator[Told]:
        """Runs it in small batches while traffic comes in twice a second; it has done some when the block begins."""
        pipeline = self.pipeline(where)
        with (
            self._engine.live(pipeline, Mode.MICROBATCH, checkpoint, max_rows=max_rows) as told,
            beside(every(traffic)),
        ):
            told.until(lambda t: len(t.batches) >= 3, "three batches")
            yield told

    def examined(self, seconds: float = SECONDS, folders: tuple[Path, ...] = ()) -> list[Finding]:
        (evidence,) = gather(self._engine.bootstrap, seconds, (self.name,), folders, lambda message: None)
        return diagnose(evidence)

    def examined_until(self, what: str, seconds: float = 1, deadline: float = DEADLINE) -> list[Finding]:
        """Again and again, until something is found."""
        found: list[Finding] = []

        def anything() -> bool:
            found[:] = self.examined(seconds)
            return bool(found)

        wait_for(anything, what, deadline)
        return found


def every(traffic: Callable[[], None]) -> Callable[[threading.Event], None]:
    def go_on(stopping: threading.Event) -> None:
        while not stopping.wait(0.5):
            traffic()

    return go_on


def the(found: list[Finding], name: str, evidence: str, cause: str) -> None:
    """That this was found, for this reason, and nothing else."""
    assert [f.name for f in found] == [name], [f.to_dict() for f in found]
    assert evidence in found[0].evidence
    assert cause in found[0].cause
    assert found[0].fix
    assert found[0].command.startswith("headrace ")


@pytest.mark.soak
def test_a_healthy_job_has_nothing_and_a_stopped_one_is_told_of(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    patient = Patient(engine, topic, "healthy")
    patient.send(20)
    with patient.running(tmp_path, partial(patient.send, 20)):
        assert [f.to_dict() for f in patient.examined()] == []
    patient.send(50)
    the(patient.examined(1), "not-running", "events wait", "it was stopped")


@pytest.mark.soak
def test_events_that_can_not_be_read_any_more(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    patient = Patient(engine, topic, "changed")

    def both() -> None:
        patient.send(10)
        patient.send(10, amount="12,50")

    with patient.running(tmp_path, both):
        the(patient.examined(), "schema-change", "amount", "renamed a field, changed its type")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("label", "partitions", "max_rows", "name", "evidence", "cause"),
    [
        ("skewed", 2, 20, "lag-skew", "the key `hot-customer`", "spread unevenly"),
        ("single", 1, 10, "lag-few-partitions", "1 partition(s)", "read by one task"),
        ("slow", 4, 40, "lag-slow", "lag went from", "less per second than comes in"),
    ],
)
def test_a_job_that_falls_behind(
    engine: Engine,
    topic: Topic,
    tmp_path: Path,
    label: str,
    partitions: int,
    max_rows: int,
    name: str,
    evidence: str,
    cause: str,
) -> None:
    patient = Patient(engine, topic, label, partitions=partitions)
    hot = label == "skewed"
    send = partial(patient.send, partition=0, user="hot-customer") if hot else patient.send
    send(4000)

    def too_many() -> None:
        send(150)
        if hot:
            patient.send(5, partition=1)

    with patient.running(tmp_path, too_many, where=SLOW, max_rows=max_rows):
        the(patient.examined(), name, evidence, cause)


@pytest.mark.soak
def test_results_that_two_runs_wrote(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    patient = Patient(engine, topic, "repeated")
    patient.send(4, partition=0)
    for name in ("one", "another"):
        patient.replay(tmp_path / name)
    # A result that is written again is behind later ones of its key too, if there are any: here each key has one.
    the(patient.examined(1), "duplicates", "2 times", "two runs with checkpoints of their own")


@pytest.mark.soak
def test_results_out_of_order(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    """Two versions of a job write to one topic, each its part: the second one's results come after later ones."""
    patient = Patient(engine, topic, "disordered")
    for number in range(4):
        patient.send(1, partition=0, user="somebody", amount=float(number))
    patient.replay(tmp_path / "one", "amount IN (0, 1, 3)")
    patient.replay(tmp_path / "another", "amount = 2")
    the(patient.examined(1), "out-of-order", "1 of 4 results", "by a second writer")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("readers", "name", "evidence", "cause"),
    [
        ("three", "idle-consumers", "of the 3 members", "members beyond the number"),
        ("restless", "rebalances", "was rebalancing", "members come and go"),
    ],
)
def test_groups_that_read_beside_the_job(
    engine: Engine, topic: Topic, tmp_path: Path, readers: str, name: str, evidence: str, cause: str
) -> None:
    patient = Patient(engine, topic, readers)
    patient.send(20)
    work = partial(READERS[readers], engine.bootstrap, patient.source)
    with beside(work), patient.running(tmp_path, partial(patient.send, 20)):
        the(patient.examined(8), name, evidence, cause)


@pytest.mark.soak
def test_files_that_are_small(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    patient = Patient(engine, topic, "many", partitions=30)
    pipeline = hr.Pipeline(patient.name)
    pipeline.read(patient.source, schema=SCHEMA).write(hr.sinks.files(str(folder)))
    for _ in range(2):
        for number in range(30):
            patient.send(1, partition=number)
        engine.replay(pipeline, tmp_path / "checkpoint")
    the(patient.examined(1, (folder,)), "small-files", "60 files of about", "every batch writes files of its own")


@pytest.mark.soak
def test_a_silent_partition_that_holds_time_back(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    patient = Patient(engine, topic, "stalled", watermark=hr.per_partition(idle="1h"))
    for number in (0, 1):
        patient.send(10, partition=number)
    with patient.running(tmp_path, partial(patient.send, 10, partition=1)):
        found = patient.examined_until("a watermark that has not moved for seconds", SECONDS)
    the(found, "stalled-watermark", "has been 20", "partition 0 of")


@pytest.mark.soak
def test_a_heap_that_is_full(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    patient = Patient(engine, topic, "full")
    patient.send(10)
    gateway: Any = engine.spark.sparkContext._gateway
    runtime = gateway.jvm.java.lang.Runtime.getRuntime()
    held: list[Any] = []
    with patient.running(tmp_path, partial(patient.send, 10)):
        try:
            gateway.jvm.java.lang.System.gc()
            while runtime.totalMemory() - runtime.freeMemory() < 0.88 * runtime.maxMemory():
                held.append(gateway.jvm.java.nio.ByteBuffer.allocate(50_000_000))
                assert len(held) < 200, "more than the heap can have"
            found = patient.examined_until("the heap of the last heartbeats to be the full one")
        finally:
            for buffer in held:
                gateway.detach(buffer)
            gateway.jvm.java.lang.System.gc()
    the(found, "driver-memory", "of the driver's heap is in use", "too large for the heap")


@pytest.mark.soak
def test_state_that_makes_commits_slow(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    """Each event is a key of its own that is kept for an hour, and each commit puts all of that in order."""
    patient = Patient(engine, topic, "heavy")
    lots = {"linger.ms": 50, "queue.buffering.max.messages": 2_000_000}
    producer = Producer(producer_config(engine.bootstrap, **lots))
    at = datetime.now(UTC).isoformat(timespec="milliseconds").encode()
    for number in range(1_500_000):
        producer.produce(patient.source, b'{"user":"%d","at":"%s","amount":1}' % (number, at))
        producer.poll(0)
    producer.flush()
    with (
        started_with(engine.spark, {"spark.sql.streaming.stateStore.rocksdb.compactOnCommit": "true"}),
        patient.running(tmp_path, partial(patient.send, 10), max_rows=750_000),
    ):
        found = patient.examined_until("a commit that takes seconds", deadline=120)
    the(found, "slow-checkpoints", "the last commit took", "the state")
