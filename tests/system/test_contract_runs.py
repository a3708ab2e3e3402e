"""Pipelines under contracts, on a real broker with a real registry: decode, encode, evolve, refuse, restart."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

import headrace as hr
from headrace.contracts import Reference, RegistryClient
from headrace.contracts.embedded import EmbeddedRegistry
from headrace.engine.settings import Mode
from headrace.log.broker import EmbeddedBroker
from tests.system.payments import FIRST, SECOND, START, first, payload, second
from tests.system.records import LogReader, Record, Sent, produce
from tests.system.running import Engine, fresh

Topic = Callable[..., str]


def decoded(client: RegistryClient, record: Record) -> Any:
    """What another reader of the log finds: by the id in the payload."""
    assert record.value is not None
    schema = json.loads(client.schema_by_id(int.from_bytes(record.value[1:5], "big")).text)
    return fastavro.schemaless_reader(io.BytesIO(record.value[5:]), fastavro.parse_schema(schema, named_schemas={}))


def test_versions_mixed_in_a_batch_dead_letters_and_an_encoded_output(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    name, source = fresh("mixed"), topic("mixed", partitions=1)
    client.set_compatibility("BACKWARD", f"{source}-value")
    one = client.register(f"{source}-value", json.dumps(FIRST))
    two = client.register(f"{source}-value", json.dumps(SECOND))
    sent = [
        Sent(payload(one, FIRST, first(0))),
        Sent(b"not avro"),
        Sent(payload(two, SECOND, second(1, 2.5))),
        Sent(payload(987654, SECOND, second(1))),
        Sent(payload(one, FIRST, first(2))[:-1]),
        Sent(None),
        Sent(payload(one, FIRST, first(3, -1.0))),
    ]
    produce(engine.bootstrap, source, sent)
    pipeline = hr.Pipeline(name)
    payments = pipeline.read(source, contract=f"{source}-value").event_time("at")
    payments.key_by("card_id").rolling("spend", total=hr.last("1h").sum("amount")).select(
        "id", "card_id", "total", "currency", "at", even="CAST(total AS DECIMAL(10,2))"
    ).write(f"{name}-out", contract=f"{name}-out-value")
    batches = engine.replay(pipeline, tmp_path)
    rows = [decoded(client, record) for record in engine.read(f"{name}-out")]
    assert [(r["id"], r["card_id"], r["total"], r["currency"], str(r["even"])) for r in rows] == [
        ("p0", "c", 1.0, "EUR", "1.00"),
        ("p1", "c", 3.5, "USD", "3.50"),
        ("p3", "c", 2.5, "EUR", "2.50"),
    ]
    letters = {letter.source[1]: letter for letter in engine.read(f"{name}.dead-letters")}
    assert {offset: letter.reason for offset, letter in letters.items()} == {
        1: "the payload starts with the byte 0x6e, not with the magic byte 0x00",
        3: "schema id 987654 is not in the registry",
        4: "the payload ends too early",
        5: "the payload is null",
    }
    assert letters[4].value == sent[4].value, "the original bytes"
    assert sum(batch.dead_letters for batch in batches) == 4
    written = client.latest(f"{name}-out-value")
    assert written.version == 1
    assert [f["name"] for f in json.loads(written.text)["fields"]] == [
        "id", "card_id", "total", "currency", "at", "even",
    ]  # fmt: skip


def test_a_row_that_does_not_fit_the_contract_of_its_output_is_a_dead_letter(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    name, source = fresh("unfit"), topic("unfit", partitions=1)
    schema = tmp_path / "out.avsc"
    kinds = {"type": "enum", "name": "Kind", "symbols": ["card", "cash"]}
    fields = [{"name": "id", "type": "string"}, {"name": "kind", "type": kinds}]
    schema.write_text(json.dumps({"type": "record", "name": "Out", "fields": fields}))
    rows = [{"id": "a", "kind": "card"}, {"id": "b", "kind": "gold"}, {"kind": "cash"}, {"id": "d", "kind": "cash"}]
    produce(engine.bootstrap, source, [Sent.row(row) for row in rows])
    pipeline = hr.Pipeline(name)
    pipeline.read(source, schema="id STRING, kind STRING").write(
        f"{name}-out", contract=hr.contract(f"{name}-value", schema=schema)
    )
    batches = engine.replay(pipeline, tmp_path / "checkpoint")
    assert [decoded(client, r) for r in engine.read(f"{name}-out")] == [rows[0], rows[3]]
    letters = engine.read(f"{name}.dead-letters")
    assert [(letter.row, letter.reason) for letter in letters] == [
        (rows[1], "field `kind` is `gold`, a symbol that the contract does not have"),
        (rows[2], "field `id` is null, but the contract has no null there"),
    ]
    assert [letter.headers["headrace-source-offset"] for letter in letters] == ["1", "2"]
    assert sum(batch.dead_letters for batch in batches) == 2


def test_contracts_in_real_time(engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path) -> None:
    name, source = fresh("live"), topic("live", partitions=1)
    one = client.register(f"{source}-value", json.dumps(FIRST))
    pipeline = hr.Pipeline(name)
    counted = pipeline.read(source, contract=hr.contract(f"{source}-value", version=1)).event_time("at").key_by("card")
    counted.rolling("counted", n=hr.last("1h").count()).write(f"{name}-out", contract=f"{name}-value")
    with engine.live(pipeline, Mode.REALTIME, tmp_path):
        reader = LogReader(engine.bootstrap, f"{name}-out", f"{name}.dead-letters")
        produce(engine.bootstrap, source, [Sent(payload(one, FIRST, first(0))), Sent(b"?")])
        reader.until(lambda found: len(found) >= 2, "the first result and the dead letter")
        two = client.register(f"{source}-value", json.dumps({**FIRST, "doc": "seen for the first time while it runs"}))
        assert two != one
        produce(engine.bootstrap, source, [Sent(payload(two, FIRST, first(1)))])
        reader.until(lambda found: len(found) >= 3, "a record of a schema that is new")
        reader.close()
    results = [decoded(client, r) for r in reader.records if r.topic == f"{name}-out"]
    assert [(r["id"], r["n"]) for r in results] == [("p0", 1), ("p1", 2)]


def test_schemas_that_refer_to_others_are_read_and_written(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    name, source = fresh("refers"), topic("refers", partitions=1)
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "units", "type": "long"}]}
    fields: list[dict[str, Any]] = [{"name": "id", "type": "string"}, {"name": "price", "type": "shop.Money"}]
    order = {"type": "record", "name": "shop.Order", "fields": fields}
    client.register(f"{name}-money", json.dumps(money))
    refers = [Reference("shop.Money", f"{name}-money", 1)]
    id = client.register(f"{source}-value", json.dumps(order), references=refers)
    client.register(f"{name}-value", json.dumps(order), references=refers)
    whole = {**order, "fields": [fields[0], {"name": "price", "type": money}]}
    produce(engine.bootstrap, source, [Sent(payload(id, whole, {"id": "a", "price": {"units": 5}}))])
    pipeline = hr.Pipeline(name)
    orders = pipeline.read(source, contract=f"{source}-value")
    orders.with_column("double", "price.units * 2").write(f"{name}-out", contract=f"{name}-value")
    engine.replay(pipeline, tmp_path)
    (written,) = engine.read(f"{name}-out")
    latest = client.latest(f"{name}-value")
    assert (latest.version, latest.references) == (2, tuple(refers))
    grown = {**whole, "fields": [*whole["fields"], json.loads(latest.text)["fields"][2]]}
    assert written.value is not None
    found = fastavro.schemaless_reader(io.BytesIO(written.value[5:]), fastavro.parse_schema(grown, named_schemas={}))
    assert found == {"id": "a", "price": {"units": 5}, "double": 10}


PROTO = """
syntax = "proto3";
package shop;
message Refund { string id = 1; }
message Order { string id = 1; optional double total = 2; repeated string tags = 3; }
"""
JSON = {
    "type": "object",
    "title": "Order",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "total": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def test_protobuf_and_json_schema_out_and_in_again(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    name, source = fresh("languages"), topic("languages", partitions=1)
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "order.json").write_text(json.dumps(JSON))
    rows: list[dict[str, Any]] = [{"id": "a", "total": 1.5, "tags": ["x", "y"]}, {"id": "b", "tags": []}]
    produce(engine.bootstrap, source, [Sent.row(row) for row in [*rows, {"total": 1.0, "tags": ["no id"]}]])
    writing = hr.Pipeline(name)
    orders = writing.read(source, schema="id STRING, total DOUBLE, tags ARRAY<STRING>")
    proto = hr.contract(f"{name}-proto-value", schema=tmp_path / "order.proto", message="Order")
    orders.write(f"{name}-proto", contract=proto)
    orders.write(f"{name}-json", contract=hr.contract(f"{name}-json-value", schema=tmp_path / "order.json"))
    engine.replay(writing, tmp_path / "out")
    assert sorted(letter.reason for letter in engine.read(f"{name}.dead-letters")) == [
        "field `id` is null, but the contract has no null there",
        "field `id` is null, but the contract requires it",
    ]
    reading = hr.Pipeline(f"{name}-back")
    for kind in ("proto", "json"):
        message = "shop.Order" if kind == "proto" else ""
        agreed = hr.contract(f"{name}-{kind}-value", message=message)
        reading.read(f"{name}-{kind}", contract=agreed).write(f"{name}-{kind}-back")
    engine.replay(reading, tmp_path / "back")
    for kind in ("proto", "json"):
        back = [
            {k: float(v) if k == "total" else v for k, v in r.row.items()} for r in engine.read(f"{name}-{kind}-back")
        ]
        assert back == rows


def test_a_registry_that_goes_away_delays_records_and_loses_none(
    engine: Engine, topic: Topic, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, source = fresh("away"), topic("away", partitions=1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = EmbeddedRegistry(broker.bootstrap, tmp_path / "registry", port=port).start()
    try:
        client = RegistryClient(running.url)
        monkeypatch.setenv("HEADRACE_REGISTRY", running.url)
        one = client.register(f"{source}-value", json.dumps(FIRST))
        two = client.register(f"{source}-value", json.dumps({**FIRST, "doc": "not asked for yet"}))
        pipeline = hr.Pipeline(name)
        pipeline.read(source, contract=f"{source}-value").select("id").write(f"{name}-out")
        with engine.live(pipeline, Mode.MICROBATCH, tmp_path / "checkpoint"):
            reader = LogReader(engine.bootstrap, f"{name}-out", f"{name}.dead-letters")
            produce(engine.bootstrap, source, [Sent(payload(one, FIRST, first(0)))])
            reader.until(lambda found: len(found) == 1, "a record of a schema that it knows")
            running.stop()
            produce(
                engine.bootstrap, source, [Sent(payload(two, FIRST, first(1))), Sent(payload(one, FIRST, first(2)))]
            )
            running.start()
            found = reader.until(lambda found: len(found) == 3, "the records that had to wait")
            reader.close()
    finally:
        running.stop()
    assert [(record.topic, record.row["id"]) for record in found] == [(f"{name}-out", f"p{n}") for n in range(3)]


def test_state_outlives_a_change_of_the_event_schema(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    """The state has columns of its own: fields may come, go and change places around them."""
    name, source = fresh("evolving"), topic("evolving", partitions=1)
    one = client.register(f"{source}-value", json.dumps(SECOND))

    def pipeline() -> hr.Pipeline:
        declared = hr.Pipeline(name)
        payments = declared.read(source, contract=f"{source}-value").event_time("at").dedupe("id", within="1d")
        payments.key_by("card_id").rolling(
            "spend", total=hr.last("1d").sum("amount"), before=hr.latest("id", back=1)
        ).write(f"{name}-out", contract=f"{name}-value")
        return declared

    produce(engine.bootstrap, source, [Sent(payload(one, SECOND, second(n))) for n in range(3)])
    engine.replay(pipeline(), tmp_path)
    later: dict[str, Any] = {
        **SECOND,
        "fields": [
            {"name": "channel", "type": ["null", "string"], "default": None},
            *(f for f in SECOND["fields"] if f["name"] != "currency"),
        ],
    }
    two = client.register(f"{source}-value", json.dumps(later))
    new = {"id": "p5", "card_id": "c", "amount": 4.0, "at": START + 5000, "channel": "web"}
    again = [
        Sent(payload(one, SECOND, second(1))),
        Sent(payload(one, SECOND, second(4))),
        Sent(payload(two, later, new)),
    ]
    produce(engine.bootstrap, source, again)
    engine.replay(pipeline(), tmp_path)
    rows = [decoded(client, r) for r in engine.read(f"{name}-out")]
    assert [(r["id"], r["total"], (r["before"] or {}).get("id"), r.get("channel")) for r in rows] == [
        ("p0", 1.0, None, None),
        ("p1", 2.0, "p0", None),
        ("p2", 3.0, "p1", None),
        ("p4", 4.0, "p2", None),
        ("p5", 8.0, "p4", "web"),
    ]
    versions = client.versions(f"{name}-value")
    assert versions == [1, 2], "the output's schema has grown with the stream"
    latest = json.loads(client.latest(f"{name}-value").text)
    assert {"channel"} < {f["name"] for f in latest["fields"]}
