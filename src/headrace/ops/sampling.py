"""A look at some of the records of the watched topics, at a cost that does not grow with their traffic.

A record of an output says in its headers which record it was made from and when that was produced; so a few hundred
records a second give latencies, how far a query has read, and which keys are hot. What is more than that is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.log.consumer import consumer_config
from headrace.ops.cluster import Offsets

_PER_LOOK = 1000
_FIRST = 25
"""So many of the newest records are read when a partition is first seen, for a page that is not empty."""
_FURTHEST = 400
"""A partition that is more records behind than this is skipped to its newest ones."""
_LONGEST_VALUE = 4096
_PEEK_SECONDS = 0.5


class Sampled(NamedTuple):
    """A record that was looked at."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


class Sampler:
    """One consumer without a group, that never waits and never falls behind: it skips."""

    def __init__(self, bootstrap: str, per_look: int = _PER_LOOK) -> None:
        self._per_look = per_look
        self._consumer = Consumer(
            consumer_config(
                bootstrap,
                "headrace-watch",
                **{
                    "auto.offset.reset": "latest",
                    # What is fetched ahead is bounded too: a busy topic would fill 64 MB otherwise.
                    "queued.min.messages": 1000,
                    "queued.max.messages.kbytes": 2048,
                    "fetch.message.max.bytes": 65536,
                    "fetch.wait.max.ms": 500,
                },
            )
        )
        self._next: dict[tuple[str, int], int] = {}
        self._spans: dict[str, list[float]] = {}

    def look(self, ends: Offsets) -> list[Sampled]:
        """The newest records of these topics since the last look, as far as the budget goes."""
        self._follow(ends)
        if not self._next:
            return []
        found = self._take(self._per_look, 0.05)
        if self._skip(ends):
            # The very newest, now: how far a query has come must not lag behind the ends that are compared with it.
            found += self._take(self._per_look, 0.15)
        return found

    def _take(self, most: int, timeout: float) -> list[Sampled]:
        try:
            messages = self._consumer.consume(most, timeout=timeout)
        except KafkaException:
            return []
        found = []
        for message in messages:
            if message.error() is not None:
                continue
            place, offset = (message.topic(), message.partition()), message.offset()
            if offset is None or place not in self._next:
                continue
            self._note_span(place[0], offset + 1 - self._next[place])
            self._next[place] = offset + 1
            found.append(
                Sampled(
                    place[0],
                    place[1],
                    offset,
                    message.timestamp()[1],
                    message.key(),
                    _cut(message.value()),
                    _bytes_of(message.headers()),
                )
            )
        return found

    def density(self, topic: str) -> float:
        """Records per offset: the end of a transaction takes an offset too, and is no record."""
        offsets, records = self._spans.get(topic, (0.0, 0.0))
        return min(1.0, records / offsets) if offsets >= 20 else 1.0

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _follow(self, ends: Offsets) -> None:
        wanted = {(topic, number): end for topic, numbers in ends.items() for number, end in numbers.items()}
        gone = [place for place in self._next if place not in wanted]
        new = [place for place in wanted if place not in self._next]
        if gone:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in gone])
            for place in gone:
                del self._next[place]
        if new:
            for place in new:
                self._next[place] = max(0, wanted[place] - _FIRST)
            self._consumer.incremental_assign([TopicPartition(*place, self._next[place]) for place in new])

    def _skip(self, ends: Offsets) -> bool:
        skipped = False
        for (topic, number), position in self._next.items():
            end = ends[topic].get(number, position)
            if end - position > _FURTHEST or end < position - _FURTHEST:
                target = max(0, end - _FIRST)
                try:
                    self._consumer.seek(TopicPartition(topic, number, target))
                except KafkaException:
                    continue  # not fetching yet: the next look tries again
                self._next[topic, number] = target
                skipped = True
        return skipped

    def _note_span(self, topic: str, offsets: int) -> None:
        span = self._spans.setdefault(topic, [0.0, 0.0])
        if 0 < offsets <= _FURTHEST:
            span[0] += offsets
            span[1] += 1
        if span[0] > 2000:  # recent ones weigh more
            span[0] /= 2
            span[1] /= 2


class Peek:
    """Reads single records, to know since when they have been there. A few at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(consumer_config(bootstrap, "headrace-watch", **{"fetch.message.max.bytes": 65536}))

    def stamps(self, places: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int, int], float]:
        """The timestamps (seconds) of the records at these places, as far as they answer at once."""
        wanted = {(topic, number): offset for topic, number, offset in places}
        found: dict[tuple[str, int, int], float] = {}
        if not wanted:
            return found
        try:
            self._consumer.assign([TopicPartition(*place, offset) for place, offset in wanted.items()])
            deadline = time.monotonic() + _PEEK_SECONDS
            while wanted and time.monotonic() < deadline:
                message = self._consumer.poll(0.1)
                if message is None or message.error() is not None:
                    continue
                place = (message.topic() or "", message.partition() or 0)
                if place in wanted:
                    found[*place, wanted.pop(place)] = message.timestamp()[1] / 1000
            self._consumer.unassign()
        except KafkaException:
            pass  # the first look is the answer then
        return found

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()


class Origin(NamedTuple):
    """The record that a result was made from, as far as the result says so."""

    produced_ms: int | None
    partition: int | None
    offset: int | None


def origin(headers: Mapping[str, bytes], source: str) -> Origin:
    """What the headers of a record tell, if it was made from a record of the topic `source`.

    >>> origin({"headrace-id": b"clicks/1/42/count", "headrace-source-timestamp": b"1700"}, "clicks")
    Origin(produced_ms=1700, partition=1, offset=42)
    >>> origin({"headrace-id": b"other/1/42/count"}, "clicks").offset is None
    True
    """
    produced = headers.get("headrace-source-timestamp") or b""
    place = (headers.get("headrace-id") or b"").decode("utf-8", "replace").split("/")
    # The id of a window's result names the window and no offset; it has more parts.
    known = len(place) == 4 and place[0] == source and place[1].isdigit() and place[2].isdigit()
    return Origin(
        int(produced) if produced.isdigit() and len(produced) < 18 else None,
        int(place[1]) if known else None,
        int(place[2]) if known else None,
    )


def _bytes_of(headers: Any) -> dict[str, bytes]:
    return {name: value for name, value in headers or () if isinstance(value, bytes)}


def _cut(value: bytes | None) -> bytes | None:
    return value if value is None or len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE]
