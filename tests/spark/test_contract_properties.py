"""Random schemas and values against fastavro; random bytes against everything."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.pipeline.contracts import ContractSchema
from tests.spark.avro_strategies import cases, evolutions
from tests.spark.contract_rows import avro, avro_bytes, avro_value, framed, through
from tests.spark.registry_stub import StubRegistry, stub_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "15"))
"""`make fuzz` has many more: each is a Spark job."""
SETTINGS = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
_ids = count(1)


@pytest.fixture(scope="module")
def registry() -> Iterator[StubRegistry]:
    with stub_registry() as running:
        yield running


@SETTINGS
@given(case=cases())
def test_random_values_round_trip(spark: SparkSession, registry: StubRegistry, case: tuple[Any, list[Any]]) -> None:
    schema, values = case
    id = registry.add(next(_ids), json.dumps(schema))
    payloads = [framed(id, avro_bytes(schema, value)) for value in values]
    found = through(spark, registry.url, avro(schema), payloads, id=id)
    assert [(each.reason, each.unfit) for each in found] == [(None, None)] * len(values)
    assert [each.payload for each in found] == payloads


def one_field(kind: str) -> dict[str, Any]:
    return {"type": "record", "name": "One", "fields": [{"name": "f", "type": kind}]}


@SETTINGS
@given(case=evolutions())
@example(case=(one_field("long"), one_field("float"), [{"f": 2**24 + 1}]))
def test_random_evolutions_are_read_as_fastavro_reads_them(
    spark: SparkSession, registry: StubRegistry, case: tuple[Any, Any, list[Any]]
) -> None:
    written, read, values = case
    id = registry.add(next(_ids), json.dumps(written))
    payloads = [framed(id, avro_bytes(written, value)) for value in values]
    found = through(spark, registry.url, avro(read), payloads, id=id)
    assert [(each.reason, each.unfit) for each in found] == [(None, None)] * len(values)
    # Written and read once more: fastavro promotes a long to a double where the schema says float.
    expected = [avro_value(framed(id, avro_bytes(read, avro_value(p, written, read))), read) for p in payloads]
    assert [avro_value(each.payload or b"", read) for each in found] == expected


RANDOM = {
    "AVRO": json.dumps(
        {
            "type": "record",
            "name": "Any",
            "fields": [
                {"name": "n", "type": "long"},
                {"name": "s", "type": ["null", "string", "long"]},
                {"name": "list", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
                {"name": "nothing", "type": {"type": "array", "items": "null"}},
                {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}},
                {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            ],
        }
    ),
    "PROTOBUF": """
        syntax = "proto3"; package t; import "google/protobuf/timestamp.proto";
        message Any { int64 n = 1; repeated sint32 list = 2; map<string, Any.In> m = 3; string s = 4;
          google.protobuf.Timestamp t = 5; fixed64 big = 6; message In { double d = 1; repeated string s = 2; } }
    """,
    "JSON": json.dumps(
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "list": {"type": "array", "items": {"type": "number"}},
                "t": {"type": "string", "format": "date-time"},
            },
        }
    ),
}


@pytest.mark.parametrize("kind", sorted(RANDOM))
@settings(SETTINGS, max_examples=max(1, EXAMPLES // 2))
@given(data=st.data())
def test_random_bytes_are_rows_or_have_a_reason(
    spark: SparkSession, registry: StubRegistry, kind: str, data: st.DataObject
) -> None:
    id = registry.add(next(_ids), RANDOM[kind], kind)
    anything = st.binary(max_size=60)
    behind = anything.map(lambda body: framed(id, body))
    zeros = st.lists(st.sampled_from([0, 0, 1, 2, 0x7F, 0x80, 0xFF, 10, 18, 26, 42]), max_size=40).map(bytes)
    payloads = data.draw(
        st.lists(anything | behind | zeros.map(lambda body: framed(id, body)), min_size=1, max_size=60)
    )
    good = {"AVRO": b"\x00" * 4 + b"\x02\x00\x00", "PROTOBUF": b"\x00\x08\x01", "JSON": b'{"n": 1}'}[kind]
    found = through(spark, registry.url, ContractSchema(kind, RANDOM[kind]), [*payloads, framed(id, good)])
    assert len(found) == len(payloads) + 1
    assert all((each.row is None) != (each.reason is None) for each in found)
    assert found[-1].reason is None, "what comes after them is read as ever"
