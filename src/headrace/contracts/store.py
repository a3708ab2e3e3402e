"""The registry's log: one compacted topic. Read by every instance, written by whichever wrote last, never by two.

Every write is a Kafka transaction with one transactional id for all instances. An instance that wants to write claims
the id (`init_transactions`), which makes Kafka fence whoever held it, reads the log to its end, decides, and commits.
A commit succeeds only if nobody has claimed the id since, so what it was decided on was the whole log: versions and ids
can't collide. One that was fenced starts again. There are no elections, no leases and no clocks (docs/adr/010).
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from headrace.contracts.records import TOPIC, Record
from headrace.contracts.refusals import Refusal
from headrace.contracts.state import RegistryState
from headrace.errors import LogError, RegistryLogError, RegistryUnavailableError
from headrace.log.answers import answer
from headrace.log.consumer import consumer_config
from headrace.log.producer import producer_config
from headrace.log.topics import Topics

T = TypeVar("T")
Decision = Callable[[RegistryState], tuple[T, Sequence[Record]]]

_LOG = logging.getLogger(__name__)
_END = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_SYNC_SECONDS = 10.0
_WRITE_SECONDS = 30.0
_REPLICATION = 3
_BATCH = 10_000
_MARK = "headrace-write"


class RegistryLog:
    """The log and the state that follows from it. `open` reads all of it; `write` decides and writes."""

    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        self.state = RegistryState()
        self._bootstrap = bootstrap
        self._topic = topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._producer: Producer | None = None
        self._writing = threading.Lock()
        self._moved = threading.Condition()
        self._position = -1
        self._instance = uuid.uuid4().hex
        self._writes = 0  # how many this instance has made
        self._written = 0  # how many of them the state has
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read, name="registry-log", daemon=True)

    def open(self) -> None:
        """Creates the topic if need be, and returns when everything in it is known."""
        ensure_topic(self._bootstrap, self._topic)
        self._reader.start()
        self.sync(timeout=60)

    def close(self) -> None:
        """Stops reading."""
        self._closing.set()
        if self._reader.is_alive():
            self._reader.join(10)
        self._producer = None

    @property
    def healthy(self) -> bool:
        """Whether the log is still being read."""
        return self._reader.is_alive()

    def sync(self, timeout: float = _SYNC_SECONDS) -> None:
        """Returns when all that was committed before the call is part of the state."""
        partition = TopicPartition(self._topic, 0)
        deadline = time.monotonic() + timeout

        def ask() -> int:
            future = self._admin.list_offsets(
                {partition: _END}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout
            )[partition]
            end: int = future.result(timeout + 1).offset
            return end

        try:
            end = answer(ask, timeout)
        except KafkaException as error:
            raise _timeout(f"the end of topic `{self._topic}` can't be read", error.args[0].str()) from error
        self._await(lambda: self._position >= end, deadline)

    def write(self, decide: Decision[T]) -> T:
        """Writes what `decide` makes of the state, and returns its answer when the state has it.

        `decide` may be called again with a newer state: a refusal counts only if it comes on a state that is up to
        date.
        """
        deadline = time.monotonic() + _WRITE_SECONDS
        attempt = 0
        with self._writing:
            while True:
                try:
                    return self._decide_and_write(decide, deadline)
                except KafkaException as error:
                    self._producer = None  # fenced by another instance, or in a state from which it does not recover
                    cause = error.args[0]
                    if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                        raise
                    if time.monotonic() > deadline:
                        raise _timeout("the record can't be written", cause.str()) from error
                    _LOG.info("writing again: %s", cause.str())
                    attempt += 1
                    # Two instances that fence each other in turn would go on for ever; chance lets one of them through.
                    time.sleep(random.uniform(0, min(0.05 * 2**attempt, 1.0)))

    def _decide_and_write(self, decide: Decision[T], deadline: float) -> T:
        if self._producer is None:
            self._producer = self._claim(deadline)
            self.sync()
        try:
            answer, records = decide(self.state)
        except Refusal:
            self.sync()  # another instance may have written what makes it right
            answer, records = decide(self.state)
        if records:
            self._commit(self._producer, records, deadline)
        return answer

    def _claim(self, deadline: float) -> Producer:
        producer = Producer(
            producer_config(
                self._bootstrap,
                **{
                    "transactional.id": f"headrace-registry-{self._topic}",
                    # A transaction whose owner died is in the way of readers until somebody claims the id, or for this
                    # long.
                    "transaction.timeout.ms": 10_000,
                    "linger.ms": 0,
                    # Schemas are bounded by what they are, not by how well they compress.
                    "message.max.bytes": 1_000_000,
                    "log_level": 0,  # being fenced is part of the game, and no reason for noise
                },
            )
        )
        producer.init_transactions(max(1.0, deadline - time.monotonic()))
        return producer

    def _commit(self, producer: Producer, records: Sequence[Record], deadline: float) -> None:
        """Writes the records in one transaction, and returns when the state has them.

        Which records are its own a reader tells by a header on the last one. The offsets would tell it too, but a
        callback that is told of them fails if the producer is fenced in that moment.
        """
        self._writes += 1
        mark: list[tuple[str, str | bytes | None]] = [(_MARK, f"{self._instance}/{self._writes}")]
        producer.begin_transaction()
        for number, record in enumerate(records, start=1):
            headers = mark if number == len(records) else []
            producer.produce(self._topic, record.value, record.key, partition=0, headers=headers)
        producer.commit_transaction(max(1.0, deadline - time.monotonic()))
        written = self._writes
        self._await(lambda: self._written >= written, deadline)

    def _await(self, reached: Callable[[], bool], deadline: float) -> None:
        with self._moved:
            while not reached():
                if not self._reader.is_alive():
                    raise RegistryUnavailableError("the registry no longer reads its log.", fix="restart it")
                left = deadline - time.monotonic()
                if left <= 0:
                    what = f"the registry has read its log up to {self._position}, and not to its end"
                    raise _timeout(what, "Kafka answers slowly, or not at all.")
                self._moved.wait(min(left, 1.0))

    def _read(self) -> None:
        consumer = Consumer(
            consumer_config(
                self._bootstrap,
                "headrace-registry",  # never joined: the partition is assigned by hand
                **{
                    "enable.partition.eof": True,
                    # The end of the log is told when a fetch comes back empty; this is how long it waits for more.
                    "fetch.wait.max.ms": 20,
                    "log_level": 0,
                },
            )
        )
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        try:
            while not self._closing.is_set():
                first = consumer.poll(0.1)
                if first is not None:
                    # Not `consume` alone: it would wait for the rest of the batch.
                    self._take([first, *consumer.consume(_BATCH, 0)])
        finally:
            consumer.close()

    def _take(self, messages: Sequence[Message]) -> None:
        position, written = self._position, self._written
        for message in messages:
            error = message.error()
            if error is None:
                self.state.apply(message.key(), message.value())
                position = (message.offset() or 0) + 1
                written = max(written, self._own_write(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                position = message.offset() or 0
            else:
                _LOG.warning("reading the log: %s", error.str())
        with self._moved:
            self._position, self._written = max(self._position, position), written
            self._moved.notify_all()

    def _own_write(self, message: Message) -> int:
        """The number of the write that the record ends, if this instance wrote it."""
        for name, value in cast("list[tuple[str, bytes | None]]", message.headers() or []):
            if name == _MARK and value:
                instance, _, number = value.decode(errors="replace").partition("/")
                return int(number) if instance == self._instance else 0
        return 0


def ensure_topic(bootstrap: str, topic: str) -> None:
    """Creates the topic of the log, or checks that the one that is there can serve: one partition, compacted."""
    found_there = Topics(bootstrap).exists(topic)  # says soon that there is no broker
    topics = Topics(bootstrap, timeout=30)
    if not found_there:
        brokers = len(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=20).brokers)
        settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": "0"}
        if topics.create(topic, 1, min(_REPLICATION, brokers), settings, exist_ok=True):
            return
    found = topics.describe(topic)
    policy = found.config.get("cleanup.policy", "")
    if len(found.partitions) != 1 or "compact" not in policy:
        raise LogError(
            f"topic `{topic}` can't keep the schemas.",
            why=f"It has {len(found.partitions)} partitions and the clean-up policy `{policy or 'delete'}`; "
            "schemas would be lost or out of order.",
            fix="give it one partition and cleanup.policy=compact, or name another topic",
        )


def _timeout(what: str, why: str) -> RegistryLogError:
    return RegistryLogError(f"{what}.", why=why, fix="try again; see whether the brokers are well")
