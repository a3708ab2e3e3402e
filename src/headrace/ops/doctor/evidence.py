"""What the doctor looks at: some seconds of the watch, the newest results, consumer groups, memory and files."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from headrace.log.consumer import consumer_config
from headrace.ops.cluster import Cluster, Offsets
from headrace.ops.doctor.broker_heap import BrokerHeap, broker_heaps
from headrace.ops.measuring import PartitionLag, Values
from headrace.ops.runs import Pipeline, unknown_pipeline
from headrace.ops.sampling import Origin, origin
from headrace.ops.watch import KafkaSource, Watch

_NEWEST = 5_000
"""Of each output topic, so many of the newest records are read."""
_READ_SECONDS = 15.0
_MOST_FILES = 200_000


@dataclass(frozen=True)
class Result:
    """A record that a pipeline wrote."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    id: str
    origin: Origin
    reason: str


@dataclass(frozen=True)
class Group:
    """A consumer group that reads a topic of the pipeline."""

    name: str
    state: str
    members: int
    idle: int
    """Members that have no partition."""
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Files:
    """The data files of a folder."""

    folder: str
    count: int
    bytes: int


@dataclass
class Evidence:
    """Everything about one pipeline that was measured."""

    pipeline: Pipeline
    seconds: float
    first: Values
    last: Values
    behind_first: list[PartitionLag]
    behind: list[PartitionLag]
    hot_keys: list[tuple[str, float]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    rebalances: set[str] = field(default_factory=set)
    files: list[Files] = field(default_factory=list)
    memory_available: float | None = None
    """Share of this machine's memory; None if the pipeline runs elsewhere."""
    bootstrap: str = ""
    broker_heaps: list[BrokerHeap] = field(default_factory=list)

    @property
    def cores(self) -> int:
        """Of this machine."""
        return os.cpu_count() or 1


def gather(
    bootstrap: str, seconds: float, pipelines: Collection[str], folders: Iterable[Path], report: Callable[[str], None]
) -> list[Evidence]:
    """Looks for some seconds, then reads what is needed; at all pipelines if none is named."""
    watch = Watch(KafkaSource(bootstrap))
    cluster = Cluster(bootstrap)
    try:
        report("looking at what runs have told")
        watch.look()
        time.sleep(1)
        watch.look()
        for asked in pipelines:
            if asked not in watch.runs.pipelines:
                raise unknown_pipeline(asked, list(watch.runs.pipelines))
        names = [n for n in watch.runs.pipelines if not pipelines or n in pipelines]
        first = {n: (dict(watch.values[n]), list(watch.behind[n])) for n in names}
        rebalancing: set[str] = set()
        read: dict[str, set[str]] = {}
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            report(f"measuring, {seconds - (time.monotonic() - began):.0f} s to go")
            time.sleep(1)
            watch.look()
            for group in _groups(cluster):
                # While it rebalances nobody has a partition: what it reads is known from before.
                read.setdefault(group.name, set()).update(group.topics)
                if "rebalanc" in group.state.lower():
                    rebalancing.add(group.name)
        heaps = broker_heaps(bootstrap)
        report("reading the newest results")
        found = []
        groups = [replace(g, topics=tuple(sorted({*g.topics, *read.get(g.name, ())}))) for g in _groups(cluster)]
        for name in names:
            known = watch.runs.pipelines[name]
            detail = watch.detail(name) or {}
            topics = {*known.sources, *known.outputs}
            found.append(
                Evidence(
                    known,
                    seconds,
                    *(first[name][0], dict(watch.values[name]), first[name][1], list(watch.behind[name])),
                    hot_keys=[(k["key"], k["share"]) for k in detail.get("hot_keys", ())],
                    results=_results(bootstrap, cluster, known),
                    groups=[g for g in groups if topics.intersection(g.topics)],
                    rebalances=rebalancing,
                    files=[*_folders(folders)],
                    memory_available=_memory() if known.host == socket.gethostname() else None,
                    bootstrap=bootstrap,
                    broker_heaps=heaps,
                )
            )
        return found
    finally:
        watch.close()


def _results(bootstrap: str, cluster: Cluster, pipeline: Pipeline) -> list[Result]:
    """The newest committed records of all outputs."""
    ends, begins = cluster.ends(pipeline.outputs), cluster.begins(pipeline.outputs)
    sources = {topic: q.source for q in pipeline.queries.values() for topic, _ in q.outputs}
    consumer = Consumer(consumer_config(bootstrap, "headrace-doctor", **{"enable.partition.eof": True}))
    found = []
    try:
        for message in _tail(consumer, begins, ends):
            headers = {k: v for k, v in message.headers() or () if isinstance(v, bytes)}
            topic = message.topic()
            found.append(
                Result(
                    topic,
                    message.partition(),
                    message.offset(),
                    message.key(),
                    headers.get("headrace-id", b"").decode("utf-8", "replace"),
                    origin(headers, sources[topic]),
                    headers.get("headrace-reason", b"").decode("utf-8", "replace"),
                )
            )
    finally:
        consumer.close()
    return found


def _tail(consumer: Consumer, begins: Offsets, ends: Offsets) -> Iterator[Any]:
    places = []
    for topic, numbers in ends.items():
        each = max(1, _NEWEST // max(1, len(numbers)))
        for number, end in numbers.items():
            start = max(begins.get(topic, {}).get(number, 0), end - each)
            if start < end:
                places.append(TopicPartition(topic, number, start))
    if not places:
        return
    consumer.assign(places)
    ended = 0
    deadline = time.monotonic() + _READ_SECONDS
    while ended < len(places) and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is not None:
                ended += 1  # the end of a partition; any other error ends the wait for it too
            else:
                yield message


def _groups(cluster: Cluster) -> list[Group]:
    found: list[Group] = []
    with suppress(KafkaException):  # a cluster that does not let us ask has nothing to tell
        listed = cluster.admin.list_consumer_groups(request_timeout=10).result(11)
        names = [g.group_id for g in listed.valid if g.group_id]
        if not names:
            return []
        for name, future in cluster.admin.describe_consumer_groups(names, request_timeout=10).items():
            described = future.result(11)
            assigned = [m.assignment.topic_partitions if m.assignment else [] for m in described.members]
            topics = {place.topic for places in assigned for place in places}
            state = str(described.state.name)
            if assigned and not topics:
                topics = _committed(cluster, name)  # while it shares out partitions nobody has any
            idle = sum(1 for places in assigned if not places) if state == "STABLE" else 0
            found.append(Group(name, state, len(assigned), idle, tuple(sorted(topics))))
    return found


def _committed(cluster: Cluster, group: str) -> set[str]:
    asked = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=10)
    return {place.topic for place in asked[group].result(11).topic_partitions or ()}


def _folders(folders: Iterable[Path]) -> Iterator[Files]:
    for folder in folders:
        count = total = 0
        for path in folder.rglob("*"):
            # Names that begin so belong to the table's own book-keeping.
            if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
                count += 1
                total += path.stat().st_size
            if count >= _MOST_FILES:
                break
        yield Files(str(folder), count, total)


def _memory() -> float | None:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
