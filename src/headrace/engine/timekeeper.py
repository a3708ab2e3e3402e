"""The timekeeper of a query: writes the clock and the claims of its watermark strategy to the query's control topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headrace.engine.checkpoint import Checkpoint
from headrace.engine.claims import Claims
from headrace.engine.control import Control, claim, control_topic, needs_claims, needs_clock, needs_control
from headrace.engine.outputs import TIMES
from headrace.engine.plan import QueryPlan
from headrace.log.producer import producer_config
from headrace.log.topics import Topics

_CONTROL_TOPIC = {
    # A run that was away for longer than the cluster keeps records finds those that it has not read yet: they are the
    # last. What it has read is dropped by size.
    "retention.ms": "-1",
    "retention.bytes": str(64 * 1024 * 1024),
}
_INTERVAL_SECONDS = 0.5
"""How often the clock ticks: what waits for processing time is late by that much at most, and a batch."""


class Timekeeper:
    """Runs beside a query from `start` to `close`. What it writes is input: the query sees it in a later batch."""

    def __init__(
        self,
        query: QueryPlan,
        bootstrap: str,
        topic: str,
        slots: int,
        partitions: Mapping[int, int],
        read: Mapping[str, Mapping[str, int]],
    ) -> None:
        assert query.event_time is not None
        self._query = query
        self._bootstrap = bootstrap
        self._topic = topic
        self._slots = slots
        self._partitions = partitions
        self._claims = Claims(query.event_time, partitions, _now_ms()) if needs_claims(query) else None
        self._ticks = needs_clock(query)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._producer: Any = None
        self._written = 0
        self._read = dict(read.get(query.read.topic, {}))
        self._control_read = sum(read.get(topic, {}).values())
        self._watermark: int | None = None
        self._live = False
        self._thread: threading.Thread | None = None

    def start(self, *, live: bool) -> None:
        """Begin. The clock ticks only while the query is `live`: in a replay, processing time is that of the log."""
        from confluent_kafka import Producer

        self._producer = Producer(producer_config(self._bootstrap))
        self._written = sum(Topics(self._bootstrap).end_offsets(self._topic).values())
        self._live = live
        if live:
            self._thread = threading.Thread(target=self._run, name=f"clock of {self._query.name}", daemon=True)
            self._thread.start()

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Take in a batch of the query (Spark's own JSON), and claim what it allows."""
        offsets = (progress.get("sources") or [{}])[0].get("endOffset") or {}
        observed = (progress.get("observedMetrics") or {}).get(TIMES) or {}
        watermark = (progress.get("eventTime") or {}).get("watermark")
        with self._lock:
            self._read = {p: int(o) for p, o in (offsets.get(self._query.read.topic) or {}).items()}
            self._control_read = sum(int(o) for o in (offsets.get(self._topic) or {}).values())
            if watermark is not None:
                self._watermark = int(datetime.fromisoformat(watermark).timestamp() * 1000)
            if self._claims is None:
                return
            latest = {p: observed[f"p{p}"] for p in self._partitions if observed.get(f"p{p}") is not None}
            low, high = observed.get("least_lag"), observed.get("most_lag")
            spread = None if low is None or high is None else int(high) - int(low)
            self._claims.observe(latest, now_ms=_now_ms(), spread_ms=spread)
            # A live query's partitions never end: one that has been read to where it ended at the start is only silent.
            ended = () if self._live else self._ended()
            self._write(self._claims.next(now_ms=_now_ms(), ended=ended), only_claims=True)

    def finished(self) -> bool:
        """Whether the query has read its input as it was at the start, and has acted on all claims about it."""
        with self._lock:
            if len(self._ended()) < len(self._partitions):
                return False
            if self._claims is None:
                return True
            self._write(self._claims.next(now_ms=_now_ms(), ended=self._ended(), over=True), only_claims=True)
            if self._control_read < self._written:
                return False
            last = self._claims.last
            return last is None or (self._watermark is not None and self._watermark >= last)

    def close(self) -> None:
        """Stop the clock."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._producer is not None:
            self._producer.flush(5)
            self._producer = None

    def _ended(self) -> set[int]:
        return {p for p, end in self._partitions.items() if self._read.get(str(p), 0) >= end}

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL_SECONDS):
            with self._lock:
                claimed = None if self._claims is None else self._claims.next(now_ms=_now_ms())
                self._write(claimed, only_claims=not self._ticks)

    def _write(self, claimed: int | None, *, only_claims: bool) -> None:
        if self._producer is None or (claimed is None and only_claims):
            return
        for slot in range(self._slots):
            self._producer.produce(self._topic, partition=slot, value=claim(claimed), timestamp=_now_ms())
            self._written += 1
        self._producer.poll(0)


def _now_ms() -> int:
    return int(time.time() * 1000)


class Timekeepers:
    """Those of a run, by the names of the queries that need one."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._keepers: dict[str, Timekeeper] = {}

    def begin(self, plan: QueryPlan, checkpoint: Checkpoint, *, live: bool) -> Control | None:
        """Start the query's timekeeper, if it needs one."""
        if not needs_control(plan):
            return None
        topics = Topics(self._bootstrap)
        topic = control_topic(plan, checkpoint.id)
        topics.ensure(topic, partitions=checkpoint.state_partitions, config=_CONTROL_TOPIC)
        ends = topics.end_offsets(plan.read.topic)
        read = checkpoint.read_offsets(plan)
        keeper = Timekeeper(plan, self._bootstrap, topic, checkpoint.state_partitions, ends, read)
        keeper.start(live=live)
        self._keepers[plan.name] = keeper
        return Control(topic, claims=needs_claims(plan), partitions=tuple(ends))

    def on_progress(self, progress: dict[str, Any]) -> None:
        """Take in a batch (Spark's own JSON)."""
        keeper = self._keepers.get(progress.get("name") or "")
        if keeper is not None:
            keeper.on_progress(progress)

    def finished(self, query: str) -> bool:
        """Whether all that was to be claimed for the query is claimed and read."""
        keeper = self._keepers.get(query)
        return keeper is not None and keeper.finished()

    def end(self, query: str) -> None:
        """The query has ended."""
        keeper = self._keepers.pop(query, None)
        if keeper is not None:
            keeper.close()

    def close(self) -> None:
        """All have."""
        for query in list(self._keepers):
            self.end(query)
