"""Dead letters from the log to the command line and back: seen, counted, repaired, sent once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.errors import LogError
from headrace.log.dead_letters import PAGE, DeadLetter, DeadLetters, Filter
from headrace.log.handled_letters import State
from headrace.log.topics import Topics
from tests.system.records import LogReader, Sent, produce, read_all
from tests.system.running import Engine, fresh, wait_for

Topic = Callable[..., str]


def poisoned(source: str) -> hr.Pipeline:
    pipeline = hr.Pipeline(fresh("letters"))
    pipeline.read(source, schema="id BIGINT NOT NULL, amount DOUBLE").write(f"{source}-out")
    return pipeline


@pytest.fixture
def poison(engine: Engine, topic: Topic, tmp_path: Path) -> tuple[str, hr.Pipeline]:
    """Ten good events and five bad ones, which a run has put into dead letters."""
    source = topic("poison", partitions=2)
    good = [Sent.row({"id": i, "amount": 1.5}, key=f"k{i}", partition=i % 2) for i in range(10)]
    bad = [
        Sent(b'{"id": 10, "amount": "12,50"}', b"k10"),
        Sent(b'{"id": 11, "amount": "7,25"}', b"k11", partition=1),
        Sent(b"\x1b[2Jno json", b"k12"),
        Sent(b"\xff\xfe", b"k13", partition=1),
        Sent(None, b"k14"),
    ]
    produce(engine.bootstrap, source, [*good, *bad])
    pipeline = poisoned(source)
    engine.replay(pipeline, tmp_path / "checkpoint")
    return source, pipeline


def command(engine: Engine, *words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    """What a command prints, as programs read it."""
    result = CliRunner().invoke(app, ["dead-letters", *words, "--bootstrap", engine.bootstrap, "--output", "json"])
    assert result.exit_code == exit_code, (result.output, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


def comma(letter: DeadLetter) -> bytes | None:
    """Repairs decimal commas, and nothing else."""
    text = (letter.value or b"").decode(errors="replace")
    return text.replace('"12,50"', "12.5").replace('"7,25"', "7.25").encode() if "," in text else None


def fails(letter: DeadLetter) -> bytes | None:
    raise ValueError("no idea")


def test_letters_are_listed_with_reason_source_and_bytes(engine: Engine, poison: tuple[str, hr.Pipeline]) -> None:
    source, pipeline = poison
    letters = list(DeadLetters(engine.bootstrap, pipeline.name).letters())
    assert {(letter.source, letter.value, letter.key) for letter in letters} == {
        ((source, 0, 5), b'{"id": 10, "amount": "12,50"}', b"k10"),
        ((source, 1, 5), b'{"id": 11, "amount": "7,25"}', b"k11"),
        ((source, 0, 6), b"\x1b[2Jno json", b"k12"),
        ((source, 1, 6), b"\xff\xfe", b"k13"),
        ((source, 0, 7), None, b"k14"),
    }
    counted = {row["reason"]: row["letters"] for row in command(engine, "list", pipeline.name, "--by-reason")}
    assert counted == {
        "field `amount` is not a double": 2,
        "the payload is not a JSON object": 1,
        "the payload is not UTF-8 text": 1,
        "the payload is null": 1,
    }


def test_pages_and_show(engine: Engine, poison: tuple[str, hr.Pipeline]) -> None:
    _, pipeline = poison
    whole = command(engine, "list", pipeline.name)
    first = command(engine, "list", pipeline.name, "--limit", "2")
    rest = command(engine, "list", pipeline.name, "--after", first[-1]["position"])
    assert first + rest == whole
    assert len(whole) == 5
    odd = next(row for row in whole if "UTF-8" in row["reason"])
    (shown,) = command(engine, "show", pipeline.name, odd["position"])
    assert (shown["value_base64"], shown["key"], shown["state"]) == ("//4=", "k13", "open")
    text = CliRunner().invoke(app, ["dead-letters", "list", pipeline.name, "--bootstrap", engine.bootstrap]).output
    assert "\x1b[2J" not in text, "a payload does not command the terminal"


def test_a_replay_repairs_what_it_can_and_sends_each_letter_once(
    engine: Engine, poison: tuple[str, hr.Pipeline], tmp_path: Path
) -> None:
    source, pipeline = poison
    fix = ("--fix", f"{__name__}:comma")
    (would,) = command(engine, "replay", pipeline.name, "--reason", "amount", "--dry-run")
    assert would["would_replay"] == 2
    (done,) = command(engine, "replay", pipeline.name, *fix)
    assert (done["replayed"], done["skipped"], done["failed"]) == (2, 3, 0)
    (again,) = command(engine, "replay", pipeline.name, *fix)
    assert (again["replayed"], again["skipped"]) == (0, 3)
    engine.replay(pipeline, tmp_path / "checkpoint")
    rows = sorted((r.row["id"], str(r.row["amount"]), r.key) for r in read_all(engine.bootstrap, f"{source}-out"))
    assert rows[10:] == [(10, "12.5", b"k10"), (11, "7.25", b"k11")]
    states = {row["state"]: row["letters"] for row in command(engine, "list", pipeline.name, "--by-reason", "--all")}
    assert states["replayed"] == 2


def no_zero(letter: DeadLetter) -> dict[str, Any]:
    """Repairs what can't be divided by."""
    row: dict[str, Any] = json.loads(letter.value or b"")
    return row | {"parts": 2}


