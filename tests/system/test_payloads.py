"""Payloads that are no rows, and times that can't be: each leaves with its reason, and the stream goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.system.model import timestamp
from tests.system.records import Record, Sent, produce, to_json
from tests.system.running import Engine, fresh
from tests.system.wide_stream import START

Topic = Callable[..., str]

SCHEMA = """
    id STRING NOT NULL, k STRING, at TIMESTAMP, d DOUBLE, f FLOAT, n BIGINT, i INT, b TINYINT, m DECIMAL(10,2),
    ok BOOLEAN, day DATE, raw BINARY, tags ARRAY<STRING>, place STRUCT<city: STRING, zip: INT>,
    attrs MAP<STRING, DOUBLE>
"""
GOOD: dict[str, Any] = {"id": "x", "k": "a", "at": timestamp(START)}


def row(**changes: Any) -> bytes:
    return to_json(GOOD | changes).encode()


def without(*names: str) -> bytes:
    return to_json({name: value for name, value in GOOD.items() if name not in names}).encode()


BAD: list[tuple[str, bytes | None, str]] = [
    ("no payload", None, "the payload is null"),
    ("empty", b"", "the payload is not a JSON object"),
    ("blank", b"  \n", "the payload is not a JSON object"),
    ("broken", b'{"id": broken', "the payload is not a JSON object"),
    ("cut off", row()[:-5], "the payload is not a JSON object"),
    ("text", b"hello", "the payload is not a JSON object"),
    ("a JSON array", b"[" + row() + b"]", "the payload is not a JSON object"),
    ("a JSON string", b'"x"', "the payload is not a JSON object"),
    ("a JSON number", b"42", "the payload is not a JSON object"),
    ("a JSON null", b"null", "the payload is not a JSON object"),
    ("two objects", row() + row(), "the payload is not one JSON object: something follows it"),
    ("no UTF-8", b"\xff\xfe\x00", "the payload is not UTF-8 text"),
    ("no UTF-8 inside", row(id="@").replace(b"@", b"\xc3\x28"), "the payload is not UTF-8 text"),
    ("gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "the payload is not UTF-8 text"),
    ("nested very deeply", row(tags="@").replace(b'"@"', b"[" * 20_000), "the payload is not a JSON object"),
    ("text for a double", row(d="abc"), "field `d` is not a double"),
    ("a double beyond its range", row(d="@").replace(b'"@"', b"1e999"), "field `d` is not a double"),
    ("a double beyond a float", row(f=1e300), "field `f` is not a float"),
    ("a fraction for a bigint", row(n=1.5), "field `n` is not a bigint"),
    ("text for a bigint", row(n="7"), "field `n` is not a bigint"),
    ("a number beyond a bigint", row(n=99999999999999999999), "field `n` is not a bigint"),
    ("a number beyond an int", row(i=3_000_000_000), "field `i` is not a int"),
    ("a number beyond a tinyint", row(b=128), "field `b` is not a tinyint"),
    ("too many digits for a decimal", row(m=123456789), "field `m` is not a decimal(10,2)"),
    ("very many digits for a decimal", row(m="@").replace(b'"@"', b"1e10000"), "field `m` is not a decimal(10,2)"),
    ("text for a boolean", row(ok="yes"), "field `ok` is not a boolean"),
    ("no time", row(at="yesterday"), "field `at` is not a timestamp"),
    ("a boolean for a time", row(at=True), "field `at` is not a timestamp"),
    ("no day", row(day="2024-13-45"), "field `day` is not a date"),
    ("no base64", row(raw="@"), "field `raw` is not a binary"),
    ("text for an array", row(tags="x"), "field `tags` is not a array<string>"),
    ("an array for a struct", row(place=[1]), "field `place` is not a struct<city:string,zip:int>"),
    ("text in a field of a struct", row(place={"zip": "x"}), "field `place.zip` is not a int"),
    ("text for a double in a map", row(attrs={"a": "x"}), "field `attrs` is not a double"),
    ("no required field", without("id"), "required field `id` is missing or null"),
    ("null in a required field", row(id=None), "required field `id` is missing or null"),
    ("no key", without("k"), "required field `k` is missing or null"),
    ("no event time", without("at"), "required field `at` is missing or null"),
]


@pytest.fixture(scope="module")
def letters(engine: Engine, topic: Topic, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The bad payloads with good ones in between, run once."""
    name, source = fresh("payloads"), topic("payloads", partitions=1)
    sent = []
    for number, (_, payload, _) in enumerate(BAD):
        sent.append(Sent(row(id=f"good-{number}"), b"a"))
        sent.append(Sent(payload, f"key-{number}".encode()))
    produce(engine.bootstrap, source, sent)
    pipeline = hr.Pipeline(name)
    counted = (
        pipeline.read(source, schema=SCHEMA).event_time("at").key_by("k").rolling("counted", n_1m=hr.last("1m").count())
    )
    counted.write(f"{name}-results")
    counted.dead_letters.write(f"{name}-dead")
    batches = engine.replay(pipeline, tmp_path_factory.mktemp("payloads"))
    return {
        "source": source,
        "results": engine.read(f"{name}-results"),
        "dead": {record.source: record for record in engine.read(f"{name}-dead")},
        "counted": sum(batch.dead_letters for batch in batches),
    }


