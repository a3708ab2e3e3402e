"""The doctor on a real broker: each trouble is caused, and found with its cause; a healthy pipeline has none.

The pipelines are played: they are announced, read and write as a run does, without Spark, so that each does just what
its test needs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import headrace as hr
from headrace.engine.plan import plan_queries
from headrace.engine.progress import Progress
from headrace.engine.publishing import Publisher
from headrace.log.broker import EmbeddedBroker
from headrace.log.producer import producer_config
from headrace.log.topics import Topics
from headrace.ops.doctor.broker_heap import broker_heaps
from headrace.ops.doctor.evidence import Evidence, gather
from headrace.ops.doctor.rules import Finding, diagnose
from tests.system.consumer_groups import restless, three_members
from tests.system.processes import headrace
from tests.system.running import fresh

SECONDS = 6.0
WATERMARK = "2026-11-16T10:00:00.000Z"


class Played:
    """A pipeline that is announced to the broker, and whose reading and writing a test decides."""

    def __init__(self, bootstrap: str, label: str, *, partitions: int = 2, heap: tuple[int, int] | None = None) -> None:
        self.name = fresh(label)
        self.source, self.out = f"{self.name}.in", f"{self.name}.out"
        self.dead = f"{self.name}.dead-letters"
        topics = Topics(bootstrap, timeout=30)
        topics.create(self.source, partitions)
        pipeline = hr.Pipeline(self.name)
        counts = (
            pipeline.read(self.source, schema="user STRING NOT NULL, at TIMESTAMP NOT NULL")
            .event_time("at")
            .key_by("user")
            .rolling("counts", n=hr.last("1m").count())
        )
        counts.write(self.out)
        plans = plan_queries(pipeline)
        self.query = plans[0].name
        for topic in plans[0].output_topics:
            topics.create(topic, 1)
        self._topics = topics
        self._producer = Producer(producer_config(bootstrap, **{"linger.ms": 5}))
        self.publisher = Publisher(
            bootstrap, pipeline, plans, mode="microbatch", checkpoint=Path("cp"), heap=lambda: heap
        )
        self.publisher.start()
        self._batch = 0

    def send(self, count: int, *, partition: int | None = None, key: str = "k") -> None:
        for number in range(count):
            place = {} if partition is None else {"partition": partition}
            self._producer.produce(self.source, b"{}", f"{key}{number if key == 'k' else ''}".encode(), **place)  # type: ignore[arg-type]
        self._producer.flush()

    def write(self, topic: str, key: str, source: tuple[int, int], reason: str = "") -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            ("headrace-id", f"{self.source}/{source[0]}/{source[1]}/counts".encode()),
            ("headrace-source-timestamp", b"1700000000000"),
        ]
        if reason:
            headers.append(("headrace-reason", reason.encode()))
        self._producer.produce(topic, b"{}", key.encode(), headers=headers)
        self._producer.flush()

    def batch(self, *, read: dict[int, int] | None = None, **fields: Any) -> None:
        """Tells of a batch that has read to those offsets; to the end if none are given."""
        self._batch += 1
        upto = self._topics.end_offsets(self.source) if read is None else read
        told: dict[str, Any] = dict.fromkeys(("late", "duplicates", "quarantined", "dead_letters"), 0)
        told |= {"input_rows": 0, "state_rows": 10, "state_bytes": 1000, "batch_ms": 100, "commit_ms": 10}
        self.publisher.take(
            Progress(
                at="2026-11-16T10:00:00.000Z",
                query=self.query,
                mode="microbatch",
                batch=self._batch,
                rows_per_second=1.0,
                lag=0,
                watermark=fields.pop("watermark", None),
                positions={self.source: {str(p): o for p, o in upto.items()}},
                **{**told, **fields},
            )
        )


@dataclass
class Ward:
    """All that was found, by the label of the pipeline."""

    findings: dict[str, list[Finding]]
    evidence: dict[str, Evidence]

    def only(self, label: str) -> Finding:
        found = self.findings[label]
        assert len(found) == 1, [f.to_dict() for f in found]
        return found[0]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    for number in range(60):
        (folder / f"part-{number}.parquet").write_bytes(b"x" * 1000)
    return folder


@pytest.fixture(scope="module")
def ward(broker: EmbeddedBroker) -> Iterator[Ward]:
    """Every trouble at once, and one examination of them all."""
    played: dict[str, Played] = {}
    stopping = threading.Event()

    def play(label: str, **options: Any) -> Played:
        played[label] = Played(broker.bootstrap, label, **options)
        return played[label]

    healthy = play("healthy")
    healthy.send(200)
    for offset in range(50):
        healthy.write(healthy.out, f"k{offset % 5}", (0, offset))
    stopped = play("stopped")
    stopped.batch(read={0: 0, 1: 0})
    stopped.send(50)
    stopped.publisher.close()
    skewed, single, slow = play("skewed"), play("single", partitions=1), play("slow", partitions=4)
    skewed.send(2000, partition=0, key="hot-customer")
    single.send(2000)
    slow.send(4000)
    for each, count in ((skewed, 2), (single, 1), (slow, 4)):
        each.batch(read=dict.fromkeys(range(count), 0))
    repeated, disordered = play("repeated"), play("disordered")
    for offset in (1, 2, 3, 2):
        repeated.write(repeated.out, f"k{offset}", (0, offset))
    for offset in (1, 3, 2, 4):
        disordered.write(disordered.out, "k", (0, offset))
    heavy, changed, stalled = play("heavy"), play("changed"), play("stalled")
    heavy.batch(commit_ms=6000, batch_ms=9000, state_rows=1_000_000)
    for offset in range(5):
        changed.write(changed.dead, "k", (0, offset), "field `amount`: text where a number should be")
    full = play("full", heap=(95, 100))
    idle, moving = play("idle"), play("moving")

    def go_on() -> None:
        """What goes on while the doctor looks, twice a second."""
        rows = 1_000_000
        while not stopping.wait(0.5):
            for each in (healthy, repeated, disordered, full, idle, moving):
                each.send(20)
                each.batch(input_rows=20)
            skewed.send(150, partition=0, key="hot-customer")
            skewed.send(5, partition=1)
            single.send(150)
            slow.send(150)
            rows += 10_000
            heavy.batch(commit_ms=6000, batch_ms=9000, state_rows=rows)
            changed.send(10)
            changed.batch(input_rows=10, dead_letters=5)
            stalled.send(10, partition=1)
            stalled.batch(input_rows=10, watermark=WATERMARK)

    with ExitStack() as running:
        threading.Thread(target=three_members, args=(broker.bootstrap, idle.source, stopping), daemon=True).start()
        threading.Thread(target=restless, args=(broker.bootstrap, moving.source, stopping), daemon=True).start()
        traffic = threading.Thread(target=go_on)
        traffic.start()
        running.callback(traffic.join)
        running.callback(stopping.set)
        stopping.wait(6)  # two heartbeats, and watermarks that do not move
        examined = gather(broker.bootstrap, SECONDS, [p.name for p in played.values()], (), lambda message: None)
        by_name = {e.pipeline.name: e for e in examined}
        evidence = {label: by_name[p.name] for label, p in played.items()}
        yield Ward({label: diagnose(e) for label, e in evidence.items()}, evidence)
    for each in played.values():
        each.publisher.close()


def test_a_healthy_pipeline_has_nothing(ward: Ward) -> None:
    assert [f.to_dict() for f in ward.findings["healthy"]] == []


@pytest.mark.parametrize(
    ("label", "name", "evidence", "cause"),
    [
        ("stopped", "not-running", "50 events wait", "it was stopped"),
        ("skewed", "lag-skew", "the key `hot-customer`", "spread unevenly"),
        ("single", "lag-few-partitions", "1 partition(s)", "read by one task"),
        ("slow", "lag-slow", "lag went from", "less per second than comes in"),
        ("repeated", "duplicates", "/0/2/counts` 2 times", "two runs with checkpoints of their own"),
        ("disordered", "out-of-order", "1 of 4 results", "written again after later results"),
        ("heavy", "slow-checkpoints", "6.0 s of a batch of 9.0 s", "the state grows"),
        ("changed", "schema-change", "text where a number should be", "renamed a field, changed its type"),
        ("stalled", "stalled-watermark", WATERMARK, "partition 0 of"),
        ("full", "driver-memory", "95%", "too large for the heap"),
        ("idle", "idle-consumers", "of the 3 members", "members beyond the number of partitions get nothing"),
    ],
)
def test_each_trouble_is_found_with_its_cause(ward: Ward, label: str, name: str, evidence: str, cause: str) -> None:
    found = [f for f in ward.findings[label] if f.name == name]
    assert len(found) == 1, [f.to_dict() for f in ward.findings[label]]
    assert evidence in found[0].evidence
    assert cause in found[0].cause
    assert found[0].fix
    assert found[0].command.startswith("headrace ")
    others = {f.name for f in ward.findings[label]} - {name}
    # A key that is written again is behind its later ones too.
    assert others <= ({"out-of-order"} if label == "repeated" else set())


def test_a_group_that_rebalances_all_the_time(ward: Ward) -> None:
    assert "rebalances" in [f.name for f in ward.findings["moving"]]


def test_a_broker_whose_heap_is_too_small_for_it(broker: EmbeddedBroker, ward: Ward) -> None:
    """The heap is that of the real broker; that it is full is said to the rule, since a full one may not even start."""
    (heap,) = broker_heaps(broker.bootstrap)
    assert 0 < heap.live < heap.most == 512 << 20
    full = replace(heap, live=int(0.9 * heap.most))
    found = diagnose(replace(ward.evidence["healthy"], broker_heaps=[full]))
    assert [finding.name for finding in found] == ["broker-memory"]
    assert broker.bootstrap in found[0].evidence


def test_the_command_prints_them_and_says_so_in_its_exit_code(
    broker: EmbeddedBroker, ward: Ward, files: Path, tmp_path: Path
) -> None:
    name = ward.evidence["stopped"].pipeline.name
    words = ("doctor", name, "--seconds", "1", "--files", str(files), "--bootstrap", broker.bootstrap)
    done = headrace(tmp_path / "json", *words, "--output", "json")
    assert done.process.returncode == 3, done.err
    assert [json.loads(line)["name"] for line in done.out.splitlines()] == ["not-running", "small-files"]
    done = headrace(tmp_path / "text", *words)
    for word in ("evidence", "cause", "fix", "command", "60 files of about 1.0 kB"):
        assert word in done.out
    done = headrace(tmp_path / "none", "doctor", "nobody", "--seconds", "1", "--bootstrap", broker.bootstrap)
    assert done.process.returncode == 1
    assert "PipelineNotFoundError" in done.err
