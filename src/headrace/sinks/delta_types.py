"""Spark's types in a Delta table's own schema."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from headrace.pipeline.ddl import struct_columns
from headrace.pipeline.schema import Column

_NAMES = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}


def delta_schema(columns: Iterable[Column]) -> str:
    """The schema as a Delta table holds it, in JSON.

    >>> json.loads(delta_schema([Column("id", "bigint")]))["fields"][0]["type"]
    'long'
    """
    return json.dumps(_struct(columns))


def delta_type(spark: str) -> str | dict[str, Any]:
    """A Spark type in Delta's form.

    >>> delta_type("decimal(10,2)"), delta_type("array<bigint>")["elementType"]
    ('decimal(10,2)', 'long')
    """
    if spark.startswith("struct<"):
        return _struct(struct_columns(spark) or ())
    if spark.startswith("array<"):
        return {"type": "array", "elementType": delta_type(_inner(spark)), "containsNull": True}
    if spark.startswith("map<"):
        key, value = _pair(_inner(spark))
        return {"type": "map", "keyType": delta_type(key), "valueType": delta_type(value), "valueContainsNull": True}
    return _NAMES.get(spark, spark)


def _struct(columns: Iterable[Column]) -> dict[str, Any]:
    fields = [
        {"name": c.name, "type": delta_type(c.type or "string"), "nullable": True, "metadata": {}} for c in columns
    ]
    return {"type": "struct", "fields": fields}


def _inner(text: str) -> str:
    return text[text.index("<") + 1 : -1].strip()


def _pair(text: str) -> tuple[str, str]:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            return text[:i].strip(), text[i + 1 :].strip()
    raise ValueError(f"no key and value: {text}")
