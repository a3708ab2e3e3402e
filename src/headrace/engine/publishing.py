"""A run tells the log about itself, so that a dashboard in any process finds it: the topic `headrace.progress`.

Publishing never disturbs a run: it happens on a thread of its own, at most one record per query and second, and a log
that does not take a record loses it. The topic keeps what fits its bounds (docs/adr/010).
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from headrace.engine.plan import QueryPlan
from headrace.engine.progress import Listener, Progress, Record
from headrace.errors import HeadraceError
from headrace.log.producer import producer_config
from headrace.log.topics import Topics
from headrace.pipeline import Pipeline
from headrace.pipeline.draw import describe

TOPIC = "headrace.progress"
TOPIC_CONFIG = {
    # By size, not by age: a pipeline that stopped a week ago still has its history here.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": str(64 * 1024 * 1024),
    "segment.bytes": str(8 * 1024 * 1024),
    "message.timestamp.type": "LogAppendTime",
}
BROKERS_CHOICE = -1
"""As many replicas as the cluster gives by default."""
HEARTBEAT_SECONDS = 5.0
ANNOUNCE_SECONDS = 600.0
"""The plan is told again this often: what retention removes comes back."""
_TICK_SECONDS = 1.0
_LARGEST = 256 * 1024
_HEAP_SAMPLES = 12

Heap = Callable[[], tuple[int, int] | None]


class Publisher:
    """Writes what one run tells to the log."""

    def __init__(
        self,
        bootstrap: str,
        pipeline: Pipeline,
        plans: Iterable[QueryPlan],
        *,
        mode: str,
        checkpoint: Path,
        heap: Heap = lambda: None,
    ) -> None:
        self.run = uuid.uuid4().hex[:12]
        self._bootstrap = bootstrap
        self._pipeline = pipeline.name
        self._announcement = _announcement(pipeline, plans, mode, checkpoint)
        self._heap = heap
        self._heaps: deque[int] = deque(maxlen=_HEAP_SAMPLES)
        self._pending: dict[str, Progress] = {}
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._work, name="headrace-publisher", daemon=True)

    def start(self) -> None:
        """Make sure of the topic, announce the run, begin to publish. Raises what Kafka says against it."""
        Topics(self._bootstrap, timeout=15).create(
            TOPIC, partitions=1, replication=BROKERS_CHOICE, config=TOPIC_CONFIG, exist_ok=True
        )
        self._producer = Producer(
            producer_config(
                self._bootstrap, **{"queue.buffering.max.messages": 1000, "message.timeout.ms": 30_000, "linger.ms": 50}
            )
        )
        self._send("announced", self._announcement)
        self._thread.start()

    def beside(self, listener: Listener) -> Listener:
        """A listener that tells both."""

        def tell(record: Record) -> None:
            listener(record)
            self.take(record)

        return tell

    def take(self, record: Record) -> None:
        """One record of the run. Batches that end within a second are told as one."""
        if isinstance(record, Progress):
            with self._lock:
                before = self._pending.get(record.query)
                self._pending[record.query] = record if before is None else _together(before, record)
                due = time.monotonic() - self._told.get(record.query, 0.0) >= _TICK_SECONDS
            if due:
                self._flush_pending()
            return
        self._flush_pending()
        self._send(record.event, {k: v for k, v in asdict(record).items() if k != "event"})

    def close(self) -> None:
        """Tell the rest and let go; waits a few seconds at most."""
        if self._producer is None or self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join(5)
        self._flush_pending()
        self._send("ended", {})
        self._producer.flush(3)

    def _work(self) -> None:
        ticks = 0
        while not self._stopping.wait(_TICK_SECONDS):
            self._flush_pending()
            ticks += 1
            if ticks % int(HEARTBEAT_SECONDS) == 0:
                self._send("alive", self._memory())
            if ticks % int(ANNOUNCE_SECONDS) == 0:
                self._send("announced", {**self._announcement, "again": True})

    def _memory(self) -> dict[str, int]:
        """The least heap in use of late: what is above it is garbage that nobody has collected yet."""
        heap = self._heap()
        if heap is None:
            return {}
        used, most = heap
        self._heaps.append(used)
        return {"heap_used": min(self._heaps), "heap_max": most}

    def _flush_pending(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
            self._told.update(dict.fromkeys(pending, time.monotonic()))
        for record in pending.values():
            self._send("progress", {k: v for k, v in asdict(record).items() if k != "event"})

    def _send(self, event: str, fields: dict[str, Any]) -> None:
        if self._producer is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = {"event": event, "pipeline": self._pipeline, "run": self.run, "at": now, **fields}
        value = json.dumps(record, separators=(",", ":"), default=str).encode()
        if len(value) > _LARGEST:
            # A message of a thousand lines or a plan of a thousand nodes: told without what makes it long.
            short = {k: v for k, v in record.items() if k not in ("graph", "positions", "message")}
            value = json.dumps(short, separators=(",", ":"), default=str).encode()
        try:
            self._producer.produce(TOPIC, value, self._pipeline.encode())
            self._producer.poll(0)
        except (BufferError, KafkaException):
            return  # the log takes nothing now, or not this; a run does not wait for its watchers


def open_publisher(publisher: Publisher, report: Callable[[str], None]) -> Publisher | None:
    """The publisher, started; None where the log refuses it, which is told and does no harm to the run."""
    try:
        publisher.start()
    except HeadraceError as problem:
        report(f"not on the dashboard: {problem.what}")
        return None
    return publisher


def _together(before: Progress, now: Progress) -> Progress:
    return replace(
        now,
        input_rows=before.input_rows + now.input_rows,
        late=before.late + now.late,
        duplicates=before.duplicates + now.duplicates,
        quarantined=before.quarantined + now.quarantined,
        dead_letters=before.dead_letters + now.dead_letters,
        batch_ms=max(before.batch_ms, now.batch_ms),
        commit_ms=max(before.commit_ms, now.commit_ms),
    )


def _announcement(pipeline: Pipeline, plans: Iterable[QueryPlan], mode: str, checkpoint: Path) -> dict[str, Any]:
    return {
        "mode": mode,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "checkpoint": str(checkpoint.resolve()),
        "graph": describe(pipeline)["nodes"],
        "alarms": [alarm.text for alarm in pipeline.alarms],
        "queries": [
            {
                "name": plan.name,
                "source": plan.read.topic,
                "key": list(plan.key),
                "steps": [step.name for step in plan.stateful],
                "outputs": [{"topic": b.topic, "route": b.route.name.lower()} for b in plan.branches],
            }
            for plan in plans
        ],
    }
