"""What Kafka itself says: the ends of many partitions in one request, and the groups that read them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not marked as public

from headrace.errors import BrokerUnavailableError

_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_METADATA_SECONDS = 10.0

Offsets = dict[str, dict[int, int]]


class Cluster:
    """One connection for everything that is asked of the brokers again and again."""

    def __init__(self, bootstrap: str, timeout: float = 5.0) -> None:
        self.bootstrap = bootstrap
        self._timeout = timeout
        self.admin = AdminClient(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 1000,
            }
        )
        self._partitions: dict[str, tuple[int, ...]] = {}
        self._asked = -_METADATA_SECONDS

    def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The partitions of those topics that exist. Asked again now and then: topics come and grow."""
        wanted = list(topics)
        now = time.monotonic()
        # For a topic that is not there yet, at most once a second.
        patience = 1.0 if any(t not in self._partitions for t in wanted) else _METADATA_SECONDS
        if now - self._asked >= patience or not self._partitions:
            self._asked = now
            self._partitions = self._metadata()
        return {topic: self._partitions[topic] for topic in wanted if topic in self._partitions}

    def ends(self, topics: Iterable[str]) -> Offsets:
        """By topic and partition, the offset that the next record gets."""
        return self._offsets(topics, _LATEST)

    def committed_ends(self, topics: Iterable[str]) -> Offsets:
        """Up to where a consumer that reads what is committed can read now: open transactions are behind it."""
        return self._offsets(topics, _LATEST, IsolationLevel.READ_COMMITTED)

    def begins(self, topics: Iterable[str]) -> Offsets:
        """By topic and partition, the offset of the oldest record."""
        return self._offsets(topics, _EARLIEST)

    def _offsets(
        self,
        topics: Iterable[str],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Offsets:
        known = self.partitions(topics)
        asked = {TopicPartition(topic, number): spec for topic, numbers in known.items() for number in numbers}
        found: Offsets = {topic: {} for topic in known}
        if not asked:
            return found
        failed: KafkaException | None = None
        answers = self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout)
        for place, future in answers.items():
            try:
                found[place.topic][place.partition] = future.result(self._timeout + 1).offset
            except KafkaException as error:
                failed = error  # no leader at this moment, or deleted: the next round asks again
        if failed is not None and not any(found.values()):
            self._asked = -_METADATA_SECONDS
            raise self._unavailable(failed)
        return found

    def _metadata(self) -> dict[str, tuple[int, ...]]:
        try:
            topics: dict[str, Any] = self.admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise self._unavailable(error) from error
        return {name: tuple(sorted(topic.partitions)) for name, topic in topics.items()}

    def _unavailable(self, error: KafkaException) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            f"no broker answers at {self.bootstrap}.",
            why=f"Waited {self._timeout:g} s. The Kafka client says: {error.args[0].str()}",
            fix="start the embedded one: headrace broker start\nor check the address given with --bootstrap",
        )
