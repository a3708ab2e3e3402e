"""What runs have told the log about themselves: which pipelines there are, what they read, how far they have come."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.engine.publishing import HEARTBEAT_SECONDS, TOPIC
from headrace.errors import PipelineNotFoundError, closest
from headrace.log.consumer import consumer_config
from headrace.ops.cluster import Offsets

SILENT_SECONDS = 4 * HEARTBEAT_SECONDS
"""A run that says nothing for so long is lost: it was killed, or its machine is gone."""
MOST_PIPELINES = 200
_MOST_EVENTS = 200
_WINDOW_SECONDS = 60.0
SIDES = ("late", "duplicates", "quarantined", "dead_letters")


@dataclass
class Query:
    """One query of a pipeline, as it was announced, and what its last batch told."""

    name: str
    source: str
    outputs: tuple[tuple[str, str], ...]
    """Topic and route of each stream that comes out."""
    key: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    mode: str = ""
    positions: dict[int, int] = field(default_factory=dict)
    """By partition, the offset of the record that it reads next."""
    last: dict[str, Any] = field(default_factory=dict)
    counted: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)
    """Rows in and to the side outputs, of each batch of late."""
    marks: deque[tuple[float, str, int]] = field(default_factory=lambda: deque(maxlen=30))
    """When a batch ended, its watermark, and its rows."""

    def topics(self, *routes: str) -> list[str]:
        """The output topics of these routes."""
        return [topic for topic, route in self.outputs if route in routes]

    def read_up_to(self, partition: int, offset: int) -> None:
        """A record that was made from that offset has come out."""
        if offset >= self.positions.get(partition, 0):
            self.positions[partition] = offset + 1


@dataclass
class Pipeline:
    """A pipeline that has run here, and its latest run."""

    name: str
    run: str = ""
    mode: str = ""
    status: str = "unknown"
    """starting, running, stopped, failed or lost."""
    pid: int | None = None
    host: str = ""
    checkpoint: str = ""
    started_at: str = ""
    heard: float = 0.0
    graph: list[dict[str, Any]] = field(default_factory=list)
    queries: dict[str, Query] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    heap: tuple[int, int] | None = None
    events: deque[dict[str, str]] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))

    @property
    def alive(self) -> bool:
        """Whether a run of it is there."""
        return self.status in ("starting", "running")

    @property
    def sources(self) -> list[str]:
        """The topics that it reads."""
        return list(dict.fromkeys(q.source for q in self.queries.values()))

    @property
    def outputs(self) -> dict[str, str]:
        """The topics that it writes, with their routes."""
        return {topic: route for q in self.queries.values() for topic, route in q.outputs}


class Runs:
    """All pipelines, from the records of `headrace.progress`. Records of any shape do no harm."""

    def __init__(self) -> None:
        self.pipelines: dict[str, Pipeline] = {}

    def take(self, value: bytes | None, at: float) -> None:
        """One record, and when the log got it (seconds). What can't be read, or not as ours, is left out."""
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._take(json.loads(value or b""), at)

    def _take(self, record: dict[str, Any], at: float) -> None:
        name, run, event = str(record["pipeline"]), str(record["run"]), str(record["event"])
        if name not in self.pipelines and len(self.pipelines) >= MOST_PIPELINES:
            ended = [p for p in self.pipelines.values() if not p.alive]
            if not ended:
                return
            # The one that nobody has heard of for the longest time makes room.
            del self.pipelines[min(ended, key=lambda p: p.heard).name]
        pipeline = self.pipelines.setdefault(name, Pipeline(name))
        if event == "announced":
            self._announce(pipeline, record, run, at)
        if run != pipeline.run:
            return  # an older run that is still ending
        pipeline.heard = max(pipeline.heard, at)
        match event:
            case "progress":
                _take_progress(pipeline, record, at)
            case "alive":
                if isinstance(record.get("heap_max"), int) and record["heap_max"] > 0:
                    pipeline.heap = (int(record.get("heap_used") or 0), record["heap_max"])
            case "announced" if not record.get("again"):
                _note(pipeline, record, "starting")
            case "started" | "switching" | "failed" | "stopped" | "ended":
                _take_event(pipeline, record, event)
        if event in ("progress", "alive") and pipeline.status == "lost":
            pipeline.status = "running"  # it was only slow

    def find_lost(self, now: float, seeing_since: float = 0.0) -> None:
        """Notice runs that have fallen silent; not while it was the watcher who could not hear."""
        for pipeline in self.pipelines.values():
            if pipeline.alive and now - max(pipeline.heard, seeing_since) > SILENT_SECONDS:
                pipeline.status = "lost"
                at = datetime.fromtimestamp(pipeline.heard, UTC).isoformat(timespec="milliseconds")
                silent = "the run ended without a word: killed, or its machine is gone"
                _note(pipeline, {"at": at, "message": silent}, "lost")

    def _announce(self, pipeline: Pipeline, record: dict[str, Any], run: str, at: float) -> None:
        before = pipeline.queries
        if run != pipeline.run:
            pipeline.run, pipeline.status, pipeline.heap = run, "starting", None
            pipeline.started_at = str(record.get("at") or "")
        pipeline.heard = max(pipeline.heard, at)
        pipeline.mode = str(record.get("mode") or "")
        pipeline.pid = record["pid"] if isinstance(record.get("pid"), int) else None
        pipeline.host, pipeline.checkpoint = str(record.get("host") or ""), str(record.get("checkpoint") or "")
        pipeline.graph = [n for n in record.get("graph") or [] if isinstance(n, dict)]
        pipeline.alarms = tuple(str(a) for a in record.get("alarms") or [])
        pipeline.queries = {}
        for query in record.get("queries") or []:
            made = Query(
                str(query.get("name")),
                str(query.get("source")),
                tuple((str(o.get("topic")), str(o.get("route"))) for o in query.get("outputs") or []),
                tuple(map(str, query.get("key") or ())),
                tuple(map(str, query.get("steps") or ())),
            )
            known = before.get(made.name)
            if known is not None and known.source == made.source:
                # Where it stood is the best that is known until it has told of a batch.
                made.positions, made.last, made.mode = known.positions, known.last, known.mode
                made.counted, made.marks = known.counted, known.marks
            pipeline.queries[made.name] = made


