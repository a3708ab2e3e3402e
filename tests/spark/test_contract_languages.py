"""Protobuf and JSON Schema under a contract; Protobuf against Google's own library, by a compiled descriptor."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from headrace.pipeline.contracts import ContractSchema
from tests.spark.contract_rows import framed, through
from tests.spark.registry_stub import StubRegistry, stub_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
// The message that nobody reads here: message { in a comment.
message Refund { string id = 1; }
message Order {
  string id = 1;
  Status status = 2;
  repeated Line lines = 3;
  map<string, double> attrs = 4;
  google.protobuf.Timestamp at = 5;
  oneof pay { string card = 6; Cash cash = 7; }
  optional int32 rank = 8;
  repeated sint32 packed = 9;
  uint64 big = 10;
  fixed32 crc = 11;
  bytes raw = 12;
  google.protobuf.StringValue note = 13;
  bool ok = 14;
  float ratio = 15;
  int64 negative = 16;
  repeated string tags = 17;
  message Line { string sku = 1; int32 n = 2; message Deep { string x = 1; } Deep deep = 3; }
  enum Status { NEW = 0; PAID = 1; }
  message Cash { sint64 cents = 1; }
}
"""


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with stub_registry() as running:
        yield running


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> descriptor_pb2.FileDescriptorSet:
    folder = tmp_path_factory.mktemp("proto")
    (folder / "orders.proto").write_text(ORDERS)
    include = Path(protoc.__file__).parent / "_proto"
    done = protoc.main(
        [
            "protoc",
            f"-I{folder}",
            f"-I{include}",
            "--include_imports",
            f"--descriptor_set_out={folder}/set",
            "orders.proto",
        ]
    )
    assert done == 0
    return descriptor_pb2.FileDescriptorSet.FromString((folder / "set").read_bytes())


@pytest.fixture(scope="module")
def order_class(compiled: descriptor_pb2.FileDescriptorSet) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in compiled.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def an_order(order_class: Any) -> Any:
    order = order_class(id="o-1", status=1, card="4242", rank=0, big=2**64 - 1, crc=2**32 - 1, raw=b"\x00\xff", ok=True)
    order.lines.add(sku="a", n=-2).deep.x = "deep"
    order.lines.add(sku="b")
    order.attrs["w"] = 1.5
    order.at.FromMilliseconds(1_700_000_000_123)
    order.packed.extend([-1, 300, 0])
    order.note.value = ""
    order.ratio = 0.5
    order.negative = -(2**63)
    order.tags.extend(["x", ""])
    return order


ROW = {
    "id": "o-1",
    "status": "PAID",
    "lines": [{"sku": "a", "n": -2, "deep": {"x": "deep"}}, {"sku": "b", "n": 0}],
    "attrs": {"w": 1.5},
    "at": "2023-11-14T22:13:20.123Z",
    "card": "4242",
    "rank": 0,
    "packed": [-1, 300, 0],
    "big": 2**64 - 1,
    "crc": 2**32 - 1,
    "raw": "AP8=",
    "note": "",
    "ok": True,
    "ratio": 0.5,
    "negative": -(2**63),
    "tags": ["x", ""],
}
ORDER_PATH = b"\x02\x02"  # one index, 1: the second message


def test_protobuf_is_what_googles_library_writes_and_reads(
    spark: SparkSession, registry: StubRegistry, order_class: Any
) -> None:
    registry.add(1, ORDERS, "PROTOBUF")
    order = an_order(order_class)
    payloads = [framed(1, ORDER_PATH + message.SerializeToString()) for message in (order, order_class())]
    full, empty = through(spark, registry.url, ContractSchema("PROTOBUF", ORDERS), payloads, message="Order")
    assert full.row == ROW
    assert empty.row == {
        "id": "",
        "status": "NEW",
        "lines": [],
        "attrs": {},
        "packed": [],
        "big": 0,
        "crc": 0,
        "raw": "",
        "ok": False,
        "ratio": 0.0,
        "negative": 0,
        "tags": [],
    }
    for found, message in ((full, order), (empty, order_class())):
        assert found.payload is not None
        assert found.payload[:7] == framed(1, ORDER_PATH)
        assert order_class.FromString(found.payload[7:]) == message


