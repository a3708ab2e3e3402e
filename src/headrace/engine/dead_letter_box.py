"""Rows that a store will never take, as dead letters: written by the task that met them, with their original bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
        for letter in listed:
            key, value = (letter.key, letter.value) if letter.known else self._original(letter)
            headers = {
                "headrace-id": f"{self.source}/{letter.partition}/{letter.offset}/{self.query}",
                "headrace-reason": letter.reason,
                "headrace-source-topic": self.source,
                "headrace-source-partition": str(letter.partition),
                "headrace-source-offset": str(letter.offset),
            }
            producer.produce(
                self.topic,
                key=key,
                value=value,
                headers={name: text.encode() for name, text in headers.items()},
                on_delivery=lambda problem, _: failures.append(str(problem)) if problem is not None else None,
            )
            producer.poll(0)
        left = producer.flush(_SECONDS)
        if left or failures:
            raise RuntimeError(f"dead letters could not be written: {failures[0] if failures else 'no answer'}")
        return len(listed)

    def _original(self, letter: DeadLetter) -> tuple[bytes | None, bytes | None]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(consumer_config(self.bootstrap, "headrace-dead-letters"))
        try:
            consumer.assign([TopicPartition(self.source, letter.partition, letter.offset)])
            message = consumer.poll(_SECONDS)
            if message is None or message.error() is not None or message.offset() != letter.offset:
                raise RuntimeError(f"record {self.source}/{letter.partition}/{letter.offset} can't be read again")
            return message.key(), message.value()
        finally:
            consumer.close()