def _take_event(pipeline: Pipeline, record: dict[str, Any], event: str) -> None:
    query = pipeline.queries.get(str(record.get("query")))
    if query is not None and event in ("started", "switching"):
        query.mode = str(record.get("mode") or query.mode)
    if event == "started":
        pipeline.status = "running"
    elif event == "failed":
        pipeline.status = "failed"
    elif event == "ended" and pipeline.status != "failed":
        pipeline.status = "stopped"
    _note(pipeline, record, event)


def _note(pipeline: Pipeline, record: dict[str, Any], event: str) -> None:
    pipeline.events.append(
        {
            "at": str(record.get("at") or ""),
            "event": event,
            "query": str(record.get("query") or ""),
            "mode": str(record.get("mode") or ""),
            "message": str(record.get("message") or "")[:500],
            "run": pipeline.run,
        }
    )


def _take_progress(pipeline: Pipeline, record: dict[str, Any], at: float) -> None:
    query = pipeline.queries.get(str(record.get("query")))
    if query is None:
        return
    query.mode = str(record.get("mode") or query.mode)
    positions = (record.get("positions") or {}).get(query.source)
    if isinstance(positions, dict):
        query.positions = {int(number): int(offset) for number, offset in positions.items()}
    query.last = {key: value for key, value in record.items() if key != "positions"}
    query.marks.append((at, str(record.get("watermark") or ""), int(record.get("input_rows") or 0)))
    query.counted.append((at, {key: int(record.get(key) or 0) for key in ("input_rows", *SIDES)}))
    while query.counted and query.counted[0][0] < at - _WINDOW_SECONDS:
        query.counted.popleft()


class Feed:
    """Reads `headrace.progress` from its beginning, and then as it grows."""

    def __init__(self, bootstrap: str, runs: Runs) -> None:
        self._runs = runs
        self._consumer = Consumer(consumer_config(bootstrap, "headrace-watch"))
        self._assigned = False
        self._next = 0

    def read(self, ends: Offsets) -> None:
        """Takes in what is new; the first time that is all there is."""
        end = ends.get(TOPIC, {}).get(0)
        if end is None:
            return
        if not self._assigned:
            self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
            self._assigned = True
        quiet = 0
        while self._next < end and quiet < 20:
            try:
                messages = self._consumer.consume(1000, timeout=0.1)
            except KafkaException:
                return
            quiet = 0 if messages else quiet + 1
            for message in messages:
                offset = message.offset()
                if message.error() is None and offset is not None:
                    self._next = offset + 1
                    self._runs.take(message.value(), message.timestamp()[1] / 1000)

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()


def unknown_pipeline(name: str, known: list[str]) -> PipelineNotFoundError:
    """A name that no run has announced."""
    nearest = closest(name, known)
    return PipelineNotFoundError(
        f"no pipeline `{name}` has run here.",
        why=f"Those that have: {', '.join(sorted(known)) or 'none yet'}.",
        fix=f"did you mean `{nearest}`?" if nearest else "start it: headrace run MODULE:PIPELINE",
    )