def test_a_letter_that_failed_after_a_dedupe_is_no_duplicate_when_it_is_replayed(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    source = topic("shares", partitions=1)
    at = "2026-01-01T10:00:00Z"
    rows = [{"id": id, "who": "a", "parts": parts, "at": at} for id, parts in (("x", 1), ("y", 0), ("x", 1), ("y", 0))]
    produce(engine.bootstrap, source, map(Sent.row, rows[:3]))
    pipeline = hr.Pipeline(fresh("shares"))
    timed = pipeline.read(source, schema="id STRING, who STRING, parts INT, at TIMESTAMP").event_time("at")
    once = timed.key_by("who").dedupe("id", within="24h")
    once.window("shares", hr.tumbling("1m"), trigger=hr.each(), shares="sum(1 / parts)").write(f"{source}-out")
    engine.replay(pipeline, tmp_path / "checkpoint")
    (done,) = command(engine, "replay", pipeline.name, "--fix", f"{__name__}:no_zero")
    assert (done["replayed"], done["failed"]) == (1, 0)
    produce(engine.bootstrap, source, map(Sent.row, rows[3:]))
    batches = engine.replay(pipeline, tmp_path / "checkpoint")
    assert [float(r.row["shares"]) for r in read_all(engine.bootstrap, f"{source}-out")] == [1.0, 1.5]
    assert sum(batch.duplicates for batch in batches) == 1, "what comes after the repaired one is its copy"


def test_a_fix_that_fails_leaves_the_letter(engine: Engine, poison: tuple[str, hr.Pipeline]) -> None:
    source, pipeline = poison
    before = len(read_all(engine.bootstrap, source))
    (done,) = command(engine, "replay", pipeline.name, "--fix", f"{__name__}:fails", exit_code=1)
    assert (done["failed"], done["replayed"]) == (5, 0)
    assert "ValueError: no idea" in done["first_failure"]
    assert len(command(engine, "list", pipeline.name)) == 5
    assert len(read_all(engine.bootstrap, source)) == before


def test_dropped_letters_are_put_aside(engine: Engine, poison: tuple[str, hr.Pipeline]) -> None:
    _, pipeline = poison
    (done,) = command(engine, "drop", pipeline.name, "--reason", "null")
    assert done["dropped"] == 1
    assert len(command(engine, "list", pipeline.name)) == 4
    (dropped,) = command(engine, "list", pipeline.name, "--state", "dropped")
    assert dropped["reason"] == "the payload is null"
    assert command(engine, "drop", pipeline.name, exit_code=2) == [], "all of them only when asked for"


def test_a_record_with_two_letters_is_sent_once(engine: Engine, poison: tuple[str, hr.Pipeline], topic: Topic) -> None:
    """Real time writes a letter again after a crash: another position, the same record."""
    source, pipeline = poison
    letters = f"{pipeline.name}.dead-letters"
    twice = topic("twice", partitions=1)
    produced = [
        (record.value, record.key, [(name, value.encode()) for name, value in record.headers.items()])
        for record in read_all(engine.bootstrap, letters)
        if record.value is not None
    ]
    producer = Producer({"bootstrap.servers": engine.bootstrap})
    for value, key, headers in produced * 2:
        producer.produce(twice, value, key, headers=dict(headers))
    assert producer.flush(30) == 0
    before = len(read_all(engine.bootstrap, source))
    outcome = DeadLetters(engine.bootstrap, twice).replay(Filter())
    assert (outcome.done, outcome.repeated) == (4, 4)
    assert len(read_all(engine.bootstrap, source)) == before + 4


def test_a_replay_that_is_stopped_half_way_goes_on_from_there(engine: Engine, topic: Topic) -> None:
    source, letters = topic("origin", partitions=1), topic("many", partitions=1)
    count = 2 * PAGE + 200
    producer = Producer({"bootstrap.servers": engine.bootstrap})
    for number in range(count):
        place = {"topic": source, "partition": "0", "offset": str(number)}
        headers = {f"headrace-source-{name}": value.encode() for name, value in place.items()}
        producer.produce(letters, str(number).encode(), headers=dict(headers))
    assert producer.flush(30) == 0
    seen: list[str] = []

    def stopped(letter: DeadLetter) -> bytes | None:
        seen.append(letter.position)
        if len(seen) == PAGE + 100:
            # The second page is on its way: past the first one and the end of its transaction.
            wait_for(lambda: Topics(engine.bootstrap).end_offsets(source)[0] > PAGE + 1, "some of the second page")
            raise KeyboardInterrupt
        return letter.value

    with pytest.raises(KeyboardInterrupt):
        DeadLetters(engine.bootstrap, letters).replay(Filter(), fix=stopped)
    # A reader of what is committed does not wait for the page that was given up, which would time out after a minute.
    producer.produce(source, b"-1")
    assert producer.flush(30) == 0
    reader = LogReader(engine.bootstrap, source)
    reader.until(lambda records: bool(records) and records[-1].value == b"-1", "what came after the page", 30)
    reader.close()
    outcome = DeadLetters(engine.bootstrap, letters).replay(Filter())
    assert outcome.done == count - PAGE, "the first page had been sent"
    sent = [int(record.value or b"") for record in read_all(engine.bootstrap, source)]
    assert sorted(sent) == list(range(-1, count)), "each once"


def test_of_two_replays_at_once_one_gives_way(engine: Engine, poison: tuple[str, hr.Pipeline]) -> None:
    source, pipeline = poison
    before = len(read_all(engine.bootstrap, source))
    letters = DeadLetters(engine.bootstrap, pipeline.name)
    other: list[int] = []

    def meanwhile(letter: DeadLetter) -> bytes | None:
        if not other:
            other.append(letters.replay(Filter()).done)
        return letter.value

    with pytest.raises(LogError, match="another command handles"):
        letters.replay(Filter(), fix=meanwhile)
    assert other == [4], "null has nothing to send"
    assert len(read_all(engine.bootstrap, source)) == before + 4


def test_a_result_that_failed_has_its_stack_and_is_not_replayed(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    source = topic("failing", partitions=1)
    at = "2026-01-01T10:00:00Z"
    produce(engine.bootstrap, source, [Sent.row({"id": i, "at": at}) for i in (1, 0)])
    pipeline = hr.Pipeline(fresh("failing"))
    timed = pipeline.read(source, schema="id BIGINT NOT NULL, at TIMESTAMP").event_time("at")
    timed.window("ratio", hr.tumbling("1m"), trigger=hr.each(), ratio="sum(1 / id)").write(f"{source}-out")
    engine.replay(pipeline, tmp_path / "checkpoint")
    letters = list(DeadLetters(engine.bootstrap, pipeline.name).letters())
    assert letters
    for letter in letters:
        assert "ArithmeticException" in letter.reason
        assert letter.stack is not None
        assert "\tat " in letter.stack
        assert "\n" not in letter.reason
        assert letter.state is State.OPEN
