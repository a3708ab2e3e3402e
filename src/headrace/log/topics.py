"""Topics: list, create, describe, delete. Errors are Headrace's own, with what to do next."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public there, but not marked so for type checkers
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from headrace.errors import BrokerUnavailableError, LogError, TopicExistsError, TopicNotFoundError, closest
from headrace.log.answers import answer

T = TypeVar("T")

DEFAULT_PARTITIONS = 4
_BEGIN = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_END = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._INVALID_ARG,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
}
# While a partition is being given a leader: right after its creation, or when a broker has gone.
_ELECTING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
}


@dataclass(frozen=True)
class TopicSummary:
    """A line of `headrace topics list`."""

    name: str
    partitions: int
    replication: int


@dataclass(frozen=True)
class PartitionDescription:
    """One partition. `begin` and `end` are the offsets of the first record and of the one that will come next."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class TopicDescription:
    """A topic with its partitions and the settings in which it differs from the broker's defaults."""

    name: str
    partitions: tuple[PartitionDescription, ...]
    config: Mapping[str, str]


_SPREAD_SECONDS = 2.0


class Topics:
    """The topics of one cluster.

    >>> from headrace.errors import BrokerUnavailableError
    >>> try:
    ...     Topics("127.0.0.1:1", timeout=0.5).list()
    ... except BrokerUnavailableError as error:
    ...     print(error.what)
    no broker answers at 127.0.0.1:1.
    """

    def __init__(self, bootstrap: str, timeout: float = 5.0) -> None:
        self.bootstrap = bootstrap
        self.timeout = timeout
        try:
            self._admin = AdminClient(
                {
                    "bootstrap.servers": bootstrap,
                    # What librdkafka would print on the terminal comes back as an error of the call.
                    "log_level": 0,
                    # It waits up to 10 s between attempts otherwise, which is longer than our own patience.
                    "reconnect.backoff.ms": 50,
                    "reconnect.backoff.max.ms": 250,
                }
            )
        except KafkaException as error:
            raise self._translate(error) from error

    def list(self, *, internal: bool = False) -> list[TopicSummary]:
        """All topics by name; those that Kafka keeps for itself only if asked for."""
        summaries = [
            TopicSummary(name, len(topic.partitions), _replication(topic))
            for name, topic in self._metadata().topics.items()
            if internal or not name.startswith("__")
        ]
        return sorted(summaries, key=lambda summary: summary.name)

    def cluster_id(self) -> str | None:
        """What the cluster calls itself: the same as long as its data is; None from one that does not say."""
        found: str | None = self._metadata().cluster_id
        return found

    def exists(self, name: str) -> bool:
        """Whether there is a topic of that name."""
        return name in self._metadata().topics

    def create(
        self,
        name: str,
        partitions: int = DEFAULT_PARTITIONS,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Creates a topic and returns when it can be used. False if it was there already (with `exist_ok`).

        Without `replication` it is the cluster's default.
        """
        _check_name(name)
        self._metadata()  # says quickly that there is no broker; a request for a change would wait for one
        copies = -1 if replication is None else replication
        topic = NewTopic(name, num_partitions=partitions, replication_factor=copies, config=dict(config or {}))
        waits = {"operation_timeout": self.timeout, "request_timeout": self.timeout}
        try:
            self._changed(lambda: self._admin.create_topics([topic], **waits)[name], KafkaError.TOPIC_ALREADY_EXISTS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._translate(error, f"topic `{name}` can't be created") from error
            if not exist_ok:
                raise TopicExistsError(
                    f"topic `{name}` exists already.",
                    fix=f"use it as it is, choose another name, or: headrace topics delete {name}",
                ) from error
            return False
        self._await(f"topic `{name}` to have leaders", lambda metadata: _led(metadata, name, partitions))
        self.end_offsets(name)  # a leader is named before it serves: now it does
        return True

    def ensure(
        self, *names: str, partitions: int = DEFAULT_PARTITIONS, config: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        """Creates those that do not exist; returns their names. A topic that exists stays as it is."""
        there = self._metadata().topics
        missing = [name for name in dict.fromkeys(names) if name not in there]
        return tuple(name for name in missing if self.create(name, partitions, config=config, exist_ok=True))

    def describe(self, name: str) -> TopicDescription:
        """Everything about a topic: leaders, replicas, offsets, and its own settings."""
        partitions = self._found(name).topics[name].partitions
        begin = self._offsets(name, partitions, _BEGIN)
        end = self._offsets(name, partitions, _END)
        return TopicDescription(
            name=name,
            partitions=tuple(
                PartitionDescription(i, p.leader, tuple(p.replicas), tuple(p.isrs), begin[i], end[i])
                for i, p in sorted(partitions.items())
            ),
            config=self._config(name),
        )

    def end_offsets(self, name: str) -> dict[int, int]:
        """By partition, the offset that the next record will get."""
        return self._offsets(name, self._found(name).topics[name].partitions, _END)

    def delete(self, name: str) -> None:
        """Deletes a topic with its data, and returns when it is gone."""
        self.require(name)
        waits = {"operation_timeout": self.timeout, "request_timeout": self.timeout}
        try:
            self._changed(lambda: self._admin.delete_topics([name], **waits)[name], KafkaError.UNKNOWN_TOPIC_OR_PART)
        except KafkaException as error:
            raise self._translate(error, f"topic `{name}` can't be deleted") from error
        self._await(f"topic `{name}` to be gone", lambda metadata: name not in metadata.topics)

    def require(self, *names: str) -> None:
        """Raises TopicNotFoundError, with the nearest name, unless all of them exist."""
        self._found(*names)

    def partitions(self, *names: str) -> dict[str, int]:
        """How many partitions each of them has. TopicNotFoundError unless all of them exist."""
        topics = self._found(*names).topics
        return {name: len(topics[name].partitions) for name in names}

    def _found(self, *names: str) -> ClusterMetadata:
        """The metadata in which they all are: the next may come from a node that has not heard yet."""
        metadata = self._metadata()
        deadline = time.monotonic() + _SPREAD_SECONDS
        # Of several nodes the one that answers may not have heard yet of a topic that another has just made.
        while not metadata.topics.keys() >= set(names) and len(metadata.brokers) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
            metadata = self._metadata()
        there = metadata.topics
        missing = [name for name in names if name not in there]
        if not missing:
            return metadata
        known = sorted(topic for topic in there if not topic.startswith("__"))
        name = missing[0]
        nearest = closest(name, known)
        more = f" (nor do {', '.join(f'`{other}`' for other in missing[1:])})" if len(missing) > 1 else ""
        raise TopicNotFoundError(
            f"topic `{name}` does not exist at {self.bootstrap}{more}.",
            why=f"Topics there: {_some(known)}." if known else "There are no topics yet.",
            fix=(f"did you mean `{nearest}`? Else create it: " if nearest else "create it: ")
            + f"headrace topics create {name}",
        )

    def _metadata(self) -> ClusterMetadata:
        # Always of all topics: asking for one by name would create it on clusters that create topics by themselves.
        try:
            metadata = answer(lambda: self._admin.list_topics(timeout=self.timeout), self.timeout)
        except KafkaException as error:
            raise self._translate(error) from error
        if not metadata.brokers or metadata.controller_id < 0:
            raise BrokerUnavailableError(
                f"the cluster at {self.bootstrap} has no controller.", why="It may still be starting.", fix="try again"
            )
        return metadata

    def _offsets(self, name: str, partitions: Mapping[int, object], spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(name, partition): spec for partition in partitions}

        def ask() -> dict[int, int]:
            futures = self._admin.list_offsets(asked, request_timeout=self.timeout)
            return {found.partition: self._result(future).offset for found, future in futures.items()}

        try:
            return answer(ask, self.timeout, passing=_ELECTING)
        except KafkaException as error:
            raise self._translate(error, f"the offsets of topic `{name}` can't be read") from error

    def _config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)

        def ask() -> dict[str, Any]:
            entries: dict[str, Any] = self._result(
                self._admin.describe_configs([resource], request_timeout=self.timeout)[resource]
            )
            return entries

        try:
            # The topic is there; the node that is asked may not have heard of it yet.
            entries = answer(
                lambda: answer(ask, self.timeout), _SPREAD_SECONDS, passing=(KafkaError.UNKNOWN_TOPIC_OR_PART,)
            )
        except KafkaException as error:
            raise self._translate(error, f"the settings of topic `{name}` can't be read") from error
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key: str(entry.value) for key, entry in sorted(entries.items()) if entry.source == own}

    def _changed(self, ask: Callable[[], Future[None]], done: int) -> None:
        """`done` is the error of a request that was carried out already: the first time that we asked."""
        asked = 0

        def change() -> None:
            nonlocal asked
            asked += 1
            self._result(ask())

        try:
            answer(change, self.timeout)
        except KafkaException as error:
            if asked == 1 or error.args[0].code() != done:
                raise

    def _result(self, future: Future[T]) -> T:
        # librdkafka answers by itself at the request's timeout; the margin is for its own thread.
        return future.result(self.timeout + 5)

    def _await(self, what: str, condition: Callable[[ClusterMetadata], bool]) -> None:
        """The controller answers before the brokers know; clients would still see the old picture."""
        deadline = time.monotonic() + self.timeout
        while not condition(self._metadata()):
            if time.monotonic() > deadline:
                raise LogError(f"waited {self.timeout:g} s for {what}.", fix="try again; the cluster may be overloaded")
            time.sleep(0.02)

    def _translate(self, error: KafkaException, what: str | None = None) -> LogError:
        cause = error.args[0]
        if cause.code() in _UNREACHABLE:
            return BrokerUnavailableError(
                f"no broker answers at {self.bootstrap}.",
                why=f"Waited {self.timeout:g} s. The Kafka client says: {cause.str()}",
                fix="start the embedded one: headrace broker start\nor check the address given with --bootstrap",
            )
        return LogError(f"{what or f'the cluster at {self.bootstrap} refused'}.", why=f"Kafka says: {cause.str()}")


def _check_name(name: str) -> None:
    if re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is None or name in (".", ".."):
        raise LogError(
            f"`{name}` can't be the name of a topic.",
            why="Kafka takes letters, digits, `.`, `_` and `-`, at most 249 of them.",
            fix=f"for instance: {re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-')[:249] or 'clicks'}",
        )


def _some(names: Sequence[str], most: int = 20) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _replication(topic: TopicMetadata) -> int:
    return min((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _led(metadata: ClusterMetadata, name: str, partitions: int) -> bool:
    topic = metadata.topics.get(name)
    if topic is None or len(topic.partitions) != partitions:
        return False
    return all(partition.leader >= 0 for partition in topic.partitions.values())
