"""Watches every pipeline of a cluster: reads what runs tell, asks Kafka, looks at samples, and keeps the history."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from headrace.engine.publishing import TOPIC
from headrace.errors import HeadraceError
from headrace.metrics import METRICS
from headrace.ops.alarming import Alarms
from headrace.ops.cluster import Cluster, Offsets
from headrace.ops.flows import TopicFlow
from headrace.ops.history import Series
from headrace.ops.measuring import Measured, PartitionLag, Place, Values, lags, measure
from headrace.ops.runs import Feed, Pipeline, Query, Runs
from headrace.ops.sampling import Peek, Sampled, Sampler, origin
from headrace.ops.snapshot import detail_of, summary_of

INTERVAL_SECONDS = 1.0
_NEWEST_RESULTS = 20
_MOST_PEEKS = 8
"""Records that are read in one look, to know since when they wait: only those that were there before the first look."""
_FADE = 0.98
"""Of hot keys, each second: what was frequent a minute ago counts a third."""


class Source(Protocol):
    """Where the watch gets its facts from: a cluster, or made-up ones."""

    def ends(self, runs: Runs) -> Offsets:
        """Reads what runs have told since, and returns the ends of all their topics."""

    def sample(self, ends: Offsets) -> list[Sampled]:
        """Some of the newest records."""

    def density(self, topic: str) -> float:
        """Records per offset of a topic."""

    def stamps(self, places: list[Place]) -> dict[Place, float]:
        """The timestamps of some records."""

    def close(self) -> None:
        """Let go."""


class KafkaSource:
    """The facts of a real cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._cluster = Cluster(bootstrap)
        self._sampler = Sampler(bootstrap)
        self._peek = Peek(bootstrap)
        self._feed: Feed | None = None
        self._bootstrap = bootstrap

    def ends(self, runs: Runs) -> Offsets:
        """One request for the ends of all topics; what runs tell is one of them."""
        if self._feed is None:
            self._feed = Feed(self._bootstrap, runs)
        before = set(runs.pipelines)
        ends = self._cluster.ends(_topics(runs))
        self._feed.read(ends)
        if set(runs.pipelines) != before:
            ends = self._cluster.ends(_topics(runs))
        return {topic: numbers for topic, numbers in ends.items() if topic != TOPIC}

    def sample(self, ends: Offsets) -> list[Sampled]:
        """Some of the newest records."""
        # A fetch behind the end of what is committed is answered at once with nothing, again and again: following the
        # ends themselves, this took the broker half a core while a large transaction was open.
        return self._sampler.look(self._cluster.committed_ends(ends))

    def density(self, topic: str) -> float:
        """Records per offset of a topic."""
        return self._sampler.density(topic)

    def stamps(self, places: list[Place]) -> dict[Place, float]:
        """The timestamps of some records, read one by one."""
        return self._peek.stamps(places)

    def close(self) -> None:
        """Let go of all connections."""
        self._sampler.close()
        self._peek.close()
        if self._feed is not None:
            self._feed.close()


def _topics(runs: Runs) -> list[str]:
    named = [TOPIC]
    for pipeline in runs.pipelines.values():
        named += [*pipeline.sources, *pipeline.outputs]
    return list(dict.fromkeys(named))


