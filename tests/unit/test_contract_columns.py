"""The columns of schemas in Avro, Protobuf and JSON Schema, found without a JVM."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import InvalidSchemaError
from headrace.pipeline.avro_columns import avro_columns
from headrace.pipeline.json_columns import json_columns
from headrace.pipeline.proto_columns import proto_columns, proto_layout


def avro(*fields: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": f[0], "type": f[1]} for f in fields], **more})


@pytest.mark.parametrize(
    ("type", "column"),
    [
        ("int", "int NOT NULL"),
        ("long", "bigint NOT NULL"),
        (["null", "double"], "double"),
        (["float", "null"], "float"),
        ({"type": "bytes"}, "binary NOT NULL"),
        ({"type": {"type": "string"}}, "string NOT NULL"),
        ({"type": "string", "logicalType": "uuid"}, "string NOT NULL"),
        ({"type": "string", "avro.java.string": "String"}, "string NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2) NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}, "binary NOT NULL"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "string NOT NULL"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "binary NOT NULL"),
        ({"type": "int", "logicalType": "date"}, "date NOT NULL"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp NOT NULL"),
        ({"type": "long", "logicalType": "no such type"}, "bigint NOT NULL"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string NOT NULL"),
        ({"type": "array", "items": ["null", "int"]}, "array<int> NOT NULL"),
        ({"type": "map", "values": {"type": "array", "items": "string"}}, "map<string,array<string>> NOT NULL"),
        (["int", "long"], "bigint NOT NULL"),
        (["null", "float", "double"], "double"),
        (["string", "long", "null"], "struct<member0:string,member1:bigint>"),
        (["null"], "string"),
    ],
    ids=str,
)
def test_the_column_of_an_avro_type(type: Any, column: str) -> None:
    assert avro_columns(avro(("c", type))).schema.ddl() == f"`c` {column}"


def test_names_of_avro_types_are_found_in_their_namespace_and_in_references() -> None:
    money = json.dumps(
        {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "n", "type": "long"}]}
    )
    schema = avro(("a", "Money"), ("b", ["null", "shop.Money"]), namespace="shop")
    found = avro_columns(schema, (("shop.Money", money),))
    assert found.schema.ddl() == "`a` struct<n:bigint> NOT NULL, `b` struct<n:bigint>"
    again = avro(("a", {"type": "fixed", "name": "x.Id", "size": 4}), ("b", "x.Id"))
    assert avro_columns(again).schema.ddl() == "`a` binary NOT NULL, `b` binary NOT NULL"


def test_required_is_what_has_neither_null_nor_default() -> None:
    fields = [
        {"name": "a", "type": "int"},
        {"name": "b", "type": "int", "default": 1},
        {"name": "c", "type": ["null", "int"]},
    ]
    assert avro_columns(json.dumps({"type": "record", "name": "R", "fields": fields})).required == {"a"}


def test_an_avro_schema_that_is_no_record_has_one_column() -> None:
    assert avro_columns('"string"').schema.ddl() == "`value` string NOT NULL"
    assert avro_columns('["null", "long"]').schema.ddl() == "`value` bigint"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "the schema is no Avro schema: it is no JSON."),
        (avro(("a", "Nowhere")), "the schema uses type `Nowhere`, which it does not define."),
        (avro(("a", ["null", "R"])), "record `R` contains itself."),
        (avro(), "record `R` has no fields."),
        (avro(("a", "int"), ("A", "int")), "the schema has two columns `a` and `A`."),
        ('{"type": "record", "name": "R"}', "record `R` has no list of fields."),
        (avro(("a", 5)), "5 is no Avro type."),
    ],
)
def test_avro_schemas_without_columns(text: str, what: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        avro_columns(text)
    assert refused.value.what == what


def test_protobuf_of_the_second_edition_has_presence_everywhere_and_may_require() -> None:
    text = """
        syntax = "proto2"; package p;
        message M { required string id = 1; optional int32 n = 2 [default = 5]; repeated int64 xs = 3;
                    extensions 100 to 199; }
        extend M { optional string more = 100; }
    """
    assert proto_columns(text).ddl() == "`id` string NOT NULL, `n` int, `xs` array<bigint> NOT NULL"
    fields = json.loads(proto_layout(text))["fields"]
    assert [(f["required"], f["type"].get("packed")) for f in fields] == [(True, None), (False, None), (False, False)]


def test_protobuf_names_go_from_the_inside_out_and_imports_are_references() -> None:
    common = 'syntax = "proto3"; package shop.common; message Money { int64 units = 1; } enum Kind { X = 0; }'
    text = """
        syntax = "proto3"; package shop;
        import "common.proto";
        option java_package = "x";
        message Order {
          message Money { string inner = 1; }
          Money a = 1; common.Money b = 2; .shop.common.Money c = 3; shop.common.Kind kind = 4; Other other = 5;
          reserved 6 to 9; reserved "x";
        }
        message Other { bool ok = 1; }
        service Orders { rpc Get(Order) returns (Other) { option deprecated = true; } }
    """
    found = proto_columns(text, (("common.proto", common),))
    assert found.ddl() == (
        "`a` struct<inner:string>, `b` struct<units:bigint>, `c` struct<units:bigint>, `kind` string NOT NULL, "
        "`other` struct<ok:boolean>"
    )
    assert json.loads(proto_layout(text, (("common.proto", common),), "Order.Money"))["path"] == [0, 0]
    assert json.loads(proto_layout(text, (("common.proto", common),), "Other"))["path"] == [1]


@pytest.mark.parametrize(
    ("text", "message", "what"),
    [
        ('syntax = "proto3";', "", "the schema has no message."),
        ('syntax = "proto3"; message M { M m = 1; }', "", "message `M` contains itself."),
        ('syntax = "proto3"; message M { }', "", "message `M` has no fields."),
        ('syntax = "proto3"; message M { X x = 1; }', "", "the schema uses type `X`, which neither it nor its"),
        ('syntax = "proto3"; message M { int32 x = 1;', "", "the schema is no Protobuf schema: it ends too early."),
        ('syntax = "proto3"; message M { int32 x 1; }', "", "the schema is no Protobuf schema: `=` is due near"),
        ('syntax = "proto3"; message M { int32 x = 1; }', "N", "the schema has no message `N`."),
    ],
)
def test_protobuf_schemas_without_columns(text: str, message: str, what: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        proto_columns(text, (), message)
    assert refused.value.what.startswith(what)


@pytest.mark.parametrize(
    ("property", "column"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "enum": ["a"]}, "string"),
        ({"type": "array"}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"type": ["string", "integer"]}, "string"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "string"),
        ({"$ref": "#/definitions/d"}, "struct<x:bigint>"),
        (True, "string"),
    ],
    ids=str,
)
def test_the_column_of_a_json_property(property: Any, column: str) -> None:
    definitions = {"d": {"type": "object", "properties": {"x": {"type": "integer"}}}}
    schema = {"type": "object", "properties": {"c": property}, "definitions": definitions}
    assert json_columns(json.dumps(schema)).ddl() == f"`c` {column}"


def test_required_json_properties_are_not_null_unless_their_type_has_null() -> None:
    part = {"properties": {"a": {"type": "integer"}}, "required": ["b"]}
    properties = {"b": {"type": "string"}, "c": {"type": ["null", "string"]}, "d": {"type": "string"}}
    schema = {"allOf": [part], "properties": properties, "required": ["a", "c"]}
    assert json_columns(json.dumps(schema)).ddl() == "`a` bigint NOT NULL, `b` string NOT NULL, `c` string, `d` string"


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"type": "string"}, "the schema has no properties."),
        ({"properties": {"a": {"$ref": "#/no"}}}, "the schema refers to #/no, which is not there."),
        ({"properties": {"a": {"$ref": "x.json"}}}, "the schema refers to x.json, which is not among its references."),
        ({"properties": {"a": {"$ref": "#"}}}, "the schema contains itself at #."),
    ],
)
def test_json_schemas_without_columns(schema: Any, what: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        json_columns(json.dumps(schema))
    assert refused.value.what == what
