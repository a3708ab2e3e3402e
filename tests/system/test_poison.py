"""Poison in the log: every bad record is a dead letter with the right reason, and the good ones go on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import headrace as hr
from headrace.engine.dead_letter_box import DeadLetter, DeadLetterBox
from headrace.engine.settings import OUTPUT_TOPIC
from headrace.log.topics import Topics
from tests.system.poison import MAX_BYTES, REASONS, SCHEMA, records
from tests.system.records import Sent, produce
from tests.system.running import Engine, fresh

Topic = Callable[..., str]
COUNT = 10_000


def test_every_kind_of_poison_is_in_dead_letters_with_its_reason(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    source = topic("poisoned", partitions=2)
    made = list(records(COUNT, seed=3))
    produce(engine.bootstrap, source, [Sent(value, None, i % 2) for i, (_, value) in enumerate(made)])
    pipeline = hr.Pipeline(fresh("poisoned"))
    rows = pipeline.read(source, schema=SCHEMA, max_bytes=MAX_BYTES)
    timed = rows.event_time("at", out_of_order="1h").key_by("card")
    timed.rolling("spend", spend=hr.last("1h").sum("amount")).write(f"{source}-out")
    progress = engine.replay(pipeline, tmp_path / "checkpoint")
    expected = Counter(kind for kind, _ in made if kind is not None)
    assert set(expected) == set(REASONS), "each kind is there"
    letters = engine.read(f"{pipeline.name}.dead-letters")
    found = Counter(next(k for k, reason in REASONS.items() if reason in letter.reason) for letter in letters)
    assert found == expected
    originals = {(i % 2, i // 2): value for i, (_, value) in enumerate(made)}
    assert all(letter.value == originals[letter.source] for letter in letters), "the original bytes"
    assert len(engine.read(f"{source}-out")) == COUNT - sum(expected.values())
    assert sum(batch.dead_letters for batch in progress) == sum(expected.values())


def test_a_record_as_large_as_the_broker_takes_does_not_stop_the_job(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    """As a dead letter it has headers that it did not have: it must still fit."""
    source = topic("large", partitions=1)
    noise = random.Random(1).randbytes(1_048_400)
    produce(engine.bootstrap, source, [Sent(noise), Sent.row({"id": 1})])
    pipeline = hr.Pipeline(fresh("large"))
    pipeline.read(source, schema="id BIGINT NOT NULL").write(f"{source}-out")
    engine.replay(pipeline, tmp_path / "checkpoint")
    (letter,) = engine.read(f"{pipeline.name}.dead-letters")
    assert letter.value == noise
    assert [record.row for record in engine.read(f"{source}-out")] == [{"id": 1}]


def test_a_record_as_large_as_the_broker_takes_can_be_a_dead_letter_of_a_sink(engine: Engine, topic: Topic) -> None:
    source = topic("large", partitions=1)
    letters = f"{source}-letters"
    Topics(engine.bootstrap).ensure(letters, config=OUTPUT_TOPIC)
    noise = random.Random(1).randbytes(1_048_400)
    produce(engine.bootstrap, source, [Sent(noise)])
    box = DeadLetterBox(engine.bootstrap, source, letters, "query")
    assert box.put([DeadLetter(0, 0, "too large for the store")]) == 1
    (letter,) = engine.read(letters)
    assert (letter.value, letter.reason) == (noise, "too large for the store")