def test_protobuf_schemas_registered_as_descriptors(
    spark: SparkSession, registry: StubRegistry, order_class: Any, compiled: descriptor_pb2.FileDescriptorSet
) -> None:
    """Python's serializers register a serialized descriptor in base64, not text."""
    (file,) = [f for f in compiled.file if f.name == "orders.proto"]
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.add(1, text, "PROTOBUF")
    payload = framed(1, ORDER_PATH + an_order(order_class).SerializeToString())
    contract = ContractSchema("PROTOBUF", text)
    assert dict(contract.columns("Order")) == dict(ContractSchema("PROTOBUF", ORDERS).columns("Order"))
    (found,) = through(spark, registry.url, contract, [payload], message="shop.Order")
    assert found.row == ROW


def test_what_is_wrong_with_a_protobuf_payload(spark: SparkSession, registry: StubRegistry, order_class: Any) -> None:
    registry.add(1, ORDERS, "PROTOBUF")
    good = ORDER_PATH + order_class(id="x").SerializeToString()
    bad = {
        framed(1, b"\x00\x0a\x01x"): "the payload is a message `shop.Refund`, the contract's is `shop.Order`",
        framed(1, b"\x02\x0a"): "the payload names the message [5], which its schema does not have",
        framed(1, b"\x04\x02\x00"): "the payload is a message `shop.Order.Line`, the contract's is `shop.Order`",
        framed(1, b""): "the payload ends too early",
        framed(1, good[:-1]): "the payload ends too early",
        framed(1, ORDER_PATH + b"\x08\x01"): "field `id` has another type than in the contract (wire type 0, not 2)",
        framed(1, ORDER_PATH + b"\x1a\x02\x08\x01"): "field `lines.sku` has another type than in the contract",
        framed(1, ORDER_PATH + b"\x0a\x01\xff"): "the payload has text that is not UTF-8",
        framed(1, ORDER_PATH + b"\x0f"): "field `id` has another type than in the contract (wire type 7, not 2)",
        framed(1, ORDER_PATH + b"\xfb\x7f"): "the payload has a group, which no field of a contract is",
        framed(1, b"\xff\xff\x03"): "the payload's message indexes are broken",
    }
    contract = ContractSchema("PROTOBUF", ORDERS)
    found = through(spark, registry.url, contract, [*bad, framed(1, good)], message="Order")
    for each, (payload, reason) in zip(found, bad.items(), strict=False):
        assert (each.reason or "").startswith(reason), payload
    assert (found[-1].row or {})["id"] == "x"


def test_a_protobuf_reader_takes_fields_that_are_newer_and_older(spark: SparkSession, registry: StubRegistry) -> None:
    written = 'syntax = "proto3"; message E { string id = 1; int32 old = 2; repeated int64 more = 77; }'
    read = 'syntax = "proto3"; message E { string id = 1; optional string new = 3; double zero = 4; }'
    registry.add(1, written, "PROTOBUF")
    payload = framed(1, b"\x00\x0a\x01x\x10\x05\xea\x04\x01\x09")
    (found,) = through(spark, registry.url, ContractSchema("PROTOBUF", read), [payload])
    assert found.row == {"id": "x", "zero": 0.0}


def test_json_schema(spark: SparkSession, registry: StubRegistry) -> None:
    money = {"$id": "money.json", "type": "object", "properties": {"units": {"type": "integer"}}}
    schema = {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string"},
            "at": {"type": "string", "format": "date-time"},
            "price": {"$ref": "money.json"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "any": {},
        },
    }
    registry.add(1, json.dumps(schema), "JSON")
    contract = ContractSchema("JSON", json.dumps(schema), (("money.json", json.dumps(money)),))
    assert contract.columns().ddl() == (
        "`id` string NOT NULL, `at` timestamp, `price` struct<units:bigint>, `tags` array<string>, "
        "`note` string, `any` string"
    )
    good = {
        "id": "x",
        "at": "2024-05-01T12:00:00Z",
        "price": {"units": 5},
        "tags": ["a"],
        "any": {"deep": [1]},
        "more": 1,
    }
    payloads = [json.dumps(good).encode(), b'{"id": 1, "price": 5}', b'{"note": "no id"}', b"[]", b"{", b"\xff"]
    found = through(spark, registry.url, contract, [framed(1, payload) for payload in payloads])
    assert found[0].row == {
        "id": "x",
        "at": "2024-05-01T12:00:00.000Z",
        "price": {"units": 5},
        "tags": ["a"],
        "any": '{"deep":[1]}',
    }
    assert json.loads((found[0].payload or b"")[5:]) == found[0].row
    assert [each.reason for each in found[1:]] == [
        "field `price` is not a struct<units:bigint>",
        None,
        "the payload is not a JSON object",
        "the payload is not a JSON object",
        "the payload is not UTF-8 text",
    ]
    assert found[2].unfit == "field `id` is null, but the contract requires it"
