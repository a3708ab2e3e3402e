"""Avro schemas made of columns: new ones, and the latest version grown by what is new."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.engine.avro_schemas import evolved
from headrace.errors import InvalidSchemaError
from headrace.pipeline.avro_columns import avro_columns


def row(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def test_a_new_subject_gets_a_record_of_the_columns() -> None:
    inner = row(lat=DoubleType(), tags=ArrayType(StringType()))
    columns = row(
        id=StringType(),
        at=TimestampType(),
        day=DateType(),
        price=DecimalType(10, 2),
        place=inner,
        more=MapType(StringType(), LongType()),
        ok=BooleanType(),
    )
    made = evolved(None, (), columns, "fraud-alerts-value")
    assert made is not None
    assert made["name"] == "fraud_alerts"
    assert [f["name"] for f in made["fields"]] == ["id", "at", "day", "price", "place", "more", "ok"]
    assert all(f["default"] is None and f["type"][0] == "null" for f in made["fields"])
    assert made["fields"][4]["type"][1]["name"] == "fraud_alerts_place"
    assert avro_columns(json.dumps(made)).schema.ddl() == (
        "`id` string, `at` timestamp, `day` date, `price` decimal(10,2), "
        "`place` struct<lat:double,tags:array<string>>, `more` map<string,bigint>, `ok` boolean"
    )


LATEST: dict[str, Any] = {
    "type": "record",
    "name": "Alert",
    "namespace": "bank",
    "doc": "kept",
    "fields": [
        {"name": "id", "type": "string", "doc": "kept too"},
        {"name": "n", "type": "long"},
        {"name": "note", "type": "string", "default": ""},
    ],
}


def test_the_latest_version_is_used_as_it_is_if_the_columns_fit() -> None:
    text = json.dumps(LATEST)
    assert evolved(text, (), row(id=StringType(), n=IntegerType()), "x") is None
    assert evolved(text, (), row(n=LongType(), id=StringType(), note=StringType()), "x") is None


def test_new_columns_become_optional_fields_and_the_rest_stays() -> None:
    made = evolved(json.dumps(LATEST), (), row(id=StringType(), n=LongType(), score=DoubleType()), "x")
    assert made == {**LATEST, "fields": [*LATEST["fields"], optional("score", "double")]}


def test_lost_columns_and_changed_types_change_the_schema() -> None:
    made = evolved(json.dumps(LATEST), (), row(id=LongType()), "x")
    assert made is not None
    assert made["fields"] == [optional("id", "long"), LATEST["fields"][2]], "whether it may, the registry says"


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (StructType([StructField("a b", StringType())]), "column `a b` has a name that Avro does not allow."),
        (row(i=CalendarIntervalType()), "column type interval has no Avro type."),
        (row(m=MapType(LongType(), StringType())), "column type map<bigint,string> has no Avro type."),
    ],
)
def test_columns_that_avro_can_not_hold(columns: StructType, what: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        evolved(None, (), columns, "x-value")
    assert refused.value.what == what
