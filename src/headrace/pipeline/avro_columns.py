"""The columns of an Avro schema, found without Avro and without Spark."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidSchemaError
from headrace.pipeline.ddl import Column, check_names, struct_type
from headrace.pipeline.schema import Schema

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "timestamp-nanos"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
    ("long", "local-timestamp-nanos"): "timestamp_ntz",
}
_NAMED = ("record", "error", "enum", "fixed")
_MOST_DIGITS = 38


@dataclass(frozen=True)
class AvroColumns:
    """The columns, and those of them that a writer must give: no null, no default."""

    schema: Schema
    required: frozenset[str]


@functools.lru_cache(maxsize=256)
def avro_columns(text: str, references: tuple[tuple[str, str], ...] = ()) -> AvroColumns:
    """The columns of rows of a schema. What is no record has one column, `value`.

    >>> avro_columns('{"type": "record", "name": "Click", "fields": [{"name": "at", "type": ["null", "long"]}]}').schema
    Schema(columns=(Column(name='at', type='bigint', nullable=True),))
    """
    reader = _Reader()
    for name, reference in references:
        reader.type(_json(reference, f"`{name}`, to which it refers,"), "", ())
    schema = reader.expand(_json(text, "the schema"), "")
    if not (isinstance(schema, dict) and schema.get("type") in ("record", "error")):
        spark, nullable = reader.type(schema, "", ())
        return AvroColumns(
            Schema((Column("value", spark, nullable),)), frozenset() if nullable else frozenset({"value"})
        )
    columns = reader.fields(schema, ())
    without_default = {field["name"] for field in schema["fields"] if "default" not in field}
    required = frozenset(c.name for c in columns if not c.nullable and c.name in without_default)
    return AvroColumns(Schema(columns), required)


def _json(text: str, what: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as problem:
        # A primitive may stand without quotes.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise InvalidSchemaError(f"{what} is no Avro schema: it is no JSON.", why=str(problem)) from problem
    return found


class _Reader:
    """Types by name, as they are met."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, Any], str]] = {}
        self._namespace = ""

    def expand(self, schema: Any, namespace: str) -> Any:
        """The definition that a name stands for."""
        if isinstance(schema, str) and schema not in _PRIMITIVES and schema != "null":
            return self._named(schema, namespace)[0]
        return schema

    def fields(self, record: Mapping[str, Any], parents: tuple[str, ...]) -> tuple[Column, ...]:
        full, namespace = self._define(record, self._namespace)
        if full in parents:
            raise InvalidSchemaError(
                f"record `{full}` contains itself.", why="A Spark type has a fixed depth.", fix="unfold it."
            )
        if not isinstance(record.get("fields"), list):
            raise InvalidSchemaError(f"record `{full}` has no list of fields.")
        outer, self._namespace = self._namespace, namespace
        columns = []
        for field in record["fields"]:
            if not isinstance(field, dict) or "name" not in field or "type" not in field:
                raise InvalidSchemaError(f"record `{full}` has a field without a name or a type.")
            spark, nullable = self.type(field["type"], namespace, (*parents, full))
            columns.append(Column(str(field["name"]), spark, nullable))
        self._namespace = outer
        if not columns:
            raise InvalidSchemaError(f"record `{full}` has no fields.", why="A row has at least one column.")
        check_names(column.name for column in columns)
        return tuple(columns)

    def type(self, schema: Any, namespace: str, parents: tuple[str, ...]) -> tuple[str, bool]:
        """The Spark type, and whether it may be null."""
        if isinstance(schema, list):
            return self._union(schema, namespace, parents)
        if isinstance(schema, str):
            if schema == "null":
                return "string", True  # always null; no type of a column says so
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema], False
            found, home = self._named(schema, namespace)
            return self.type(found, home, parents)
        if not isinstance(schema, dict) or "type" not in schema:
            raise InvalidSchemaError(f"{json.dumps(schema)[:80]} is no Avro type.")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.type(kind, namespace, parents)
        match kind:
            case "array":
                return f"array<{self.type(schema['items'], namespace, parents)[0]}>", False
            case "map":
                return f"map<string,{self.type(schema['values'], namespace, parents)[0]}>", False
            case "record" | "error":
                outer, self._namespace = self._namespace, namespace
                columns = self.fields(schema, parents)
                self._namespace = outer
                return struct_type(Column(c.name, c.type) for c in columns), False
            case "enum":
                self._define(schema, namespace)
                return "string", False
            case "fixed":
                self._define(schema, namespace)
                return _fixed(schema), False
        return self._primitive(schema, kind, namespace, parents)

    def _primitive(
        self, schema: Mapping[str, Any], kind: str, namespace: str, parents: tuple[str, ...]
    ) -> tuple[str, bool]:
        logical = schema.get("logicalType")
        if kind == "bytes" and logical == "decimal":
            return _decimal(schema), False
        found = _LOGICAL.get((kind, str(logical)))
        return (found, False) if found is not None else self.type(kind, namespace, parents)

    def _union(self, branches: list[Any], namespace: str, parents: tuple[str, ...]) -> tuple[str, bool]:
        others = [branch for branch in branches if branch != "null"]
        nullable = len(others) < len(branches)
        types = [self.type(branch, namespace, parents)[0] for branch in others]
        if not types:
            return "string", True
        if len(types) == 1:
            return types[0], nullable
        plain = all(isinstance(b, str) or (isinstance(b, dict) and "logicalType" not in b) for b in others)
        if plain and set(types) == {"int", "bigint"}:
            return "bigint", nullable
        if plain and set(types) == {"float", "double"}:
            return "double", nullable
        return struct_type(Column(f"member{i}", spark) for i, spark in enumerate(types)), nullable

    def _define(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """The full name of a definition, and the namespace of names in it."""
        name = str(schema.get("name", ""))
        home = str(schema.get("namespace", namespace) or "")
        full = name if "." in name or not home else f"{home}.{name}"
        inner = full.rpartition(".")[0]
        self._known[full] = (schema, namespace)
        return full, inner

    def _named(self, name: str, namespace: str) -> tuple[Mapping[str, Any], str]:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._known.get(full) or self._known.get(name)
        if found is None:
            known = ", ".join(self._known) or "none"
            raise InvalidSchemaError(f"the schema uses type `{name}`, which it does not define.", why=f"Types: {known}")
        return found


def _fixed(schema: Mapping[str, Any]) -> str:
    if schema.get("logicalType") == "decimal":
        return _decimal(schema)
    if schema.get("logicalType") == "uuid" and schema.get("size") == 16:
        return "string"
    return "binary"


def _decimal(schema: Mapping[str, Any]) -> str:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return "binary"
    if not 0 < precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        return "binary"
    return f"decimal({precision},{scale})"
