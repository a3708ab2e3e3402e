"""The doctor and real jobs: each trouble is caused by pipelines that Spark runs; a healthy one beside them has none.

That takes minutes; test_doctor.py has the same findings with jobs that are played.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import headrace as hr
from headrace.engine.settings import Mode
from headrace.log.broker import EmbeddedBroker
from headrace.log.consumer import consumer_config
from headrace.log.producer import producer_config
from headrace.ops.doctor.evidence import Evidence, gather
from headrace.ops.doctor.rules import Finding, diagnose
from tests.system.processes import headrace
from tests.system.running import Engine, fresh, wait_for

SECONDS = 20.0
SCHEMA = "user STRING NOT NULL, at TIMESTAMP NOT NULL, amount DOUBLE"
SLOW = "java_method('java.lang.Thread', 'sleep', 50L) IS NOT NULL"
"""A step that takes its time for each event, and leaves the cores alone."""
Topic = Callable[..., str]
pytestmark = pytest.mark.soak


class Patient:
    """A pipeline that counts per user, and somebody who sends events to it."""

    def __init__(
        self, bootstrap: str, topic: Topic, label: str, *, partitions: int = 2, slow: bool = False, **timing: Any
    ) -> None:
        self.name = fresh(label)
        self.source, self.out = topic(f"{label}-in", partitions=partitions), topic(f"{label}-out", partitions=1)
        self._slow, self._timing = slow, timing
        self._producer = Producer(producer_config(bootstrap, **{"linger.ms": 5}))

    def pipeline(self, where: str | None = None) -> hr.Pipeline:
        declared = hr.Pipeline(self.name)
        events = declared.read(self.source, schema=SCHEMA)
        for condition in (where, SLOW if self._slow else None):
            events = events.where(condition) if condition else events
        timed = events.event_time("at", **(self._timing or {"out_of_order": "1h"}))
        timed.key_by("user").rolling("counts", n=hr.last("1m").count()).write(self.out)
        return declared

    def send(self, count: int, *, partition: int | None = None, user: str | None = None, amount: object = 1.5) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        for number in range(count):
            name = user or f"user-{number % 50}"
            value = json.dumps({"user": name, "at": at, "amount": amount})
            place = {} if partition is None else {"partition": partition}
            self._producer.produce(self.source, value, name, **place)  # type: ignore[arg-type]
        self._producer.flush()


@dataclass
class Ward:
    """All that was found, by the label of the pipeline."""

    findings: dict[str, list[Finding]]
    evidence: dict[str, Evidence]

    def names(self, label: str) -> set[str]:
        return {finding.name for finding in self.findings[label]}


@pytest.fixture(scope="module")
def ward(engine: Engine, topic: Topic, tmp_path_factory: pytest.TempPathFactory) -> Ward:
    """Every trouble at once, and one examination of them all."""
    patients: dict[str, Patient] = {}
    checkpoints = tmp_path_factory.mktemp("checkpoints")

    def admit(label: str, **options: Any) -> Patient:
        patients[label] = Patient(engine.bootstrap, topic, label, **options)
        return patients[label]

    def replay(patient: Patient, number: int, where: str | None = None) -> None:
        engine.replay(patient.pipeline(where), checkpoints / f"{patient.name}-{number}")

    stopped = admit("stopped")
    stopped.send(10)
    replay(stopped, 1)
    stopped.send(50)
    repeated = admit("repeated")
    repeated.send(4, partition=0)
    replay(repeated, 1)
    replay(repeated, 2)
    # Two versions of a job write to one topic, each its part: the second one's results come after later ones.
    disordered = admit("disordered")
    for number in range(4):
        disordered.send(1, partition=0, user="somebody", amount=float(number))
    replay(disordered, 1, "amount IN (0, 1, 3)")
    replay(disordered, 2, "amount = 2")

    healthy, changed = admit("healthy"), admit("changed")
    stalled = admit("stalled", watermark=hr.per_partition(idle="1h"))
    for patient in (healthy, changed):
        patient.send(20)
    for number in (0, 1):
        stalled.send(10, partition=number)

    def some_odd() -> None:
        healthy.send(20)
        changed.send(10)
        changed.send(10, amount="12,50")
        stalled.send(10, partition=1)

    with ExitStack() as running:
        for readers, patient in ((_three_members, stalled), (_restless, changed)):
            running.enter_context(_beside(partial(readers, engine.bootstrap, patient.source)))
        examined = examine(engine, checkpoints, {healthy: 10_000, changed: 10_000, stalled: 10_000}, some_odd)

    skewed, single = admit("skewed", slow=True), admit("single", slow=True, partitions=1)
    slow = admit("slow", slow=True, partitions=4)
    skewed.send(2000, partition=0, user="hot-customer")
    single.send(2000)
    slow.send(4000)

    def too_many() -> None:
        skewed.send(150, partition=0, user="hot-customer")
        skewed.send(5, partition=1)
        single.send(150)
        slow.send(150)

    behind = examine(engine, checkpoints, {skewed: 20, single: 10, slow: 40}, too_many)
    evidence = {
        label: (behind if patient in (skewed, single, slow) else examined)[patient.name]
        for label, patient in patients.items()
    }
    return Ward({label: diagnose(e) for label, e in evidence.items()}, evidence)


def examine(
    engine: Engine, checkpoints: Path, patients: dict[Patient, int], traffic: Callable[[], None]
) -> dict[str, Evidence]:
    """Run these, in batches of so many rows, while traffic comes in twice a second: what the doctor sees."""

    def go_on(stopping: threading.Event) -> None:
        while not stopping.wait(0.5):
            traffic()

    with ExitStack() as running:
        told = [
            running.enter_context(
                engine.live(p.pipeline(), Mode.MICROBATCH, checkpoints / p.name, max_rows=most, every_ms=2000)
            )
            for p, most in patients.items()
        ]
        running.enter_context(_beside(go_on))
        for run in told:
            run.until(lambda t: len(t.batches) >= 3, "three batches")
        time.sleep(6)  # two heartbeats, and a watermark that does not move
        return {e.pipeline.name: e for e in gather(engine.bootstrap, SECONDS, None, (), lambda message: None)}


@contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Work that goes on in a thread until the block ends."""
    stopping = threading.Event()
    thread = threading.Thread(target=work, args=(stopping,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _three_members(bootstrap: str, topic: str, stopping: threading.Event) -> None:
    """Three members of a group for two partitions."""
    members = [Consumer(consumer_config(bootstrap, f"{topic}-readers")) for _ in range(3)]
    for member in members:
        member.subscribe([topic])
    while not stopping.is_set():
        for member in members:
            member.poll(0.05)
    for member in members:
        member.close()


def _restless(bootstrap: str, topic: str, stopping: threading.Event) -> None:
    """A member that stays, and others that come and go: the group shares out its partitions again and again."""
    stays = Consumer(consumer_config(bootstrap, f"{topic}-readers"))
    stays.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    stays.subscribe([topic])
    while not stopping.is_set():
        for _ in range(5):
            stays.poll(0.1)
        comes = Consumer(consumer_config(bootstrap, f"{topic}-readers"))
        comes.subscribe([topic])
        for _ in range(25):
            comes.poll(0.1)  # meanwhile the first one does not answer
        comes.close()
    stays.close()


def test_a_healthy_pipeline_has_nothing(ward: Ward) -> None:
    assert [f.to_dict() for f in ward.findings["healthy"]] == []


@pytest.mark.parametrize(
    ("label", "name", "evidence", "cause", "others"),
    [
        ("stopped", "not-running", "50 events wait", "it was stopped", set()),
        ("skewed", "lag-skew", "the key `hot-customer`", "spread unevenly", set()),
        ("single", "lag-few-partitions", "1 partition(s)", "read by one task", set()),
        ("slow", "lag-slow", "lag went from", "less per second than comes in", set()),
        # A result that is written again is behind later ones too.
        ("repeated", "duplicates", "2 times", "two runs with checkpoints of their own", {"out-of-order"}),
        ("disordered", "out-of-order", "1 of 4 results", "by a second writer", set()),
        ("changed", "schema-change", "amount", "renamed a field, changed its type", {"rebalances"}),
        ("stalled", "stalled-watermark", "has been 20", "partition 0 of", {"idle-consumers"}),
        ("stalled", "idle-consumers", "of the 3 members", "members beyond the number", {"stalled-watermark"}),
        ("changed", "rebalances", "was rebalancing", "members come and go", {"schema-change"}),
    ],
)
def test_each_trouble_is_found_with_its_cause(
    ward: Ward, label: str, name: str, evidence: str, cause: str, others: set[str]
) -> None:
    found = [f for f in ward.findings[label] if f.name == name]
    assert len(found) == 1, [f.to_dict() for f in ward.findings[label]]
    assert evidence in found[0].evidence
    assert cause in found[0].cause
    assert found[0].fix
    assert found[0].command.startswith("headrace ")
    assert ward.names(label) - {name} <= others


def test_a_heap_that_is_full(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    patient = Patient(engine.bootstrap, topic, "full")
    patient.send(10)
    gateway: Any = engine.spark.sparkContext._gateway
    runtime = gateway.jvm.java.lang.Runtime.getRuntime()
    held: list[Any] = []
    with engine.live(patient.pipeline(), Mode.MICROBATCH, tmp_path) as told:
        told.until(lambda t: len(t.batches) > 0, "the first batch")
        gateway.jvm.java.lang.System.gc()
        while runtime.totalMemory() - runtime.freeMemory() < 0.88 * runtime.maxMemory():
            held.append(gateway.new_array(gateway.jvm.byte, 50_000_000))

        def examined() -> bool:
            (evidence,) = gather(engine.bootstrap, 1, patient.name, (), lambda message: None)
            found.extend(diagnose(evidence))
            return bool(found)

        found: list[Finding] = []
        try:
            wait_for(examined, "the heap of the last heartbeats to be the full one")
        finally:
            for array in held:
                gateway.detach(array)
            gateway.jvm.java.lang.System.gc()
    assert [finding.name for finding in found] == ["driver-memory"]
    assert "of the driver's heap is in use" in found[0].evidence


def test_a_broker_whose_heap_is_too_small_for_it(engine: Engine, tmp_path: Path) -> None:
    from headrace.log.topics import Topics

    with EmbeddedBroker(tmp_path / "broker", heap="56m") as small:
        topics = Topics(small.bootstrap, timeout=30)

        def create(name: str, partitions: int) -> str:
            topics.create(name, partitions)
            return name

        patient = Patient(small.bootstrap, create, "cramped")
        patient.send(20)
        Engine(engine.spark, small.bootstrap).replay(patient.pipeline(), tmp_path / "checkpoint")
        (evidence,) = gather(small.bootstrap, 1, patient.name, (), lambda message: None)
        assert [finding.name for finding in diagnose(evidence)] == ["broker-memory"]


def test_small_files_and_what_the_command_prints(engine: Engine, topic: Topic, ward: Ward, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    patient = Patient(engine.bootstrap, topic, "many", partitions=30)
    pipeline = hr.Pipeline(patient.name)
    pipeline.read(patient.source, schema=SCHEMA).write(hr.sinks.files(str(folder)))
    for _ in range(2):
        for number in range(30):
            patient.send(1, partition=number)
        engine.replay(pipeline, tmp_path / "checkpoint")
    name = ward.evidence["stopped"].pipeline.name
    words = ("doctor", name, "--seconds", "1", "--files", str(folder), "--bootstrap", engine.bootstrap)
    done = headrace(tmp_path / "json", *words, "--output", "json")
    assert done.process.returncode == 3, done.err
    assert [json.loads(line)["name"] for line in done.out.splitlines()] == ["not-running", "small-files"]
    done = headrace(tmp_path / "text", *words)
    for word in ("evidence", "cause", "fix", "command", "60 files of about"):
        assert word in done.out
    done = headrace(tmp_path / "none", "doctor", "nobody", "--seconds", "1", "--bootstrap", engine.bootstrap)
    assert done.process.returncode == 1
    assert "PipelineNotFoundError" in done.err
