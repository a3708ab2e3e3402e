"""JSON Schema: a test for each rule, in both directions, and random schemas against the validator itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from headrace.contracts.json_compatibility import json_breaks
from headrace.contracts.json_schemas import canonical_json, parse_json_schema
from headrace.errors import InvalidContractError

OPEN: dict[str, Any] = {"type": "object"}
CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
INT: dict[str, Any] = {"type": "integer"}


def rules(reader: Any, writer: Any) -> list[str]:
    found = json_breaks(parse_json_schema(json.dumps(reader)), parse_json_schema(json.dumps(writer)))
    return [each.rule for each in found]


def properties(**schemas: Any) -> dict[str, Any]:
    return {"properties": schemas}


# (rule, what the writer has, what the reader has): this way it breaks, the other way round it does not.
ONE_WAY: list[tuple[str, Any, Any]] = [
    ("TYPE_NARROWED", {"type": "number"}, INT),
    ("TYPE_NARROWED", {"type": ["string", "null"]}, {"type": "string"}),
    ("TYPE_NARROWED", {}, {"type": "string"}),
    ("MAX_LENGTH_ADDED", {"type": "string"}, {"type": "string", "maxLength": 3}),
    ("MAX_LENGTH_DECREASED", {"type": "string", "maxLength": 4}, {"type": "string", "maxLength": 3}),
    ("MIN_LENGTH_ADDED", {"type": "string"}, {"type": "string", "minLength": 3}),
    ("MIN_LENGTH_INCREASED", {"type": "string", "minLength": 2}, {"type": "string", "minLength": 3}),
    ("PATTERN_ADDED", {"type": "string"}, {"type": "string", "pattern": "^a"}),
    ("MAXIMUM_ADDED", {"type": "number"}, {"type": "number", "maximum": 3}),
    ("MAXIMUM_DECREASED", {"type": "number", "maximum": 4}, {"type": "number", "maximum": 3}),
    ("MINIMUM_ADDED", {"type": "number"}, {"type": "number", "minimum": 3}),
    ("MINIMUM_INCREASED", {"type": "number", "minimum": 2}, {"type": "number", "minimum": 3}),
    ("EXCLUSIVE_MAXIMUM_ADDED", {"type": "number"}, {"type": "number", "exclusiveMaximum": 3}),
    ("EXCLUSIVE_MAXIMUM_DECREASED", {"type": "number", "maximum": 3}, {"type": "number", "exclusiveMaximum": 3}),
    ("EXCLUSIVE_MINIMUM_ADDED", {"type": "number"}, {"type": "number", "exclusiveMinimum": 3}),
    ("EXCLUSIVE_MINIMUM_INCREASED", {"type": "number", "minimum": 3}, {"type": "number", "exclusiveMinimum": 3}),
    ("MULTIPLE_OF_ADDED", {"type": "number"}, {"type": "number", "multipleOf": 2}),
    ("MULTIPLE_OF_CHANGED", {"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 4}),
    ("MAX_ITEMS_ADDED", {"type": "array"}, {"type": "array", "maxItems": 3}),
    ("MIN_ITEMS_INCREASED", {"type": "array", "minItems": 1}, {"type": "array", "minItems": 3}),
    ("UNIQUE_ITEMS_ADDED", {"type": "array"}, {"type": "array", "uniqueItems": True}),
    (
        "ADDITIONAL_ITEMS_REMOVED",
        {"type": "array", "items": [INT]},
        {"type": "array", "items": [INT], "additionalItems": False},
    ),
    (
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        {"type": "array", "items": [INT, INT], "additionalItems": False},
        {"type": "array", "items": [INT], "additionalItems": False},
    ),
    ("MAX_PROPERTIES_ADDED", OPEN, {**OPEN, "maxProperties": 3}),
    ("MIN_PROPERTIES_ADDED", OPEN, {**OPEN, "minProperties": 3}),
    ("REQUIRED_ATTRIBUTE_ADDED", {**OPEN, **properties(a=INT)}, {**OPEN, **properties(a=INT), "required": ["a"]}),
    ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", OPEN, {**OPEN, **properties(a=INT)}),
    (
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        {**CLOSED, **properties(a=INT, b=INT)},
        {**CLOSED, **properties(a=INT)},
    ),
    ("ADDITIONAL_PROPERTIES_REMOVED", OPEN, CLOSED),
    ("TYPE_NARROWED", OPEN, {**OPEN, "patternProperties": {"^x": INT}}),
    ("PATTERN_PROPERTY_ADDED", OPEN, {**OPEN, "patternProperties": {"^x": False}}),
    ("PATTERN_PROPERTY_REMOVED", {**CLOSED, "patternProperties": {"^x": INT}}, CLOSED),
    ("PATTERN_ADDED", OPEN, {**OPEN, "propertyNames": {"pattern": "^x"}}),
    ("DEPENDENCY_ARRAY_EXTENDED", OPEN, {**OPEN, "dependencies": {"a": ["b"]}}),
    ("ENUM_ARRAY_NARROWED", {"enum": ["a", "b"]}, {"enum": ["a"]}),
    ("ENUM_ARRAY_NARROWED", {"type": "string"}, {"const": "a"}),
    (
        "SUM_TYPE_NARROWED",
        {"oneOf": [INT, {"type": "string"}, {"type": "array"}]},
        {"oneOf": [INT, {"type": "string"}]},
    ),
    ("MAXIMUM_ADDED", {"allOf": [INT]}, {"allOf": [INT, {"maximum": 3}]}),
    ("NOT_TYPE_EXTENDED", {}, {"not": INT}),
    ("SCHEMA_REJECTS_ALL", OPEN, False),
    ("KEYWORD_CHANGED", {"type": "array"}, {"type": "array", "contains": INT}),
    ("KEYWORD_CHANGED", OPEN, {**OPEN, "if": {"required": ["a"]}, "then": {"required": ["b"]}}),
]
BOTH_WAYS: list[tuple[str, Any, Any]] = [
    ("TYPE_CHANGED", {"type": "string"}, INT),
    ("PATTERN_CHANGED", {"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}),
    ("TYPE_CHANGED", {**OPEN, **properties(a={"type": "string"})}, {**OPEN, **properties(a=INT)}),
    ("TYPE_CHANGED", {"type": "array", "items": INT}, {"type": "array", "items": {"type": "string"}}),
]
SAME: list[tuple[str, Any, Any]] = [
    ("words about it", {"type": "string"}, {"type": "string", "title": "t", "description": "d", "format": "date"}),
    (
        "an optional property in a closed object",
        {**CLOSED, **properties(a=INT)},
        {**CLOSED, **properties(a=INT, b=INT)},
    ),
    (
        "required with a default",
        {**CLOSED, **properties(a=INT)},
        {**CLOSED, **properties(a=INT, b={**INT, "default": 0}), "required": ["b"]},
    ),
    ("a whole number below 3 is at most 2", {**INT, "exclusiveMaximum": 3}, {**INT, "maximum": 2}),
    ("a multiple of a whole number", {**INT, "multipleOf": 6}, {"type": "number", "multipleOf": 3}),
    ("a reference", {"$ref": "#/definitions/n", "definitions": {"n": INT}}, INT),
    ("a branch more", {"anyOf": [INT]}, {"anyOf": [{"type": "string"}, INT]}),
    (
        "a list of types and branches",
        {"type": ["string", "integer"]},
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    (
        "merged parts",
        {"allOf": [{**OPEN, **properties(a=INT)}, {"required": ["a"]}]},
        {**OPEN, **properties(a=INT), "required": ["a"]},
    ),
    ("values that are listed", {"enum": [1, 2]}, {**INT, "maximum": 2}),
    ("excluded types that do not come", INT, {"not": {"type": "string"}}),
    (
        "2020-12 tuples",
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [INT], "items": False},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [INT, INT], "items": False},
    ),
]


@pytest.mark.parametrize(("rule", "writer", "reader"), ONE_WAY + BOTH_WAYS)
def test_the_rule_is_told(rule: str, writer: Any, reader: Any) -> None:
    assert rules(reader, writer) == [rule]


@pytest.mark.parametrize(("rule", "writer", "reader"), ONE_WAY)
def test_the_other_way_round_is_compatible(rule: str, writer: Any, reader: Any) -> None:
    assert rules(writer, reader) == []


@pytest.mark.parametrize(("rule", "writer", "reader"), BOTH_WAYS)
def test_the_other_way_round_breaks_as_well(rule: str, writer: Any, reader: Any) -> None:
    assert rules(writer, reader) == [rule]


@pytest.mark.parametrize(("what", "writer", "reader"), SAME)
def test_a_reader_accepts(what: str, writer: Any, reader: Any) -> None:
    assert rules(reader, writer) == []


def test_the_reason_names_the_place() -> None:
    def order(price: Any) -> Any:
        return {**OPEN, **properties(lines={"type": "array", "items": {**OPEN, **properties(price=price)}})}

    (found,) = json_breaks(
        parse_json_schema(json.dumps(order({"type": "integer"}))),
        parse_json_schema(json.dumps(order({"type": "string"}))),
    )
    assert str(found) == "lines[].price: the reader takes integer, the writer may write string (TYPE_CHANGED)"


def test_a_schema_that_contains_itself() -> None:
    def tree(value: str) -> Any:
        return {
            "$ref": "#/definitions/node",
            "definitions": {
                "node": {**CLOSED, **properties(value={"type": value}, next={"$ref": "#/definitions/node"})},
            },
        }

    assert rules(tree("number"), tree("integer")) == []
    assert rules(tree("integer"), tree("number")) == ["TYPE_NARROWED"]


def test_a_reference_to_itself_and_endless_combinations_end() -> None:
    itself = {"allOf": [{"$ref": "#/definitions/a"}], "definitions": {"a": {"$ref": "#/definitions/a"}}}
    assert rules({"type": "string"}, itself) == ["TYPE_NARROWED"]
    many: Any = INT
    for size in range(1, 12):
        many = {"anyOf": [many, {"allOf": [many, {"maximum": size}]}, {"minimum": -size}], "type": "integer"}
    assert "TOO_COMPLEX" in rules({"anyOf": [many, {"type": "string", "maxLength": 1}]}, {**many, "title": "other"})


def test_references_to_other_schemas() -> None:
    text = json.dumps({**CLOSED, **properties(price={"$ref": "money.json#/definitions/cents"})})
    cents = parse_json_schema(text, {"money.json": json.dumps({"definitions": {"cents": INT}})})
    wide = parse_json_schema(text, {"money.json": json.dumps({"definitions": {"cents": {"type": "number"}}})})
    assert json_breaks(wide, cents) == []
    assert [each.path for each in json_breaks(cents, wide)] == ["price"]
    with pytest.raises(InvalidContractError, match="refers to nothing"):
        parse_json_schema(text)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"type": "strin"}', '{"minLength": -1}', '{"$ref": "#/nowhere"}', '{"a":' * 5000]
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidContractError, match="no valid JSON Schema"):
        parse_json_schema(text)


def test_the_canonical_form() -> None:
    assert canonical_json('{ "type" : "string", "default": "é" }', sort=False) == '{"type":"string","default":"é"}'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "ab", "abc"]) | st.just(1.5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Any:
    kind = draw(
        st.sampled_from(
            [
                "any",
                "string",
                "integer",
                "number",
                "enum",
                "types",
                *(["array", "object", "sum", "all"] if depth else []),
            ]
        )
    )
    inner = schemas(depth - 1) if depth else st.just(True)
    if kind == "any":
        return draw(st.sampled_from([True, {}, {"not": {}}]))
    if kind == "enum":
        return {"enum": draw(st.lists(VALUES, min_size=1, max_size=3))}
    if kind == "types":
        return {
            "type": draw(st.lists(st.sampled_from(["string", "integer", "null", "array"]), min_size=1, unique=True))
        }
    if kind == "sum":
        return {draw(st.sampled_from(["anyOf", "allOf"])): draw(st.lists(inner, min_size=1, max_size=2))}
    if kind == "all":
        return {"allOf": draw(st.lists(inner, min_size=1, max_size=2))}
    bounds = {
        "string": ["minLength", "maxLength"],
        "array": ["minItems", "maxItems"],
        "object": ["minProperties", "maxProperties"],
    }.get(kind, ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
    made: dict[str, Any] = {"type": kind}
    for bound in draw(st.lists(st.sampled_from(bounds), unique=True)):
        made[bound] = draw(st.integers(0, 2))
    if kind == "array" and draw(st.booleans()):
        made["items"] = draw(inner | st.lists(inner, min_size=1, max_size=2))
    if kind == "object":
        made["properties"] = draw(st.dictionaries(st.sampled_from("ab"), inner, max_size=2))
        made["required"] = draw(st.lists(st.sampled_from("ab"), unique=True))
        if draw(st.booleans()):
            made["additionalProperties"] = draw(inner | st.just(False))
    return made


@settings(max_examples=300, deadline=None)
@given(schemas(), schemas(), st.lists(VALUES, min_size=1, max_size=10))
def test_what_is_called_compatible_is_accepted(reader: Any, writer: Any, values: list[Any]) -> None:
    if rules(reader, writer) == []:
        for value in values:
            if Draft7Validator(writer).is_valid(value):
                assert Draft7Validator(reader).is_valid(value)


@settings(max_examples=150, deadline=None)
@given(schemas())
def test_a_schema_is_compatible_with_itself_and_with_anything(schema: Any) -> None:
    assert rules(schema, schema) == []
    assert rules(True, schema) == []
