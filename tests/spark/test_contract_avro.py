"""Avro under a contract: real messages, evolution, everything that can be wrong, and a registry that is down."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from headrace.pipeline.contracts import ContractSchema
from tests.spark.contract_rows import avro, avro_bytes, avro_value, framed, through
from tests.spark.registry_stub import StubRegistry, stub_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parents[1] / "data" / "contracts"


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with stub_registry() as running:
        yield running


def record(*fields: Any, name: str = "Event", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def test_debezium_change_events_of_flink(spark: SparkSession, registry: StubRegistry) -> None:
    text = (DATA / "debezium-test-schema.json").read_text()
    registry.add(0x51, text)
    payloads = [(DATA / f"debezium-avro-{kind}.avro").read_bytes() for kind in ("insert", "update", "delete")]
    insert, update, delete = through(spark, registry.url, ContractSchema("AVRO", text), payloads, id=0x51)
    assert [found.reason for found in (insert, update, delete)] == [None] * 3
    rows = [found.row or {} for found in (insert, update, delete)]
    assert [(r["op"], r.get("before", {}).get("name"), r.get("after", {}).get("name")) for r in rows] == [
        ("c", None, "lisi"),
        ("u", "lisi", "zhangsan"),
        ("d", "zhangsan", None),
    ]
    assert rows[0]["after"]["weight"] == pytest.approx(21.8, abs=1e-4)
    schema = json.loads(text)
    for payload, found in zip(payloads, (insert, update, delete), strict=True):
        assert found.payload is not None
        assert avro_value(found.payload, schema) == avro_value(payload, schema)
    assert registry.asked == [f"/schemas/ids/{0x51}"], "asked once, though there are several payloads"


def test_taxi_trips(spark: SparkSession, registry: StubRegistry) -> None:
    with (DATA / "nyc_taxi_1000.avro").open("rb") as file:
        reader = fastavro.reader(file)
        schema: Any = reader.writer_schema
        trips: list[Any] = list(reader)
    registry.add(7, json.dumps(schema))
    decoded = through(spark, registry.url, avro(schema), [framed(7, avro_bytes(schema, trip)) for trip in trips], id=7)
    assert len(trips) == 998
    assert [found.row for found in decoded] == [pytest.approx(trip) for trip in trips]


def test_versions_are_mixed_and_each_is_read_as_the_contract_says(spark: SparkSession, registry: StubRegistry) -> None:
    first = record(field("id", "int"), field("amout", "float"), field("gone", "string"), field("tag", "string"))
    second = record(field("id", "long"), field("amount", "double"), field("tag", ["null", "string"]))
    contract = record(
        field("id", "long"),
        field("amount", "double", aliases=["amout"]),
        field("tag", ["null", "string"]),
        field("currency", "string", default="EUR"),
        field("note", ["null", "string"], default=None),
        field("places", {"type": "array", "items": "int"}, default=[1, 2]),
    )
    registry.add(1, json.dumps(first))
    registry.add(2, json.dumps(second))
    registry.add(3, json.dumps(contract))
    payloads = [
        framed(1, avro_bytes(first, {"id": 1, "amout": 1.5, "gone": "x", "tag": "a"})),
        framed(2, avro_bytes(second, {"id": 2**40, "amount": 0.1, "tag": None})),
        framed(1, avro_bytes(first, {"id": 3, "amout": 2.5, "gone": "x", "tag": ""})),
        framed(
            3,
            avro_bytes(
                contract,
                {"id": 4, "amount": 4.0, "tag": "t", "currency": "USD", "note": "n", "places": []},
            ),
        ),
    ]
    decoded = through(spark, registry.url, avro(contract), payloads)
    assert [found.row for found in decoded] == [
        {"id": 1, "amount": 1.5, "tag": "a", "currency": "EUR", "places": [1, 2]},
        {"id": 2**40, "amount": 0.1, "currency": "EUR", "places": [1, 2]},
        {"id": 3, "amount": 2.5, "tag": "", "currency": "EUR", "places": [1, 2]},
        {"id": 4, "amount": 4.0, "tag": "t", "currency": "USD", "note": "n", "places": []},
    ]


def test_logical_types(spark: SparkSession, registry: StubRegistry) -> None:
    def logical(kind: Any, meaning: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": meaning, **more}

    fixed = {"name": "F9", "size": 9}
    schema = record(
        field("price", logical("bytes", "decimal", precision=10, scale=2)),
        field("fixed_price", logical("fixed", "decimal", precision=20, scale=4, **fixed)),
        field("millis", logical("long", "timestamp-millis")),
        field("micros", logical("long", "timestamp-micros")),
        field("local", logical("long", "local-timestamp-millis")),
        field("day", logical("int", "date")),
        field("id", logical("string", "uuid")),
        field("at", logical("int", "time-millis")),
    )
    text = json.dumps(schema)
    assert dict(ContractSchema("AVRO", text).columns()) == {
        "price": "decimal(10,2)",
        "fixed_price": "decimal(20,4)",
        "millis": "timestamp",
        "micros": "timestamp",
        "local": "timestamp_ntz",
        "day": "date",
        "id": "string",
        "at": "int",
    }
    registry.add(1, text)
    # Written by hand: what the bytes are is not left to another library's idea of logical types.
    body = b"\x04" + (-12345).to_bytes(2, "big", signed=True)
    body += (10**15 + 1).to_bytes(9, "big", signed=True)
    body += _zigzag(1_700_000_000_123) + _zigzag(-1) + _zigzag(1_700_000_000_000) + _zigzag(-1)
    body += b"\x48" + b"123e4567-e89b-12d3-a456-426614174000" + _zigzag(86_399_999)
    (found,) = through(spark, registry.url, ContractSchema("AVRO", text), [framed(1, body)])
    assert found.reason is None
    assert found.row == {
        "price": -123.45,
        "fixed_price": 100000000000.0001,
        "millis": "2023-11-14T22:13:20.123Z",
        "micros": "1969-12-31T23:59:59.999Z",
        "local": "2023-11-14T22:13:20.000",
        "day": "1969-12-31",
        "id": "123e4567-e89b-12d3-a456-426614174000",
        "at": 86_399_999,
    }
    assert found.payload == framed(1, body)


def _zigzag(n: int) -> bytes:
    value, out = (n << 1) ^ (n >> 63), b""
    while value > 0x7F:
        out += bytes([(value & 0x7F) | 0x80])
        value >>= 7
    return out + bytes([value])


def test_a_new_symbol_is_the_default_of_the_readers_enum_and_renamed_records_are_found(
    spark: SparkSession, registry: StubRegistry
) -> None:
    def schema(place: str, symbols: list[str], **more: Any) -> dict[str, Any]:
        kind = {"type": "enum", "name": "Kind", "symbols": symbols, **more}
        inner = record(field("city", "string"), name=place, **({"aliases": ["Place"]} if place != "Place" else {}))
        return record(field("kind", kind), field("where", ["null", inner]))

    written, read = schema("Place", ["A", "NEW"]), schema("Location", ["UNKNOWN", "A"], default="UNKNOWN")
    registry.add(1, json.dumps(written))
    values = [{"kind": "A", "where": {"city": "Bonn"}}, {"kind": "NEW", "where": None}]
    found = through(spark, registry.url, avro(read), [framed(1, avro_bytes(written, v)) for v in values])
    assert [each.row for each in found] == [{"kind": "A", "where": {"city": "Bonn"}}, {"kind": "UNKNOWN"}]


def test_the_unit_of_a_time_is_the_writers(spark: SparkSession, registry: StubRegistry) -> None:
    written = record(field("at", {"type": "long", "logicalType": "timestamp-millis"}))
    read = record(field("at", {"type": "long", "logicalType": "timestamp-micros"}))
    registry.add(1, json.dumps(written))
    (found,) = through(spark, registry.url, avro(read), [framed(1, _zigzag(1_700_000_000_123))])
    assert found.row == {"at": "2023-11-14T22:13:20.123Z"}


def test_unions_of_several_types_and_references(spark: SparkSession, registry: StubRegistry) -> None:
    money = record(field("units", "long"), field("currency", "string"), name="shop.Money")
    schema = record(
        field("price", "shop.Money"),
        field("what", ["null", "string", "long", {"type": "array", "items": "shop.Money"}]),
        field("n", ["int", "long"]),
        name="shop.Order",
    )
    reference = {"name": "shop.Money", "subject": "money", "version": 2}
    registry.versions["money", 2] = {"schema": json.dumps(money), "references": []}
    registry.add(5, json.dumps(schema), references=[reference])
    whole = {**schema, "fields": [field("price", money), *schema["fields"][1:]]}
    euro = {"units": 5, "currency": "EUR"}
    values: list[Any] = [
        {"price": euro, "what": None, "n": 1},
        {"price": euro, "what": "x", "n": 2**40},
        {"price": euro, "what": 7, "n": 1},
        {"price": euro, "what": [euro, euro], "n": 1},
    ]
    contract = ContractSchema("AVRO", json.dumps(schema), (("shop.Money", json.dumps(money)),))
    decoded = through(spark, registry.url, contract, [framed(5, avro_bytes(whole, v)) for v in values], id=5)
    assert [found.row for found in decoded] == [
        {"price": euro, "n": 1},
        {"price": euro, "what": {"member0": "x"}, "n": 2**40},
        {"price": euro, "what": {"member1": 7}, "n": 1},
        {"price": euro, "what": {"member2": [euro, euro]}, "n": 1},
    ]
    assert [avro_value(found.payload or b"", whole) for found in decoded] == values


LETTER = record(
    field("id", "long"),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    field("tags", {"type": "array", "items": "string"}),
    field("ok", "boolean"),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
)
GOOD = {"id": 1, "kind": "A", "tags": ["x"], "ok": True, "price": b"\x01"}
BODY = b"\x02\x00\x02\x02x\x00\x01\x02\x01"
WIDER = record(*LETTER["fields"], field("more", "string"))
OTHER = record(field("id", "string"), *LETTER["fields"][1:])
ENUM = record(
    LETTER["fields"][0], field("kind", {"type": "enum", "name": "Kind", "symbols": ["C", "A"]}), *LETTER["fields"][2:]
)

BAD = [
    ("empty", b"", "the payload is empty: it has no magic byte and no schema id"),
    ("no magic byte", b"{}", "the payload starts with the byte 0x7b, not with the magic byte 0x00"),
    ("too short for an id", b"\x00\x00\x01", "the payload has 3 bytes: too few for a schema id"),
    ("unknown id", framed(99, BODY), "schema id 99 is not in the registry"),
    ("negative id", framed(2**32 - 5, BODY), "schema id -5 is not in the registry"),
    ("nothing after the id", framed(1, b""), "the payload ends too early"),
    ("truncated", framed(1, BODY[:-1]), "the payload ends too early"),
    ("an endless number", framed(1, b"\xff" * 12), "the payload has a number of more than ten bytes"),
    ("a symbol out of range", framed(1, b"\x02\x0a"), "field `kind`: the payload names symbol 5 of an enum of 2"),
    ("no boolean", framed(1, b"\x02\x00\x00\x07"), "the payload has the byte 7 where a boolean is due"),
    ("a negative length", framed(1, b"\x02\x00\x02\x01"), "the payload has the negative length -1"),
    ("a length beyond the end", framed(1, b"\x02\x00\x02\xc8\x01"), "the payload ends too early"),
    ("text that is no UTF-8", framed(1, b"\x02\x00\x02\x02\xff\x00\x01"), "the payload has text that is not UTF-8"),
    ("items that can't be there", framed(1, b"\x02\x00\xfe\xff\xff\xff\x0f"), "the payload claims to have "),
    ("too many digits", framed(1, BODY[:-2] + b"\x06\x7f\xff\xff"), "field `price` is not a decimal(4,2)"),
    ("no digits", framed(1, BODY[:-2] + b"\x00"), "field `price` is not a decimal(4,2)"),
    ("another type of schema", framed(4, b"{}"), "schema id 4 is of type JSON, the contract is AVRO"),
    ("a schema that is none", framed(5, BODY), "schema id 5 can't be used: "),
    ("a field of another type", framed(3, b"\x02x" + BODY[1:]), "field `id`: the schema of the record does not fit"),
    ("a symbol that is new", framed(6, BODY), "field `kind` is `C`, a symbol that the contract does not have"),
]


def test_what_is_wrong_becomes_its_reason_and_the_rest_goes_on(spark: SparkSession, registry: StubRegistry) -> None:
    for id, schema in ((1, LETTER), (2, WIDER), (3, OTHER), (6, ENUM)):
        registry.add(id, json.dumps(schema))
    registry.add(4, "{}", "JSON")
    registry.add(5, '{"type": "no such type"}')
    payloads = [payload for _, payload, _ in BAD]
    good = framed(1, BODY)
    decoded = through(spark, registry.url, avro(LETTER), [p for bad in payloads for p in (bad, good)])
    for (name, _, reason), found in zip(BAD, decoded[::2], strict=True):
        assert (found.reason or "").startswith(reason), name
        assert found.row is None
    assert {(found.row or {}).get("id") for found in decoded[1::2]} == {1}
    assert registry.asked.count("/schemas/ids/99") == 1


def test_a_registry_that_is_down_makes_the_stream_wait(spark: SparkSession, registry: StubRegistry) -> None:
    registry.add(1, json.dumps(LETTER))
    registry.failing = 503

    def heal() -> None:
        while len(registry.asked) < 3:
            time.sleep(0.05)
        registry.failing = None

    healer = threading.Thread(target=heal)
    healer.start()
    (found,) = through(spark, registry.url, avro(LETTER), [framed(1, BODY)])
    healer.join()
    assert found.reason is None
    assert len(registry.asked) > 3


@pytest.mark.parametrize("status", [503, 404, 401])
def test_a_registry_that_stays_down_stops_the_query_and_blames_no_record(
    spark: SparkSession, registry: StubRegistry, status: int
) -> None:
    registry.failing = status
    with pytest.raises(Exception, match=r"the schema registry at http://127\.0\.0\.1") as failure:
        through(spark, registry.url, avro(LETTER), [framed(1, BODY)], patience_ms=200, authorization="Basic c2VjcmV0")
    assert "c2VjcmV0" not in str(failure.value)
    assert registry.authorizations == {"Basic c2VjcmV0"}
