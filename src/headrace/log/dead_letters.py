"""Dead letters: look at them, count them by reason, send them back (repaired, if need be), or put them aside.

A topic is read a page at a time, one partition after the other: it may be larger than memory. A letter is replayed in
one Kafka transaction with the note that it was (`handled_letters`), and a second replay at the same time is fenced.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headrace.errors import LogError
from headrace.log.consumer import consumer_config
from headrace.log.handled_letters import HandledLetters, State, page
from headrace.log.producer import producer_config
from headrace.log.topics import Topics

PAGE = 500
SUFFIX = ".dead-letters"
_HANDLED = ".handled"
_PATIENCE = 30.0
_MOST_REASONS = 1000

Source = tuple[str, int, int]
"""Topic, partition and offset of the record that a letter was made from."""


@dataclass(frozen=True)
class DeadLetter:
    """A record that did not become a row, or whose row failed later."""

    partition: int
    offset: int
    at: datetime
    reason: str
    stack: str | None
    id: str
    key: bytes | None
    value: bytes | None
    """The original bytes; of a row that failed in a later step, the row as it was parsed."""
    source: Source | None
    """None for a result that could not be computed: it was made of many records."""
    state: State = State.OPEN

    @property
    def position(self) -> str:
        """As the commands take it: partition and offset in the dead-letter topic."""
        return f"{self.partition}:{self.offset}"

    @property
    def kind(self) -> str:
        """The reason without what differs from letter to letter: numbers and times, but not the names in it.

        >>> reason = "step `s1` could not compute its window 2026-01-01T00:00:00Z to 2026-01-01T00:01:00Z"
        >>> DeadLetter(0, 0, datetime.now(UTC), reason, None, "", None, None, None).kind
        'step `s1` could not compute its window # to #'
        """
        parts = self.reason.split("`")
        return "`".join(re.sub(r"(?<![\w-])\d[\w:.+-]*", "#", p) if i % 2 == 0 else p for i, p in enumerate(parts))


@dataclass(frozen=True)
class Filter:
    """Which letters are meant."""

    reason: str | None = None
    """Part of the reason, in any case."""
    since: datetime | None = None
    until: datetime | None = None
    positions: frozenset[tuple[int, int]] | None = None
    state: State | None = State.OPEN
    """None for letters in any state."""

    def takes(self, letter: DeadLetter) -> bool:
        """Whether it is one of them."""
        if self.positions is not None and (letter.partition, letter.offset) not in self.positions:
            return False
        if self.state is not None and letter.state is not self.state:
            return False
        if self.until is not None and letter.at >= self.until:
            return False
        if self.since is not None and letter.at < self.since:
            return False
        return self.reason is None or self.reason.lower() in letter.reason.lower()


@dataclass(frozen=True)
class Outcome:
    """What a replay or a drop did."""

    done: int = 0
    repeated: int = 0
    """Letters of a record that was replayed before, from another letter: noted, not sent again."""
    skipped: int = 0
    """Letters that have nothing to send, or that the fixing function left alone."""
    failed: int = 0
    first_failure: str | None = None


Fix = Callable[[DeadLetter], bytes | str | None]
"""Gives the repaired payload, or None to leave the letter as it is."""


class DeadLetters:
    """The dead letters of one topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topics = Topics(bootstrap)
        if not self._topics.exists(topic) and self._topics.exists(topic + SUFFIX):
            topic += SUFFIX  # the name of a pipeline
        self._topics.require(topic)
        self.topic = topic

    @property
    def handled_topic(self) -> str:
        """Where it is kept what was done with them."""
        return self.topic + _HANDLED

    def letters(self, wanted: Filter | None = None, after: tuple[int, int] | None = None) -> Iterator[DeadLetter]:
        """The letters, by partition and offset; only those after a position if one is given."""
        wanted = wanted or Filter()
        handled = self._handled()
        for record in self._records(wanted, after):
            letter = _letter(record)
            letter = replace(letter, state=handled.state(letter.partition, letter.offset))
            if wanted.takes(letter):
                yield letter

    def find(self, partition: int, offset: int) -> DeadLetter:
        """The letter at a position."""
        wanted = Filter(positions=frozenset({(partition, offset)}), state=None)
        found = next(self.letters(wanted, (partition, offset - 1)), None)
        if found is None:
            raise LogError(
                f"there is no dead letter at {partition}:{offset} of `{self.topic}`.",
                fix=f"headrace dead-letters list {self.topic}",
            )
        return found

    def counts(self, wanted: Filter | None = None) -> dict[tuple[str, State], int]:
        """How many letters there are of each kind of reason and state, most first."""
        counts: Counter[tuple[str, State]] = Counter()
        for letter in self.letters(wanted):
            kind = (letter.kind, letter.state)
            # Reasons with text of the data in them could be as many as letters.
            counts[kind if kind in counts or len(counts) < _MOST_REASONS else ("other reasons", letter.state)] += 1
        return dict(counts.most_common())

    def drop(self, wanted: Filter, limit: int | None = None) -> Outcome:
        """Put letters aside: they stay in the topic and count as dropped."""
        return self._handle(wanted, limit, State.DROPPED, "drop", lambda producer, letter: _DONE)

    def replay(
        self,
        wanted: Filter,
        to: str | None = None,
        fix: Fix | None = None,
        limit: int | None = None,
        again: bool = False,
    ) -> Outcome:
        """Send letters back to the topic that they came from (or `to` another), repaired by `fix` if there is one.

        A record is sent once, however many letters it has; `again` sends it all the same.
        """
        if to is not None:
            self._topics.require(to)

        def send(producer: Producer, letter: DeadLetter) -> _Sent:
            if letter.source is None or (letter.value is None and fix is None):
                return _SKIPPED
            value: bytes | str | None = letter.value
            if fix is not None:
                try:
                    value = _payload(fix(letter))
                except Exception as problem:  # noqa: BLE001 - the user's code: it must not end the replay of the others
                    return _Sent(failure=f"{letter.position}: {type(problem).__name__}: {problem}")
            if value is None:
                return _SKIPPED
            topic, partition, _ = letter.source
            note: list[tuple[str, str | bytes | None]] = [
                ("headrace-replayed-from", f"{self.topic}/{letter.partition}/{letter.offset}")
            ]
            # At its own place if it can be: the events of a key stay in one partition.
            producer.produce(to or topic, value, letter.key, partition if to is None else -1, headers=note)
            return _DONE

        how = "replay" + (f" to {to}" if to is not None else "") + (" with a fix" if fix is not None else "")
        return self._handle(wanted, limit, State.REPLAYED, how, send, again=again)

    def _handle(
        self, wanted: Filter, limit: int | None, state: State, how: str, handle: _Handler, again: bool = False
    ) -> Outcome:
        """Handle letters by pages, each in a transaction with the note of what was done."""
        self._topics.create(self.handled_topic, 1, config={"retention.ms": "-1"}, exist_ok=True)
        settings = {"transactional.id": f"headrace.dead-letters.{self.topic}", "transaction.timeout.ms": 60_000}
        producer = Producer(producer_config(self._bootstrap, **settings))
        outcome = Outcome()
        try:
            # From here on this is the only one: what another has done before is read after this.
            producer.init_transactions(_PATIENCE)
            known = HandledLetters() if again else self._handled()
            letters = islice(self.letters(wanted), limit)
            for partition, part in groupby(letters, key=lambda letter: letter.partition):
                while batch := list(islice(part, PAGE)):
                    outcome = self._handle_page(producer, known, partition, batch, outcome, (state, how, handle))
        except KafkaException as problem:
            if problem.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._STATE):
                raise LogError(
                    f"another command handles the dead letters of `{self.topic}` and took over.",
                    why="Two at a time might send a letter twice. What this one had committed stays.",
                    fix="wait until it is done, then run this one again: letters that are done are not done again.",
                ) from problem
            raise LogError(f"dead letters of `{self.topic}` can't be handled.", why=str(problem)) from problem
        return outcome

    def _handle_page(
        self,
        producer: Producer,
        known: HandledLetters,
        partition: int,
        letters: list[DeadLetter],
        outcome: Outcome,
        task: tuple[State, str, _Handler],
    ) -> Outcome:
        state, how, handle = task
        done: list[int] = []
        sources: list[Source] = []
        with _transaction(producer):
            for letter in letters:
                source = letter.source if state is State.REPLAYED else None
                if source is not None and (known.replayed_source(source) or source in sources):
                    done.append(letter.offset)
                    outcome = replace(outcome, repeated=outcome.repeated + 1)
                    continue
                sent = handle(producer, letter)
                if sent.failure is not None:
                    first = outcome.first_failure or sent.failure
                    outcome = replace(outcome, failed=outcome.failed + 1, first_failure=first)
                elif not sent.done:
                    outcome = replace(outcome, skipped=outcome.skipped + 1)
                else:
                    done.append(letter.offset)
                    if source is not None:
                        sources.append(source)
                    outcome = replace(outcome, done=outcome.done + 1)
                producer.poll(0)
            if not done:
                producer.abort_transaction(_PATIENCE)
                return outcome
            note = page(state, partition, done, sources, datetime.now(UTC).isoformat(timespec="seconds"), how)
            producer.produce(self.handled_topic, note)
            producer.commit_transaction(_PATIENCE)
            known.note(note)
            return outcome

    def _handled(self) -> HandledLetters:
        handled = HandledLetters()
        if self._topics.exists(self.handled_topic):
            for record in read_topic(self._bootstrap, self.handled_topic):
                handled.note(record.value() or b"{}")
        return handled

    def _records(self, wanted: Filter, after: tuple[int, int] | None) -> Iterator[Message]:
        since = None if wanted.since is None else int(wanted.since.timestamp() * 1000)
        only = None if wanted.positions is None else {partition for partition, _ in wanted.positions}
        return read_topic(self._bootstrap, self.topic, since_ms=since, after=after, only=only)


