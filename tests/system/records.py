"""Writing to the log and reading from it, as the tests of pipelines do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from headrace.log.consumer import consumer_config
from headrace.log.producer import producer_config

DEADLINE = 90.0

Position = tuple[int, int]
"""Partition and offset of the record that something came from."""


@dataclass(frozen=True)
class Sent:
    """A record for a topic."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int | None = None

    @staticmethod
    def row(fields: dict[str, Any], *, key: str = "", partition: int = 0, timestamp_ms: int | None = None) -> Sent:
        """A JSON object; decimals are written as numbers, with all their digits."""
        return Sent(to_json(fields).encode(), key.encode() or None, partition, timestamp_ms)


def to_json(value: Any) -> str:
    """JSON, with decimals as numbers."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {to_json(field)}" for name, field in value.items()) + "}"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def produce(bootstrap: str, topic: str, records: Iterable[Sent]) -> None:
    """Writes the records in their order, and returns when all are in the log.

    The order holds within a partition; between partitions it holds by the hundred, so that a batch which begins
    meanwhile never sees one partition far ahead of the other.
    """
    producer = Producer(producer_config(bootstrap, **{"linger.ms": 0, "message.max.bytes": 4_000_000}))
    for number, record in enumerate(records):
        if number % 100 == 0:
            assert producer.flush(DEADLINE) == 0
        stamp = 0 if record.timestamp_ms is None else record.timestamp_ms  # 0: now
        producer.produce(topic, record.value, record.key, record.partition, timestamp=stamp)
    assert producer.flush(DEADLINE) == 0


def positions(records: Iterable[Sent]) -> Iterator[Position]:
    """Where in an empty topic the records will be."""
    ends: dict[int, int] = {}
    for record in records:
        offset = ends.get(record.partition, 0)
        ends[record.partition] = offset + 1
        yield record.partition, offset


@dataclass(frozen=True)
class Record:
    """A record that a pipeline wrote."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]
    timestamp_ms: int = 0

    @property
    def id(self) -> str:
        """The id by which repeats of this record collapse."""
        return self.headers["headrace-id"]

    @property
    def source(self) -> Position:
        """The position of the record that this one was made from."""
        _, partition, offset, _ = self.id.split("/")
        return int(partition), int(offset)

    @property
    def row(self) -> dict[str, Any]:
        """The payload. Numbers with a fraction stay text, so that the reader says what they are."""
        row: dict[str, Any] = json.loads(self.value or b"", parse_float=Number)
        return row

    @property
    def reason(self) -> str:
        """Why it is on a side route."""
        return self.headers["headrace-reason"]


class Number(str):
    """A JSON number with a fraction or an exponent, as it is written."""

    __slots__ = ()


class LogReader:
    """Reads topics from their beginning, committed records only, and keeps all that it has read."""

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self.records: list[Record] = []
        self._consumer = Consumer(consumer_config(bootstrap, "tests", **{"enable.partition.eof": True}))
        self._next: dict[tuple[str, int], int] = {}
        for topic in topics:
            partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
            self._next |= {(topic, partition): 0 for partition in partitions}
        self._assign()

    def close(self) -> None:
        self._consumer.close()

    def until(self, condition: Callable[[list[Record]], bool], what: str, deadline: float = DEADLINE) -> list[Record]:
        """Reads on until the condition holds for all that was read so far."""
        end = time.monotonic() + deadline
        while not condition(self.records):
            assert time.monotonic() < end, f"waited {deadline:g} s for {what}; {len(self.records)} records so far"
            self._poll()
        return self.records

    def to_end(self) -> list[Record]:
        """Reads all that is committed now."""
        self._assign()  # anew, so that the client tells the end of each partition once more
        open_ends = set(self._next)
        end = time.monotonic() + DEADLINE
        while open_ends:
            assert time.monotonic() < end, f"waited {DEADLINE:g} s for the end of {open_ends}"
            ended = self._poll()
            if ended is not None:
                open_ends.discard(ended)
        return self.records

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in self._next.items()])

    def _poll(self) -> tuple[str, int] | None:
        """Takes the next record, if there is one; names a partition whose end is reached."""
        message = self._consumer.poll(0.2)
        if message is None:
            return None
        partition = (message.topic() or "", message.partition() or 0)
        problem = message.error()
        if problem is not None:
            assert problem.code() == KafkaError._PARTITION_EOF, problem
            return partition
        headers = {name: _text(value) for name, value in dict(message.headers() or {}).items()}
        self.records.append(Record(partition[0], message.key(), message.value(), headers, message.timestamp()[1]))
        self._next[partition] = (message.offset() or 0) + 1
        return None


def _text(header: str | bytes | None) -> str:
    return header.decode() if isinstance(header, bytes) else header or ""


def read_all(bootstrap: str, *topics: str) -> list[Record]:
    """All that is committed in the topics now."""
    reader = LogReader(bootstrap, *topics)
    try:
        return reader.to_end()
    finally:
        reader.close()
