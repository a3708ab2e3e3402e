"""Random Avro schemas with values of theirs, and writers' schemas from which a reader's can be read."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import strategies as st

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)
FLOAT = st.floats(width=32, allow_nan=False)
DOUBLE = st.floats(allow_nan=False)

Typed = tuple[Any, st.SearchStrategy[Any]]


def _primitives() -> list[Typed]:
    return [
        ("int", INT),
        ("long", LONG),
        ("float", FLOAT),
        ("double", DOUBLE),
        ("boolean", st.booleans()),
        ("string", TEXT),
        ("bytes", st.binary(max_size=8)),
    ]


class Names:
    """Each named type once."""

    def __init__(self) -> None:
        self._next = count()

    def take(self, prefix: str) -> str:
        return f"{prefix}{next(self._next)}"


@st.composite
def _named(draw: st.DrawFn, names: Names) -> Typed:
    if draw(st.booleans()):
        symbols = [f"S{i}" for i in range(draw(st.integers(1, 4)))]
        return {"type": "enum", "name": names.take("Enum"), "symbols": symbols}, st.sampled_from(symbols)
    size = draw(st.integers(1, 6))
    return {"type": "fixed", "name": names.take("Fixed"), "size": size}, st.binary(min_size=size, max_size=size)


@st.composite
def typed(draw: st.DrawFn, names: Names, depth: int) -> Typed:
    """A type and its values."""
    kinds = ["primitive", "primitive", "named", "null"]
    if depth > 0:
        kinds += ["array", "map", "record", "nullable", "union"]
    match draw(st.sampled_from(kinds)):
        case "primitive":
            return draw(st.sampled_from(_primitives()))
        case "named":
            return draw(_named(names))
        case "null":
            schema, values = draw(st.sampled_from(_primitives()))
            return ["null", schema], st.none() | values
        case "array":
            schema, values = draw(typed(names, depth - 1))
            return {"type": "array", "items": schema}, st.lists(values, max_size=3)
        case "map":
            schema, values = draw(typed(names, depth - 1))
            return {"type": "map", "values": schema}, st.dictionaries(TEXT, values, max_size=3)
        case "record":
            return draw(record(names, depth - 1))
        case "nullable":
            schema, values = draw(record(names, depth - 1))
            return [schema, "null"], st.none() | values
        case _:
            # Branches whose Python values tell them apart.
            record_schema, record_values = draw(record(names, depth - 1))
            return ["null", "string", "long", record_schema], st.none() | TEXT | LONG | record_values


@st.composite
def record(draw: st.DrawFn, names: Names, depth: int = 2) -> Typed:
    """A record and its values."""
    fields: list[dict[str, Any]] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    for i in range(draw(st.integers(1, 4))):
        schema, value = draw(typed(names, depth))
        fields.append({"name": f"f{i}", "type": schema})
        values[f"f{i}"] = value
    return {"type": "record", "name": names.take("Record"), "fields": fields}, st.fixed_dictionaries(values)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """A record schema, and some values."""
    schema, values = draw(record(Names()))
    return schema, draw(st.lists(values, min_size=1, max_size=5))


_PROMOTED = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
_DEFAULTS: list[tuple[Any, Any]] = [
    ("int", 7),
    ("string", "none"),
    (["null", "long"], None),
    ({"type": "array", "items": "string"}, ["a", "b"]),
    ({"type": "map", "values": "double"}, {"x": 1.5}),
]


@st.composite
def evolutions(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """A writer's schema, a reader's that it resolves to, and values that were written."""
    schema, values = draw(record(Names()))
    fields = []
    for field in schema["fields"]:
        match draw(st.sampled_from(["keep", "keep", "drop", "promote", "rename", "nullable"])):
            case "drop":
                continue
            case "promote" if isinstance(field["type"], str) and field["type"] in _PROMOTED:
                fields.append({**field, "type": draw(st.sampled_from(_PROMOTED[field["type"]]))})
            case "rename":
                fields.append({**field, "name": f"new_{field['name']}", "aliases": [field["name"]]})
            case "nullable" if isinstance(field["type"], str):
                fields.append({**field, "type": ["null", field["type"]]})
            case _:
                fields.append(field)
    for i in range(draw(st.integers(0 if fields else 1, 2))):
        kind, default = draw(st.sampled_from(_DEFAULTS))
        fields.append({"name": f"added{i}", "type": kind, "default": default})
    reader = {**schema, "fields": draw(st.permutations(fields))}
    return schema, reader, draw(st.lists(values, min_size=1, max_size=5))
