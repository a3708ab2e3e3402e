"""confluent-kafka's own client and serializers, unchanged, against the registry; and ours, in one call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

import headrace as hr
from headrace.contracts.embedded import EmbeddedRegistry
from headrace.contracts.proto_schemas import parse_proto
from headrace.errors import ContractNotFoundError, IncompatibleContractError, InvalidContractError
from headrace.log.broker import EmbeddedBroker
from tests.system.registry_calls import avro, subject

DEADLINE = 60.0
CARD = {"id": "c1", "n": 3}
AVRO = avro("id", "n=0")
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Card",
        "type": "object",
        "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["id"],
        "additionalProperties": False,
    }
)


@pytest.fixture
def client(registry: EmbeddedRegistry) -> Any:
    """Untyped: what it declares and what it returns differ in places."""
    return SchemaRegistryClient({"url": registry.url})


def message_class() -> Any:
    """What protoc makes of two files, one of which imports the other."""
    money = parse_proto('syntax = "proto3"; package shop; message Money { int64 cents = 1; }').file
    money.name = "shop/money.proto"
    text = """syntax = "proto3"; package shop; import "shop/money.proto"; import "google/protobuf/timestamp.proto";
              message Other {} message Card { string id = 1; Money limit = 2; google.protobuf.Timestamp at = 3;
              message Holder { string name = 1; } Holder holder = 4; }"""
    parsed = parse_proto(
        text, [("shop/money.proto", 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }')]
    )
    card = parsed.file
    card.name = "shop/card.proto"
    pool = DescriptorPool()
    for file in (parsed.imports["google/protobuf/timestamp.proto"], money, card):
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Card"))


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_round_trip(client: Any) -> None:
    topic = subject("avro")
    data = AvroSerializer(client, AVRO)(CARD, value_of(topic))
    assert data is not None
    assert data[0] == 0
    assert AvroDeserializer(client)(data, value_of(topic)) == CARD
    assert client.get_latest_version(f"{topic}-value").schema_id == int.from_bytes(data[1:5], "big")


def test_json_round_trip(client: Any) -> None:
    topic = subject("json")
    data = JSONSerializer(JSON, client)(CARD, value_of(topic))
    assert JSONDeserializer(JSON)(data, value_of(topic)) == CARD
    assert JSONDeserializer(None, schema_registry_client=client)(data, value_of(topic)) == CARD
    assert client.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"


def test_protobuf_round_trip_with_imports(registry: EmbeddedRegistry, client: Any) -> None:
    topic = subject("proto")
    card = message_class()
    sent = card(id="c1", limit={"cents": 500}, at={"seconds": 7}, holder={"name": "Ada"})
    conf = {"use.deprecated.format": False}
    data = ProtobufSerializer(card, client, conf)(sent, value_of(topic))
    assert ProtobufDeserializer(card, conf)(data, value_of(topic)) == sent
    fresh = SchemaRegistryClient({"url": registry.url})  # which has to ask for everything
    assert ProtobufDeserializer(card, conf, fresh)(data, value_of(topic)) == sent
    registered = client.get_latest_version(f"{topic}-value").schema
    assert [each.name for each in registered.references] == ["shop/money.proto"]  # Google's own are known everywhere
    assert "message Card {" in registered.schema_str


def test_the_clients_methods(client: Any) -> None:
    name = subject()
    schema = Schema(AVRO, "AVRO")
    id = client.register_schema(name, schema)
    assert client.get_schema(id).schema_str == AVRO
    assert client.lookup_schema(name, schema).version == 1
    assert client.get_version(name, 1).schema_id == id
    assert client.get_versions(name) == [1]
    assert name in client.get_subjects()
    assert client.get_subjects_by_schema_id(id)
    assert client.get_schema_versions(id)
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert client.set_compatibility(name, "FULL") == {"compatibility": "FULL"}
    assert client.get_compatibility(name) == "FULL"
    assert client.test_compatibility(name, Schema(avro("id"), "AVRO"))
    assert not client.test_compatibility(name, Schema(avro("id", "more"), "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(name, Schema(avro("id", "more"), "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode(name, "READONLY") == "READONLY"
    assert client.get_mode(name) == "READONLY"
    assert client.delete_mode(name) == "READONLY"
    user = subject()
    nested = avro("id").replace('"string"', '"Card"', 1).replace('"Card","fields"', '"User","fields"', 1)
    using = Schema(nested, "AVRO", [SchemaReference("Card", name, 1)])
    assert client.get_schema(client.register_schema(user, using)).references[0].subject == name
    assert client.delete_version(user, 1) == 1
    assert client.delete_subject(user, permanent=True) == [1]
    assert client.delete_subject(name) == [1]
    assert client.delete_subject(name, permanent=True) == [1]


def test_metadata_and_rules_are_kept_for_the_clients_that_act_on_them(registry: EmbeddedRegistry) -> None:
    from confluent_kafka.schema_registry import Metadata, MetadataProperties

    client, name = SchemaRegistryClient({"url": registry.url}), subject()
    owned = Schema(AVRO, "AVRO", metadata=Metadata(None, MetadataProperties({"owner": "fraud"}), None))
    plain = client.register_schema(name, Schema(AVRO, "AVRO"))
    id = client.register_schema(name, owned)
    assert id != plain
    fresh: Any = SchemaRegistryClient({"url": registry.url})
    assert fresh.get_schema(id).metadata.properties.properties == {"owner": "fraud"}


@pytest.mark.parametrize(
    ("naming", "expected"), [("topic", "{topic}-value"), ("record", "Card"), ("topic-record", "{topic}-Card")]
)
def test_subjects_are_named_by_strategy(registry: EmbeddedRegistry, naming: str, expected: str) -> None:
    topic = subject("named")
    data = hr.contracts.serializer(topic, AVRO, naming=naming, registry=registry.url)(CARD)
    found = hr.contracts.RegistryClient(registry.url).latest(expected.format(topic=topic))
    assert data is not None
    assert found.id == int.from_bytes(data[1:5], "big")


def test_a_producer_and_a_consumer_in_one_call(
    broker: EmbeddedBroker, registry: EmbeddedRegistry, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic("cards", partitions=1)
    file = tmp_path / "card.avsc"
    file.write_text(AVRO, encoding="utf-8")
    places = {"bootstrap": broker.bootstrap, "registry": registry.url}
    with hr.contracts.producer(name, file, **places) as cards:
        cards.send(CARD, key="c1", headers={"from": "test"})
        cards.send(None, key="c1")
        with pytest.raises(InvalidContractError, match="does not fit"):
            cards.send({"id": 7})
    with hr.contracts.producer(name, **places) as cards:  # with the schema that is there
        cards.send({"id": "c2", "n": 0}, key="c2")
    json_name = topic("cards-json", partitions=1)
    with hr.contracts.producer(json_name, JSON, type="json", **places) as cards:
        cards.send({"id": "j"}, key="j")
    with hr.contracts.consumer(name, group="view", **places) as cards:
        received = [next(iter(cards)) for _ in range(3)]
    assert [(each.key, each.value) for each in received] == [
        (b"c1", CARD),
        (b"c1", None),
        (b"c2", {"id": "c2", "n": 0}),
    ]
    with hr.contracts.consumer(json_name, group="view", **places) as cards:
        assert next(iter(cards)).value == {"id": "j"}


def test_the_client_translates_what_the_registry_says(registry: EmbeddedRegistry) -> None:
    client, name = hr.contracts.RegistryClient(registry.url), subject()
    with pytest.raises(ContractNotFoundError, match="40401"):
        client.latest(name)
    assert client.lookup(name, AVRO) is None
    assert client.compatible(name, AVRO) == []
    id = client.register(name, AVRO)
    assert client.schema_by_id(id) == hr.contracts.Schema(id, hr.contracts.SchemaType.AVRO, AVRO)
    assert client.schema_by_id(id) is client.schema_by_id(id)
    with pytest.raises(IncompatibleContractError, match="more: the reader has no default"):
        client.register(name, avro("id", "more"))
    assert "more" in client.compatible(name, avro("id", "more"))[0]
    with pytest.raises(InvalidContractError, match="42201"):
        client.register(name, "{")
    other = subject()
    reference = hr.contracts.Reference("Card", name, 1)
    client.register(other, '{"type": "array", "items": "Card"}', references=[reference])
    assert client.resolve_references(client.latest(other))["Card"].text == AVRO
