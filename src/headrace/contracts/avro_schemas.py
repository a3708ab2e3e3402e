"""Avro schemas: read them with the `avro` package, write them in one form, and check what it leaves unchecked."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import avro.errors
import avro.name
import avro.schema

from headrace.errors import InvalidContractError

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
# The order in which attributes are written. What is not named comes after them, aliases last.
_TYPE_ORDER = ("type", "name", "namespace", "doc", "fields", "symbols", "items", "values", "size", "default")
_FIELD_ORDER = ("name", "type", "doc", "default", "order")


def parse_avro(text: str, references: Iterable[str] = ()) -> avro.schema.Schema:
    """The schema; `references` are the texts of those that it uses, each after the ones that it needs itself.

    >>> parse_avro('{"type": "array", "items": "int"}').type
    'array'
    """
    names = avro.name.Names()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a logical type that the library does not know is left as it is
            for reference in references:
                avro.schema.make_avsc_object(json.loads(reference), names)
            parsed = avro.schema.make_avsc_object(json.loads(text), names)
            _check_defaults(parsed, "", set())
    except InvalidContractError:
        raise
    except (avro.errors.AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        # The library raises what it stumbles over; whatever it is, the text is no schema.
        raise InvalidContractError(
            "the schema is no valid Avro.", why=_told(error), fix="see the Avro specification, `Schema Declaration`"
        ) from error
    return parsed


def canonical_avro(text: str) -> str:
    """The same schema without white space, with attributes in a fixed order. Nothing that a reader may use is lost.

    >>> canonical_avro('{"name": "Id", "size": 16,  "type": "fixed", "doc": "an id"}')
    '{"type":"fixed","name":"Id","doc":"an id","size":16}'
    """
    return _compact(_ordered(json.loads(text), sort=False))


def normalized_avro(text: str) -> str:
    """Like canonical, with names told in the shortest way and other attributes sorted.

    >>> normalized_avro('{"type": "fixed", "name": "a.b.Id", "size": 4}')
    '{"type":"fixed","name":"Id","namespace":"a.b","size":4}'
    """
    return _compact(_ordered(_renamed(json.loads(text), ""), sort=True))


def _ordered(node: Any, *, sort: bool) -> Any:
    if isinstance(node, list):
        return [_ordered(branch, sort=sort) for branch in node]
    if not isinstance(node, dict):
        return node
    if node.keys() == {"type"} and isinstance(node["type"], str) and node["type"] in _PRIMITIVES:
        return node["type"]
    shaped = dict(node)
    for part in ("type", "items", "values"):
        if isinstance(shaped.get(part), list | dict):
            shaped[part] = _ordered(shaped[part], sort=sort)
    if isinstance(shaped.get("fields"), list):
        shaped["fields"] = [_field(field, sort=sort) for field in shaped["fields"]]
    return _in_order(shaped, _TYPE_ORDER, sort=sort)


def _field(field: Any, *, sort: bool) -> Any:
    shaped = {**field, "type": _ordered(field["type"], sort=sort)}
    if shaped.get("order") == "ascending":
        del shaped["order"]  # the default
    return _in_order(shaped, _FIELD_ORDER, sort=sort)


def _in_order(node: Mapping[str, Any], order: tuple[str, ...], *, sort: bool) -> dict[str, Any]:
    others = [name for name in node if name not in order and name != "aliases"]
    names = [*order, *(sorted(others) if sort else others), "aliases"]
    return {name: node[name] for name in names if name in node}


def _renamed(node: Any, namespace: str) -> Any:
    """With the namespace apart from the name, and only where it differs from the one around it."""
    if isinstance(node, list):
        return [_renamed(branch, namespace) for branch in node]
    if isinstance(node, str):
        space, _, short = node.rpartition(".")
        return short if space == namespace and short else node
    if not isinstance(node, dict):
        return node
    shaped = dict(node)
    inner = namespace
    if shaped.get("type") in _NAMED and isinstance(shaped.get("name"), str):
        space, dot, short = shaped["name"].rpartition(".")
        inner = space if dot else shaped.get("namespace", namespace)
        shaped["name"] = short
        shaped.pop("namespace", None)
        if inner != namespace:
            shaped["namespace"] = inner
    for part in ("type", "items", "values"):
        if part in shaped:
            shaped[part] = _renamed(shaped[part], inner)
    if isinstance(shaped.get("fields"), list):
        shaped["fields"] = [{**field, "type": _renamed(field["type"], inner)} for field in shaped["fields"]]
    return shaped


def _check_defaults(schema: avro.schema.Schema, path: str, seen: set[int]) -> None:
    """A default of the wrong type would be found by a reader only, long after the schema was registered."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    if isinstance(schema, avro.schema.RecordSchema):
        for field in schema.fields:
            here = f"{path}.{field.name}" if path else str(field.name)
            if field.has_default and not _fits(field.default, field.type):
                raise InvalidContractError(
                    f"the default of field `{here}` does not fit its type.",
                    why=f"The default is {json.dumps(field.default)[:200]}, the type is {_named(field.type)}.",
                    fix="change the default, or the type",
                )
            _check_defaults(field.type, here, seen)
    elif isinstance(schema, avro.schema.UnionSchema):
        for branch in schema.schemas:
            _check_defaults(branch, path, seen)
    elif isinstance(schema, avro.schema.ArraySchema):
        _check_defaults(schema.items, f"{path}[]", seen)
    elif isinstance(schema, avro.schema.MapSchema):
        _check_defaults(schema.values, f"{path}{{}}", seen)


def _fits(value: Any, schema: avro.schema.Schema) -> bool:
    if isinstance(schema, avro.schema.UnionSchema):
        return any(_fits(value, branch) for branch in schema.schemas)
    if isinstance(schema, avro.schema.RecordSchema):
        return isinstance(value, dict) and all(
            _fits(value[field.name], field.type) if field.name in value else field.has_default
            for field in schema.fields
        )
    if isinstance(schema, avro.schema.ArraySchema):
        return isinstance(value, list) and all(_fits(item, schema.items) for item in value)
    if isinstance(schema, avro.schema.MapSchema):
        return isinstance(value, dict) and all(_fits(item, schema.values) for item in value.values())
    if isinstance(schema, avro.schema.EnumSchema):
        return value in schema.symbols
    if isinstance(schema, avro.schema.FixedSchema):
        return _is_bytes(value) and len(value) == schema.size
    return _fits_primitive(value, str(schema.type))


def _fits_primitive(value: Any, kind: str) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "int":
        return whole and -(2**31) <= value < 2**31
    if kind == "long":
        return whole and -(2**63) <= value < 2**63
    if kind in ("float", "double"):
        return whole or isinstance(value, float) or value in ("NaN", "Infinity", "-Infinity")
    return _is_bytes(value) if kind == "bytes" else isinstance(value, str)


def _is_bytes(value: Any) -> bool:
    """Bytes are written as text, one character a byte."""
    return isinstance(value, str) and all(ord(character) < 256 for character in value)


def _named(schema: avro.schema.Schema) -> str:
    return str(getattr(schema, "fullname", None) or schema.type)


def _told(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "It is nested too deeply."
    if isinstance(error, json.JSONDecodeError):
        return f"It is no JSON: {error}."
    text = str(error) or type(error).__name__
    return (text if isinstance(error, avro.errors.AvroException | ValueError) else f"Something is missing: {text}")[
        :500
    ]


def _compact(node: Any) -> str:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False)
