"""Payloads through the kernel: decoded under a contract, and encoded again."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fastavro
from pyspark.sql import functions as F

from headrace.kernel import doorway
from headrace.pipeline.contracts import ContractSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Decoded:
    """A payload as it came through: its columns as JSON, or why there are none; and encoded again with the contract."""

    row: dict[str, Any] | None
    reason: str | None
    payload: bytes | None
    unfit: str | None


def through(
    spark: SparkSession,
    registry: str,
    contract: ContractSchema,
    payloads: Sequence[bytes | None],
    *,
    id: int = 1,
    message: str = "",
    patience_ms: int = 20_000,
    authorization: str | None = None,
) -> list[Decoded]:
    """Decodes the payloads with the contract, then encodes the rows with it under that id."""
    columns = contract.columns(message)
    ddl = ", ".join(f"`{c.name}` {c.type}" for c in columns.columns)
    spec = contract.spec(message)
    access = {"urls": [registry], "authorization": authorization, "patienceMs": patience_ms}
    given = spark.createDataFrame([(n, p) for n, p in enumerate(payloads)], "n INT, value BINARY").coalesce(1)
    parsed = given.select("n", doorway.from_contract(spark, F.col("value"), spec, ddl, "__reason", access).alias("p"))
    names = [c.name for c in columns.columns]
    row = F.struct(*(F.col("p").getField(name).alias(name) for name in names))
    flat = parsed.select("n", row.alias("row"), F.col("p").getField("__reason").alias("reason"))
    encoded = doorway.to_contract(flat, F.col("row"), spec, id)
    failed = F.col("reason").isNotNull()
    text = f"CAST({doorway.TO_JSON}(row) AS STRING) AS json"
    result = doorway.select(flat, ["row", text, "reason"], [F.when(~failed, encoded).alias("again")])
    return [
        Decoded(
            None if r["reason"] is not None else json.loads(r["json"]),
            r["reason"],
            None if r["again"] is None or r["again"]["value"] is None else bytes(r["again"]["value"]),
            None if r["again"] is None else r["again"]["reason"],
        )
        for r in result.collect()
    ]


def framed(id: int, body: bytes) -> bytes:
    """In Confluent's wire format."""
    return b"\x00" + id.to_bytes(4, "big") + body


def avro_bytes(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas={}), value)
    return out.getvalue()


def avro_value(payload: bytes, written: Any, read: Any = None) -> Any:
    """What fastavro reads after the header."""
    writer = fastavro.parse_schema(written, named_schemas={})
    reader = None if read is None else fastavro.parse_schema(read, named_schemas={})
    return fastavro.schemaless_reader(io.BytesIO(payload[5:]), writer, reader)


def avro(schema: Any) -> ContractSchema:
    return ContractSchema("AVRO", json.dumps(schema))