def test_good_events_between_bad_ones_all_count(letters: dict[str, Any]) -> None:
    assert [record.row["n_1m"] for record in letters["results"]] == list(range(1, len(BAD) + 1))


def test_every_bad_payload_is_a_dead_letter_once_and_is_counted(letters: dict[str, Any]) -> None:
    assert set(letters["dead"]) == {(0, 2 * number + 1) for number in range(len(BAD))}
    assert letters["counted"] == len(BAD)


@pytest.mark.parametrize("number", range(len(BAD)), ids=[name for name, _, _ in BAD])
def test_a_bad_payload_is_a_dead_letter_with_its_reason(letters: dict[str, Any], number: int) -> None:
    _, payload, reason = BAD[number]
    letter: Record = letters["dead"][0, 2 * number + 1]
    assert letter.reason.startswith(reason)
    assert letter.value == payload, "the original bytes"
    assert letter.key == f"key-{number}".encode()
    assert letter.headers["headrace-source-topic"] == letters["source"]
    assert letter.headers["headrace-source-partition"] == "0"
    assert letter.headers["headrace-source-offset"] == str(2 * number + 1)
    assert letter.id == f"{letters['source']}/0/{2 * number + 1}/counted"


MONSTERS = [
    ("at", str(START * 1_000_000)),  # nanoseconds where a number means seconds
    ("at", str(2**63 - 1)),
    ("m", "1e999999999"),  # more digits than the JVM has room for
    ("m", "1e500000000"),  # as many as it has room for, if it had hours to compute them
    ("m", "-123.45e500000000"),
    ("n", "1e999999999"),
    ("d", "1e999999999"),
]