class Watch:
    """Looks once a second. `summary` and `detail` are what the last look found; safe to read from any thread."""

    def __init__(self, source: Source, alarms: Alarms | None = None, *, wall: Callable[[], float] = time.time) -> None:
        self._source = source
        self._wall = wall
        self.alarms = alarms or Alarms()
        self.runs = Runs()
        self.flows: dict[str, TopicFlow] = {}
        self.behind: dict[str, list[PartitionLag]] = {}
        self.values: dict[str, Values] = {}
        self.problem: str | None = None
        self.looks = 0
        self.took_ms = 0.0
        self._seeing_since = 0.0
        self._unseen: list[Place] = []
        self._stamps: dict[Place, float] = {}
        self._measured: dict[str, Measured] = {}
        self._series: dict[tuple[str, str], Series] = {}
        self._results: dict[str, deque[tuple[Sampled, float | None]]] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._listeners: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to look, on a thread of its own."""
        self._thread = threading.Thread(target=self._work, name="headrace-watch", daemon=True)
        self._thread.start()

    def on_look(self, listener: Callable[[], None]) -> None:
        """Called after each look, on the watch's thread."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Stop looking, and let go of the cluster."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(10)
        self.alarms.close()
        self._source.close()

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def look(self) -> None:
        """One look at everything."""
        began = time.perf_counter()
        ends = self._source.ends(self.runs)
        sampled = self._source.sample(ends)
        self._stamps |= self._source.stamps(
            [place for place in self._unseen if place not in self._stamps][:_MOST_PEEKS]
        )
        self._stamps = {place: self._stamps[place] for place in self._unseen if place in self._stamps}
        now = self._wall()
        with self._lock:
            if self.problem is not None:
                self._seeing_since = now
            self.runs.find_lost(now, self._seeing_since)
            for topic, numbers in ends.items():
                self.flows.setdefault(topic, TopicFlow()).note(now, numbers, self._source.density(topic))
            for topic in [t for t in self.flows if t not in ends]:
                del self.flows[topic]
            self._take_samples(sampled, now)
            self._unseen = []
            self._forget()
            for pipeline in self.runs.pipelines.values():
                self._measure(pipeline, now)
            self.problem = None
            self.looks += 1
        self.took_ms = (time.perf_counter() - began) * 1000

    def _work(self) -> None:
        while not self._stopping.is_set():
            due = time.monotonic() + INTERVAL_SECONDS
            try:
                self.look()
            except HeadraceError as problem:
                # The cluster is gone; that is told, and asked again, until it is back.
                self.problem = problem.what
            except Exception as problem:  # noqa: BLE001 - whatever one look meets, the next one comes; the page shows it
                self.problem = f"a look failed: {type(problem).__name__}: {problem}"[:300]
            for listener in self._listeners:
                listener()
            self._stopping.wait(max(0.05, due - time.monotonic()))

    def _take_samples(self, sampled: list[Sampled], now: float) -> None:
        readers: dict[str, list[Measured]] = {}
        writers: dict[str, list[tuple[Measured, Query, bool]]] = {}
        for pipeline in self.runs.pipelines.values():
            measured = self._of(pipeline)
            for topic in pipeline.sources:
                readers.setdefault(topic, []).append(measured)
            for query in pipeline.queries.values():
                for topic, route in query.outputs:
                    writers.setdefault(topic, []).append((measured, query, route == "result"))
        for record in sampled:
            for reader in readers.get(record.topic, ()):
                if record.key is not None:
                    reader.keys.add(record.key[:80].decode("utf-8", "replace"))
            if record.topic in writers:
                self._take_result(writers[record.topic], record, now)
        for measured in self._measured.values():
            measured.latency.forget(now)
            measured.keys.fade(_FADE)

    def _take_result(self, writers: list[tuple[Measured, Query, bool]], record: Sampled, now: float) -> None:
        latency: float | None = None
        for measured, query, is_result in writers:
            came = origin(record.headers, query.source)
            if came.produced_ms is not None and is_result:
                latency = max(0.0, record.timestamp_ms - came.produced_ms)
                # Results that were there before the first look say nothing about now.
                if record.timestamp_ms >= (now - 30) * 1000:
                    measured.latency.add(now, latency)
            if query.mode == "realtime" and came.partition is not None and came.offset is not None:
                query.read_up_to(came.partition, came.offset)
        kept = self._results.get(record.topic)
        if kept is None:
            kept = self._results[record.topic] = deque(maxlen=_NEWEST_RESULTS)
        kept.append((record, latency))  # read only if somebody asks: most are gone by then

    def _measure(self, pipeline: Pipeline, now: float) -> None:
        behind = lags(pipeline, self.flows, now, self._stamps)
        self._unseen += [
            (b.topic, b.partition, b.position)
            for b in behind
            if b.lag
            and b.position is not None
            and self.flows[b.topic].partitions[b.partition].reached(b.position) is None
        ]
        values = measure(pipeline, self.flows, behind, self._of(pipeline), now)
        self.behind[pipeline.name], self.values[pipeline.name] = behind, values
        for name in METRICS:
            self.series(pipeline.name, name).add(now, values[name])
        for lag in behind:
            self.flows[lag.topic].partitions[lag.partition].lag.add(now, lag.lag)
        self.alarms.evaluate(pipeline, values, now)

    def _forget(self) -> None:
        """What is kept of pipelines and topics that are no longer there goes."""
        pipelines = self.runs.pipelines
        for name in [name for name in self.values if name not in pipelines]:
            del self.values[name], self.behind[name]
            self._measured.pop(name, None)
        for key in [key for key in self._series if key[0] not in pipelines]:
            del self._series[key]
        for topic in [topic for topic in self._results if topic not in self.flows]:
            del self._results[topic]

    def _of(self, pipeline: Pipeline) -> Measured:
        return self._measured.setdefault(pipeline.name, Measured())

    def series(self, pipeline: str, metric: str) -> Series:
        """The history of a number."""
        found = self._series.get((pipeline, metric))
        if found is None:
            found = self._series[pipeline, metric] = Series()
        return found

    # What is told to others

    def summary(self) -> dict[str, Any]:
        """All pipelines with their numbers and alarms: plain data, ready for JSON."""
        with self._lock:
            return summary_of(self, self._wall())

    def detail(self, name: str) -> dict[str, Any] | None:
        """Everything about one pipeline; None if there is no such."""
        with self._lock:
            pipeline = self.runs.pipelines.get(name)
            return None if pipeline is None else detail_of(self, pipeline, self._of(pipeline), self._wall())

    def history(self, name: str, metrics: list[str], span: float) -> dict[str, list[tuple[int, float]]]:
        """The last `span` seconds of some numbers of a pipeline."""
        with self._lock:
            now = self._wall()
            return {m: self._series[name, m].points(now, span) for m in metrics if (name, m) in self._series}

    def results(self, topic: str) -> list[dict[str, Any]]:
        """The newest sampled records of an output topic, the newest first."""
        with self._lock:
            return [_shown(record, latency) for record, latency in reversed(self._results.get(topic, ()))]


def _shown(record: Sampled, latency: float | None) -> dict[str, Any]:
    return {
        "at": record.timestamp_ms,
        "partition": record.partition,
        "offset": record.offset,
        "key": None if record.key is None else record.key[:80].decode("utf-8", "replace"),
        "value": _readable(record.value),
        "latency_ms": latency,
        "reason": (record.headers.get("headrace-reason") or b"").decode("utf-8", "replace")[:300],
    }


def _readable(value: bytes | None) -> object:
    if value is None:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(value)
    return value[:500].decode("utf-8", "replace")
