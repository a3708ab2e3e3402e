"""Rows that a store will never take, as dead letters: written by the task that met them, with their original bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from headrace.log.consumer import consumer_config
from headrace.log.producer import producer_config

_SECONDS = 30.0


@dataclass(frozen=True)
class DeadLetter:
    """A record that did not make it, by its place in the source topic. Without bytes they are read from there."""

    partition: int
    offset: int
    reason: str
    key: bytes | None = None
    value: bytes | None = None
    known: bool = False
    """Whether key and value are what they were; else they are read from the log."""


@dataclass(frozen=True)
class DeadLetterBox:
    """Where a sink's dead letters go. It is sent to the tasks, so it holds no connection."""

    bootstrap: str
    source: str
    topic: str
    query: str

    def put(self, letters: Iterable[DeadLetter]) -> int:
        """Write the letters, and return how many when all are in the log.

        A repeated batch writes them again, with the same headrace-id.
        """
        from confluent_kafka import Producer

        listed = list(letters)
        if not listed:
            return 0
        failures: list[str] = []
        producer = Producer(producer_config(self.bootstrap))
        for letter in self._whole(listed):
            # What comes after the first line is the stack.
            reason, _, stack = letter.reason.partition("\n")
            headers = {
                "headrace-id": f"{self.source}/{letter.partition}/{letter.offset}/{self.query}",
                "headrace-reason": reason,
                "headrace-source-topic": self.source,
                "headrace-source-partition": str(letter.partition),
                "headrace-source-offset": str(letter.offset),
            } | ({"headrace-stack": stack} if stack else {})
            producer.produce(
                self.topic,
                key=letter.key,
                value=letter.value,
                headers={name: text.encode() for name, text in headers.items()},
                on_delivery=lambda problem, _: failures.append(str(problem)) if problem is not None else None,
            )
            producer.poll(0)
        left = producer.flush(_SECONDS)
        if left or failures:
            raise RuntimeError(f"dead letters could not be written: {failures[0] if failures else 'no answer'}")
        return len(listed)

    def _whole(self, letters: list[DeadLetter]) -> Iterator[DeadLetter]:
        """The letters with key and value; those that are not known are read from the source."""
        from confluent_kafka import Consumer, TopicPartition

        yield from (letter for letter in letters if letter.known)
        unknown = [letter for letter in letters if not letter.known]
        if not unknown:
            return
        # A letter is one record somewhere: what follows it need not be fetched.
        small = {"queued.min.messages": 1, "fetch.message.max.bytes": 65536, "fetch.wait.max.ms": 50}
        consumer = Consumer(consumer_config(self.bootstrap, "headrace-dead-letters", **small))
        try:
            for letter in unknown:
                consumer.assign([TopicPartition(self.source, letter.partition, letter.offset)])
                message = consumer.poll(_SECONDS)
                if message is None or message.error() is not None or message.offset() != letter.offset:
                    place = f"{self.source}/{letter.partition}/{letter.offset}"
                    raise RuntimeError(f"record {place} can't be read again, to be a dead letter")
                yield replace(letter, key=message.key(), value=message.value(), known=True)
        finally:
            consumer.close()