@dataclass(frozen=True)
class _Sent:
    done: bool = False
    failure: str | None = None


_DONE, _SKIPPED = _Sent(done=True), _Sent()
_Handler = Callable[[Producer, DeadLetter], _Sent]


@contextmanager
def _transaction(producer: Producer) -> Iterator[None]:
    """The block ends it. If it fails or is interrupted, this does: readers would wait until it times out."""
    producer.begin_transaction()
    try:
        yield
    except BaseException:
        with suppress(KafkaException):
            producer.abort_transaction(_PATIENCE)
        raise


def dead_letter_topics(bootstrap: str) -> list[str]:
    """The topics whose names say that they have dead letters."""
    return [t.name for t in Topics(bootstrap).list() if t.name.endswith(("dead-letters", "dead_letters"))]


def read_topic(
    bootstrap: str,
    topic: str,
    *,
    since_ms: int | None = None,
    after: tuple[int, int] | None = None,
    only: Iterable[int] | None = None,
) -> Iterator[Message]:
    """What is committed in a topic now, one partition after the other, in bounded memory."""
    ends = Topics(bootstrap).end_offsets(topic)
    config = {"enable.partition.eof": True, "queued.max.messages.kbytes": 16_384, "fetch.message.max.bytes": 4_194_304}
    consumer = Consumer(consumer_config(bootstrap, "headrace-reader", **config))
    try:
        for partition, end in sorted(ends.items()):
            if end == 0 or (only is not None and partition not in only) or (after is not None and partition < after[0]):
                continue
            start = TopicPartition(topic, partition, 0)
            if after is not None and partition == after[0]:
                start.offset = after[1] + 1
            elif since_ms is not None:
                start = consumer.offsets_for_times([TopicPartition(topic, partition, since_ms)], _PATIENCE)[0]
                if start.offset < 0:
                    continue  # nothing is that new
            consumer.assign([start])
            yield from _partition(consumer, topic, end)
    finally:
        consumer.close()


