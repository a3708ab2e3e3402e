"""The columns of a JSON Schema.

An `object` with properties is a struct, one with only `additionalProperties` a map. What has no one type (`oneOf` of
several, no type at all) is a string that holds the value's JSON text.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urldefrag, urljoin

from headrace.errors import InvalidSchemaError
from headrace.pipeline.ddl import Column, check_names, struct_type
from headrace.pipeline.schema import Schema

_SCALARS = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS = {"date-time": "timestamp", "date": "date"}


@functools.lru_cache(maxsize=256)
def json_columns(text: str, references: tuple[tuple[str, str], ...] = ()) -> Schema:
    """The columns of objects of a schema: its properties, those that are `required` not null.

    >>> json_columns('{"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}')
    Schema(columns=(Column(name='at', type='timestamp', nullable=True),))
    """
    documents = {name: _json(reference, f"`{name}`, to which it refers,") for name, reference in references}
    root = _json(text, "the schema")
    base = str(root.get("$id", "")) if isinstance(root, dict) else ""
    reader = _Reader({**documents, base: root})
    properties = reader.columns(root, base, ())
    if not properties:
        raise InvalidSchemaError(
            "the schema has no properties.", why="They are the columns of a row.", fix="describe an object."
        )
    check_names(column.name for column in properties)
    return Schema(properties)


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise InvalidSchemaError(f"{what} is no JSON Schema: it is no JSON.", why=str(problem)) from problem


class _Reader:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def columns(self, schema: Any, base: str, parents: tuple[str, ...]) -> tuple[Column, ...]:
        """The properties of an object, those of all its `allOf` parts included."""
        found: dict[str, tuple[str, bool]] = {}
        required: set[str] = set()
        self._collect(schema, base, parents, found, required)
        return tuple(Column(name, spark, null or name not in required) for name, (spark, null) in found.items())

    def _collect(
        self,
        schema: Any,
        base: str,
        parents: tuple[str, ...],
        found: dict[str, tuple[str, bool]],
        required: set[str],
    ) -> None:
        schema, base, parents = self._followed(schema, base, parents)
        if not isinstance(schema, dict):
            return
        for part in schema.get("allOf") or ():
            self._collect(part, base, parents, found, required)
        required.update(schema.get("required") or ())
        for name, described in (schema.get("properties") or {}).items():
            found[name] = self._type(described, base, parents)

    def _type(self, schema: Any, base: str, parents: tuple[str, ...]) -> tuple[str, bool]:
        schema, base, parents = self._followed(schema, base, parents)
        if not isinstance(schema, dict):
            return "string", True
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self._choice(schema[word], base, parents)
        kinds = schema.get("type")
        names = [kinds] if isinstance(kinds, str) else list(kinds or ())
        nullable = not names or "null" in names
        names = [name for name in names if name != "null"]
        if not names and ("properties" in schema or "allOf" in schema):
            names = ["object"]
        if set(names) == {"integer", "number"}:
            names = ["number"]
        if len(names) != 1:
            return "string", True
        match names[0]:
            case "object":
                return self._object(schema, base, parents), nullable
            case "array" if isinstance(schema.get("items"), dict):
                return f"array<{self._type(schema['items'], base, parents)[0]}>", nullable
            case "string":
                return _FORMATS.get(str(schema.get("format")), "string"), nullable
            case scalar:
                return _SCALARS.get(scalar, "string"), nullable

    def _object(self, schema: Mapping[str, Any], base: str, parents: tuple[str, ...]) -> str:
        fields = self.columns(schema, base, parents)
        if fields:
            check_names(field.name for field in fields)
            return struct_type(Column(field.name, field.type) for field in fields)
        more = schema.get("additionalProperties")
        return f"map<string,{self._type(more, base, parents)[0]}>" if isinstance(more, dict) else "string"

    def _choice(self, options: Any, base: str, parents: tuple[str, ...]) -> tuple[str, bool]:
        others = [o for o in options if not (isinstance(o, dict) and o.get("type") == "null")]
        nullable = len(others) < len(options)
        types = {self._type(option, base, parents)[0] for option in others}
        return (types.pop(), nullable) if len(types) == 1 else ("string", nullable)

    def _followed(self, schema: Any, base: str, parents: tuple[str, ...]) -> tuple[Any, str, tuple[str, ...]]:
        """Where `$ref` leads to."""
        while isinstance(schema, dict) and "$ref" in schema:
            reference = str(schema["$ref"])
            where, pointer = urldefrag(reference)
            target = where if where in self._documents else (urljoin(base, where) if where else base)
            if (full := f"{target}#{pointer}") in parents:
                raise InvalidSchemaError(
                    f"the schema contains itself at {reference}.",
                    why="A Spark type has a fixed depth.",
                    fix="unfold it.",
                )
            if target not in self._documents:
                raise InvalidSchemaError(f"the schema refers to {reference}, which is not among its references.")
            parents, base, schema = (*parents, full), target, self._documents[target]
            for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
                key = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(schema, dict) or key not in schema:
                    raise InvalidSchemaError(f"the schema refers to {reference}, which is not there.")
                schema = schema[key]
        return schema, base, parents
