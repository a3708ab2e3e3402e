"""Payments under two versions of a contract, for tests of contracts."""

from __future__ import annotations

import io
from typing import Any

import fastavro

START = 1_714_564_800_000
TIME = {"type": "long", "logicalType": "timestamp-millis"}
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "card", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "legacy", "type": "string", "default": "-"},
        {"name": "at", "type": TIME},
    ],
}
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [
        *(f for f in FIRST["fields"] if f["name"] not in ("legacy", "card")),
        {"name": "card_id", "type": "string", "aliases": ["card"]},
        {"name": "currency", "type": "string", "default": "EUR"},
    ],
}


def payload(id: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO(b"\x00" + id.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas={}), value)
    return out.getvalue()


def first(n: int, amount: float = 1.0) -> dict[str, Any]:
    return {"id": f"p{n}", "card": "c", "amount": amount, "legacy": "x", "at": START + n * 1000}


def second(n: int, amount: float = 1.0) -> dict[str, Any]:
    return {"id": f"p{n}", "card_id": "c", "amount": amount, "currency": "USD", "at": START + n * 1000}