def _partition(consumer: Consumer, topic: str, end: int) -> Iterator[Message]:
    waited = 0.0
    while True:
        records = consumer.consume(PAGE, 1.0)
        waited = 0.0 if records else waited + 1.0
        if waited > _PATIENCE:
            raise LogError(f"topic `{topic}` can't be read.", why=f"Nothing came for {_PATIENCE:g} s.", fix="try again")
        for record in records:
            problem = record.error()
            if problem is not None:
                if problem.code() == KafkaError._PARTITION_EOF:
                    return
                raise LogError(f"topic `{topic}` can't be read.", why=f"Kafka says: {problem.str()}")
            if (record.offset() or 0) >= end:
                return
            yield record


def _letter(record: Message) -> DeadLetter:
    headers: dict[str, Any] = dict(record.headers() or [])

    def text(name: str) -> str | None:
        value = headers.get(name)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    place = (text("headrace-source-topic"), text("headrace-source-partition"), text("headrace-source-offset"))
    topic, partition, offset = place
    at = datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC)
    return DeadLetter(
        partition=record.partition() or 0,
        offset=record.offset() or 0,
        at=at,
        reason=text("headrace-reason") or "no reason given",
        stack=text("headrace-stack"),
        id=text("headrace-id") or "",
        key=record.key(),
        value=record.value(),
        source=(topic, int(partition), int(offset)) if topic and partition and offset else None,
    )


def _payload(fixed: object) -> bytes | str | None:
    if fixed is None or isinstance(fixed, bytes | str):
        return fixed
    if isinstance(fixed, dict):
        return json.dumps(fixed)
    raise TypeError(f"the fixing function gave a {type(fixed).__name__}; it gives bytes, str, dict, or None")