def test_numbers_that_nothing_can_hold_do_not_stop_the_stream(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("monsters"), topic("monsters", partitions=1)
    monsters = [row(**{field: "@"}).replace(b'"@"', number.encode()) for field, number in MONSTERS]
    produce(engine.bootstrap, source, [Sent(row(id="first")), *(Sent(monster) for monster in monsters), Sent(row())])
    pipeline = hr.Pipeline(name)
    pipeline.read(source, schema=SCHEMA).write(f"{name}-out")
    engine.replay(pipeline, tmp_path)
    assert [record.row["id"] for record in engine.read(f"{name}-out")] == ["first", "x"]
    letters = engine.read(f"{name}.dead-letters")
    assert [letter.value for letter in letters] == monsters
    for letter, (field, _) in zip(letters, MONSTERS, strict=True):
        assert letter.reason.startswith(f"field `{field}` is not a ")


def test_what_is_unusual_but_right_is_read(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("unusual"), topic("unusual", partitions=1)
    text = 'quote " backslash \\ newline \n tab \t bell \x07 del \x7f é \u2028 \U0001f600'
    unusual = {
        "more": {"than": ["the", "schema"]},
        "id": text,
        "d": 1,
        "f": 0.1,
        "n": -(2**63),
        "m": 1.005,
        "day": "2024-02-29",
        "raw": "AAH/",
        "tags": [None, "x", 1, {"y": 2}],
        "place": {"city": None, "zip": 1},
        "attrs": {"é": 1.5, "none": None},
    }
    zones = ("2024-05-01T14:00:00+02:00", "2024-05-01 12:00:00", "2024-05-01T12:00:00.000000Z", START // 1000)
    sent = [Sent(row(**unusual)), *(Sent(row(id=str(i), at=at)) for i, at in enumerate(zones))]
    # A decimal that is next to nothing is zero, and costs no more than another.
    last = b'5, "d": "-Infinity", "m": 1e-500000000'
    sent.append(Sent(row(id="last", d="@", f="NaN").replace(b'"@"', last)))
    produce(engine.bootstrap, source, sent)
    pipeline = hr.Pipeline(name)
    pipeline.read(source, schema=SCHEMA).event_time("at").write(f"{name}-out")
    engine.replay(pipeline, tmp_path)
    rows = [record.row for record in engine.read(f"{name}-out")]
    first = {field: value for field, value in unusual.items() if field != "more"}
    first |= {"d": "1.0", "f": "0.1", "m": "1.01", "tags": [None, "x", "1", '{"y":2}'], "place": {"zip": 1}}
    assert rows[0] == GOOD | first | {"attrs": {"é": "1.5", "none": None}}
    assert [r["at"] for r in rows[1:5]] == [timestamp(START)] * 4
    assert (rows[5]["d"], rows[5]["f"], rows[5]["m"]) == ("-Infinity", "NaN", "0.00")


def skewed(name: str, source: str, max_skew: str | None, at: str = "TIMESTAMP") -> hr.Pipeline:
    pipeline = hr.Pipeline(name)
    counted = (
        pipeline.read(source, schema=f"k STRING, at {at}")
        .event_time("at", out_of_order="10s", max_skew=max_skew)
        .key_by("k")
        .rolling("counted", n=hr.last("1h").count())
    )
    counted.write(f"{name}-results")
    counted.late.write(f"{name}-late")
    if max_skew is not None:
        counted.quarantined.write(f"{name}-quarantined")
    return pipeline


def test_an_event_from_the_future_is_quarantined_and_moves_nothing(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    name, source = fresh("future"), topic("future", partitions=1)

    def event(seconds: float, sent_at: float) -> Sent:
        fields = {"k": "a", "at": timestamp(START + int(seconds * 1000))}
        return Sent.row(fields, key="record-key", timestamp_ms=START + int(sent_at * 1000))

    sent = [event(0, 0), event(86_400, 1), event(2, 2), event(303, 3), event(304.001, 4), event(295, 5), event(5, 6)]
    produce(engine.bootstrap, source, sent)
    batches = engine.replay(skewed(name, source, "5m"), tmp_path, max_rows=1)
    assert [(r.source[1], r.row["n"]) for r in engine.read(f"{name}-results")] == [(0, 1), (2, 2), (3, 3), (5, 3)]
    assert [record.source[1] for record in engine.read(f"{name}-late")] == [6], "the honest watermark goes on"
    far, near = engine.read(f"{name}-quarantined")
    assert (far.source[1], near.source[1]) == (1, 4)
    assert far.row == {"k": "a", "at": timestamp(START + 86_400_000)}
    assert far.key == b"a"
    assert far.reason == "event time `at` is 86399 s ahead of the record's own timestamp; max_skew allows 300 s"
    assert sum(batch.quarantined for batch in batches) == 2
    assert max(batch.watermark or "" for batch in batches) == "2024-05-01T12:04:53.000Z"


@pytest.mark.parametrize("max_skew", [None, "5m"])
def test_milliseconds_that_no_clock_can_show_do_not_stop_the_stream(
    engine: Engine, topic: Topic, tmp_path: Path, max_skew: str | None
) -> None:
    name, source = fresh("no-clock"), topic("no-clock", partitions=1)
    times = [START, START * 1_000_000, 2**63 - 1, -(2**63), START + 1]
    produce(engine.bootstrap, source, [Sent.row({"k": "a", "at": at}) for at in times])
    engine.replay(skewed(name, source, max_skew, at="BIGINT"), tmp_path)
    assert [(r.row["at"], r.row["n"]) for r in engine.read(f"{name}-results")] == [(START, 1), (START + 1, 2)]
    sides = [f"{name}.dead-letters", f"{name}-late", *([f"{name}-quarantined"] if max_skew else [])]
    assert sorted(record.source[1] for record in engine.read(*sides)) == [1, 2, 3]


def test_a_timestamp_beyond_all_calendars_is_a_dead_letter_and_moves_nothing(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    """As when a producer sends milliseconds: a number in a TIMESTAMP means seconds, and these are of the year 56300."""
    name, source = fresh("no-year"), topic("no-year", partitions=1)
    last = 253_402_300_799
    times = [START // 1000, START, -62_135_596_801, last + 1, START // 1000 + 1, -62_135_596_800, last]
    produce(engine.bootstrap, source, [Sent.row({"k": "a", "at": at}) for at in times])
    batches = engine.replay(skewed(name, source, None), tmp_path, max_rows=1)
    results = [(r.row["at"], r.row["n"]) for r in engine.read(f"{name}-results")]
    assert results == [(timestamp(START), 1), (timestamp(START + 1000), 2), ("9999-12-31T23:59:59.000Z", 1)]
    assert [record.source[1] for record in engine.read(f"{name}-late")] == [5], "the first second of the year 1"
    letters = engine.read(f"{name}.dead-letters")
    assert [letter.source[1] for letter in letters] == [1, 2, 3]
    assert {letter.reason for letter in letters} == {"event time `at` is no time between the years 1 and 9999"}
    assert max(batch.watermark or "" for batch in batches[:6]) == timestamp(START - 9000)
