"""Avro: the verdicts are those of the avro library, and the reasons name the field."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import RecordSchema
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.contracts.avro_compatibility import avro_breaks
from headrace.contracts.avro_schemas import canonical_avro, normalized_avro, parse_avro
from headrace.errors import InvalidContractError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 1,
    "float": 1.5,
    "double": 1.5,
    "bytes": "x",
    "string": "x",
}


def record(*fields: dict[str, Any], name: str = "Card", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **more})


def problems(reader: str, writer: str) -> list[str]:
    return [str(each) for each in avro_breaks(parse_avro(reader), parse_avro(writer))]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> Any:
    """A type; names are taken from a few, so that two random schemas have something in common."""
    kinds = ["primitive", "enum", "fixed"] + (["array", "map", "record", "union"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "array":
        return {"type": "array", "items": draw(types(depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(types(depth - 1))}
    if kind == "union":
        return draw(st.lists(st.sampled_from(PRIMITIVES), max_size=4, unique=True))
    named: dict[str, Any] = {"name": draw(st.sampled_from("AB"))}
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("XYZ"), min_size=1, unique=True))
        default = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {"type": "enum", **named, "symbols": symbols, **default}
    if kind == "fixed":
        return {"type": "fixed", **named, "size": draw(st.integers(1, 2))}
    return {"type": "record", **named, "fields": draw(fields(depth - 1))}


@st.composite
def fields(draw: st.DrawFn, depth: int = 1) -> list[dict[str, Any]]:
    made = []
    for name in draw(st.lists(st.sampled_from("abc"), unique=True)):
        field = {"name": name, "type": draw(types(depth))}
        if isinstance(field["type"], str) and draw(st.booleans()):
            field["default"] = DEFAULTS[field["type"]]
        if draw(st.booleans()):
            field["aliases"] = [draw(st.sampled_from("abcd"))]
        made.append(field)
    return made


def spaced(schema: Any) -> str:
    """A name may be defined once in a schema: namespaces keep the types apart."""
    numbers = itertools.count()

    def visit(node: Any) -> Any:
        if isinstance(node, list):
            return [visit(each) for each in node]
        if not isinstance(node, dict):
            return node
        space = {"namespace": f"n{next(numbers)}"} if node.get("type") in ("record", "enum", "fixed") else {}
        return {**{key: visit(value) if key != "default" else value for key, value in node.items()}, **space}

    return json.dumps(visit(schema))


@settings(max_examples=200, deadline=None)
@given(types(), types())
def test_the_verdict_is_that_of_the_avro_library(reader: Any, writer: Any) -> None:
    ours, theirs = parse_avro(spaced(reader)), parse_avro(spaced(writer))
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    expected = checker.get_compatibility(ours, theirs).compatibility
    assert (not avro_breaks(ours, theirs)) == (expected is SchemaCompatibilityType.compatible)


@settings(max_examples=100, deadline=None)
@given(types())
def test_a_schema_is_compatible_with_itself(schema: Any) -> None:
    text = spaced(schema)
    assert problems(text, text) == []
    assert problems(canonical_avro(text), text) == []
    assert problems(text, normalized_avro(text)) == []


@settings(max_examples=100, deadline=None)
@given(fields(), st.sampled_from(PRIMITIVES))
def test_a_new_field_is_backward_compatible_if_and_only_if_it_has_a_default(
    before: list[dict[str, Any]], kind: str
) -> None:
    before = json.loads(spaced(before))
    old = record(*before)
    added = {"name": "added", "type": kind}
    assert problems(record(*before, {**added, "default": DEFAULTS[kind]}), old) == []
    found = problems(record(*before, added), old)
    assert found == [
        "added: the reader has no default for it, and the writer does not write it (READER_FIELD_MISSING_DEFAULT_VALUE)"
    ]
    # Old readers skip it either way.
    assert problems(old, record(*before, added)) == []


def test_the_reason_names_the_field_wherever_it_is() -> None:
    def order(price: Any) -> str:
        line = {"type": "record", "name": "Line", "fields": [{"name": "price", "type": price}]}
        lines = {"name": "lines", "type": ["null", {"type": "array", "items": line}]}
        return record(lines, {"name": "by_day", "type": {"type": "map", "values": "Line"}})

    assert problems(order("int"), order("string")) == [
        "lines[].price: the reader expects int, the writer writes string (TYPE_MISMATCH)"
    ]


def test_an_alias_without_a_namespace_is_meant_in_the_namespace_of_its_type() -> None:
    # avro.compatibility compares it with the full name of the writer's type and says no.
    old, new = record(name="Card", namespace="shop"), record(name="CreditCard", namespace="shop", aliases=["Card"])
    assert problems(new, old) == []
    assert "NAME_MISMATCH" in problems(old, new)[0]
    assert "NAME_MISMATCH" in problems(new, record(name="Card", namespace="bank"))[0]


def test_a_field_is_read_by_its_alias() -> None:
    old, new = {"name": "id", "type": "string"}, {"name": "card_id", "type": "string", "aliases": ["id"]}
    assert problems(record(new), record(old)) == []
    assert problems(record({**new, "aliases": []}), record(old)) != []


def test_a_type_that_contains_itself() -> None:
    def tree(value: str) -> str:
        return record({"name": "value", "type": value}, {"name": "next", "type": ["null", "Card"], "default": None})

    assert problems(tree("long"), tree("int")) == []
    assert problems(tree("int"), tree("long")) == [
        "value: the reader expects int, the writer writes long (TYPE_MISMATCH)"
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ('"strin"', "strin"),
        ('{"type": "record", "name": "A"}', ""),
        (record({"name": "a", "type": "B"}), "B"),
        (record({"name": "a", "type": "int", "default": "x"}), "default of field `a`"),
        (record({"name": "a", "type": ["null", "int"], "default": "x"}), "default of field `a`"),
        (record({"name": "a", "type": {"type": "array", "items": "int"}, "default": ["x"]}), "default of field `a`"),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "a"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', ""),
        ('{"type": "fixed", "name": "F", "size": "x"}', ""),
        ("[" * 5000, "nested"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidContractError) as refused:
        parse_avro(text)
    assert reason in str(refused.value)


def test_references_are_known_by_name() -> None:
    money = '{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}'
    schema = parse_avro(record({"name": "price", "type": "shop.Money"}), [money])
    assert isinstance(schema, RecordSchema)
    assert schema.fields[0].type.fields[0].name == "cents"


def test_the_canonical_form_keeps_what_readers_use_and_nothing_of_the_layout() -> None:
    text = """{ "namespace": "shop", "name": "Card", "type": "record", "x-owner": "fraud", "aliases": ["Kard"],
                "fields": [ {"type": {"type": "string"}, "name": "id", "doc": "é", "order": "ascending",
                             "default": ""} ] }"""
    assert canonical_avro(text) == (
        '{"type":"record","name":"Card","namespace":"shop",'
        '"fields":[{"name":"id","type":"string","doc":"é","default":""}],"x-owner":"fraud","aliases":["Kard"]}'
    )
