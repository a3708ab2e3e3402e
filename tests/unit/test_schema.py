from __future__ import annotations

import contextlib
from dataclasses import InitVar, dataclass, make_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Optional

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import InvalidSchemaError
from headrace.pipeline.ddl import Column, parse_columns, parse_type, struct_columns, struct_type
from headrace.pipeline.schema import Schema, as_schema


def test_ddl_gives_names_types_and_nullability_in_order() -> None:
    schema = as_schema(
        "card_id STRING NOT NULL, amount DECIMAL(10, 2) COMMENT 'in euro, with it''s cents', at: Timestamp"
    )
    assert schema.columns == (
        Column("card_id", "string", nullable=False),
        Column("amount", "decimal(10,2)"),
        Column("at", "timestamp"),
    )


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("LONG", "bigint"),
        ("Integer", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("real", "float"),
        ("timestamp_ltz", "timestamp"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("dec", "decimal(10,0)"),
        ("NUMERIC(5)", "decimal(5,0)"),
        ("array<Array<LONG>>", "array<array<bigint>>"),
        ("MAP< string , array<int> >", "map<string,array<int>>"),
        ("struct<Lat: DOUBLE not null comment 'degrees', lon double>", "struct<Lat:double not null,lon:double>"),
        ("struct<`a b`: int, `c``d`: struct<e:date>>", "struct<`a b`:int,`c``d`:struct<e:date>>"),
    ],
)
def test_types_come_out_as_sparks_simple_names(written: str, simple: str) -> None:
    assert parse_type(written) == simple


def test_names_are_found_in_any_case_as_in_spark() -> None:
    schema = as_schema("Card_Id STRING, amount DOUBLE")
    assert schema["card_id"] == "string"
    assert "AMOUNT" in schema
    assert schema.get("city") is None
    assert list(schema) == ["Card_Id", "amount"]
    assert schema.column("AMOUNT") == Column("amount", "double")


def test_backticks_let_a_name_have_any_character() -> None:
    schema = as_schema("`a.b, c` INT, `tick``ed` STRING")
    assert schema.names == ("a.b, c", "tick`ed")
    assert as_schema(schema.ddl()) == schema


def test_an_unknown_type_names_the_column_and_offers_the_closest() -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        as_schema("card_id STRING, amount DUOBLE")
    assert caught.value.what == "column `amount` has an unknown type `duoble`: did you mean DOUBLE?"


def test_a_type_of_another_system_is_translated() -> None:
    with pytest.raises(InvalidSchemaError, match="did you mean STRING"):
        as_schema("name VARCHAR(20)")


def test_an_unknown_type_inside_a_struct_gives_the_path() -> None:
    with pytest.raises(InvalidSchemaError, match=r"column `place\.lat` has an unknown type `dubble`"):
        as_schema("place STRUCT<lat: DUBBLE>")


def test_all_columns_that_cannot_be_read_are_said_at_once() -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        as_schema("a INTT, b STRING, c")
    assert caught.value.what == "2 columns of the schema can't be read."
    assert caught.value.why == "column `a` has an unknown type `intt`: did you mean INT?\ncolumn `c` has no type."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "a INT,",
        ", a INT",
        "a INT INT",
        "a ARRAY",
        "a ARRAY<INT",
        "a ARRAY<INT>>",
        "a MAP<STRING>",
        "a STRUCT<>",
        "a STRUCT<b INT",
        "a DECIMAL(39,2)",
        "a DECIMAL(5,6)",
        "a DECIMAL(x)",
        "a DECIMAL(0)",
        "a INT NOT",
        "a INT COMMENT",
        "a INT COMMENT b",
        "a.b INT",
        "`unclosed INT",
        "a-b INT",
        "<> INT",
    ],
)
def test_what_is_not_ddl_is_refused_with_a_fix(text: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        as_schema(text)
    assert caught.value.fix


@pytest.mark.parametrize("text", ["a INT, a INT", "id INT, ID STRING", "s STRUCT<x: INT, X: INT>"])
def test_two_columns_of_one_name_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError, match="two columns"):
        as_schema(text)


def test_a_column_without_known_type_has_no_ddl() -> None:
    with pytest.raises(InvalidSchemaError, match="not known"):
        Schema((Column("x", None),)).ddl()


def test_with_column_adds_or_replaces_in_place() -> None:
    schema = as_schema("a INT, b INT")
    assert schema.with_column(Column("c", None)).names == ("a", "b", "c")
    assert schema.with_column(Column("A", "string")).columns == (Column("A", "string"), Column("b", "int"))


# The same examples every time, and no verdict on how fast a busy machine is.
unhurried = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

simple_types = st.sampled_from(
    ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp"]
)
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: f"decimal({p},{s})"))
names = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=8)


def columns_of(types: st.SearchStrategy[str]) -> st.SearchStrategy[list[Column]]:
    column = st.builds(Column, name=names, type=types, nullable=st.booleans())
    return st.lists(column, min_size=1, max_size=4, unique_by=lambda c: c.name.lower())


types = st.recursive(
    simple_types | decimals,
    lambda inner: (
        inner.map(lambda t: f"array<{t}>")
        | inner.map(lambda t: f"map<string,{t}>")
        | columns_of(inner).map(struct_type)
    ),
    max_leaves=6,
)


@unhurried
@given(columns_of(types).map(lambda columns: Schema(tuple(columns))))
def test_ddl_round_trips(schema: Schema) -> None:
    assert as_schema(schema.ddl()) == schema


@unhurried
@given(columns_of(types))
def test_the_fields_of_a_struct_round_trip(fields: list[Column]) -> None:
    assert struct_columns(struct_type(fields)) == tuple(fields)


@unhurried
@given(st.text(max_size=30) | st.text(alphabet="ab int<>(),`:'struct", max_size=30))
def test_any_text_is_read_or_refused_but_never_crashes(text: str) -> None:
    with contextlib.suppress(InvalidSchemaError):
        parse_columns(text)


@dataclass
class Place:
    lat: float
    lon: float | None


@dataclass
class Payment:
    payment_id: str
    cents: int
    amount: Annotated[Decimal, "DECIMAL(10,2)"]
    fee: Decimal
    weight: Annotated[float | None, "float"]
    ok: bool
    at: datetime
    day: date
    note: Optional[str]  # noqa: UP045 - both spellings are in use
    raw: bytes
    tags: list[str]
    scores: dict[str, float]
    place: Place
    visited: list[Place] | None
    small: Optional[Annotated[int, "int"]] = None  # noqa: UP045
    documented: Annotated[str, 5] = ""


def test_a_dataclass_is_a_schema() -> None:
    place = "struct<lat:double not null,lon:double>"
    assert dict(as_schema(Payment)) == {
        "payment_id": "string",
        "cents": "bigint",
        "amount": "decimal(10,2)",
        "fee": "decimal(38,18)",
        "weight": "float",
        "ok": "boolean",
        "at": "timestamp",
        "day": "date",
        "note": "string",
        "raw": "binary",
        "tags": "array<string>",
        "scores": "map<string,double>",
        "place": place,
        "visited": f"array<{place}>",
        "small": "int",
        "documented": "string",
    }


def test_only_optional_fields_may_be_null() -> None:
    nullable = [column.name for column in as_schema(Payment).columns if column.nullable]
    assert nullable == ["weight", "note", "visited", "small"]


@dataclass
class WithSet:
    seen: set[str]


@dataclass
class WithIntKeys:
    counts: dict[int, str]


@dataclass
class WithUnion:
    id: int | str


@dataclass
class WithBadOverride:
    amount: Annotated[Decimal, "decimall(10,2)"]


@dataclass
class WithBareList:
    tags: list  # type: ignore[type-arg]


@pytest.mark.parametrize("record", [WithSet, WithIntKeys, WithUnion, WithBadOverride, WithBareList])
def test_a_field_without_spark_type_is_named(record: type) -> None:
    with pytest.raises(InvalidSchemaError, match=rf"field `{record.__name__}\.\w+`") as caught:
        as_schema(record)
    assert caught.value.fix


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Empty:
    pass


@dataclass
class Dangling:
    other: Nowhere  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("record", "message"), [(Tree, "contains itself"), (Empty, "no fields"), (Dangling, "not defined: Nowhere")]
)
def test_a_dataclass_that_is_no_schema_is_refused(record: type, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        as_schema(record)


def annotated(name: str, bases: tuple[type, ...] = (), /, **fields: Any) -> type:
    """A dataclass of this module with these annotations."""
    return make_dataclass(name, fields.items(), bases=bases, namespace={"__module__": __name__})


TIMED = annotated("Timed", day=date, at="datetime.datetime")  # after `from datetime import datetime`
HALF = annotated("Half", name="str |")


@pytest.mark.parametrize(
    ("record", "field", "why"),
    [
        (TIMED, "Timed.at", "AttributeError: type object 'datetime.datetime' has no attribute 'datetime'"),
        (HALF, "Half.name", "SyntaxError: "),
        (annotated("Quoted", name="'a' | None"), "Quoted.name", "TypeError: unsupported operand"),
        (annotated("Nested", inner=HALF), "Half.name", "SyntaxError: "),
        (annotated("Inherited", (HALF,), more=int), "Inherited.name", "SyntaxError: "),
    ],
)
def test_an_annotation_that_does_not_run_is_quoted_with_its_field(record: type, field: str, why: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        as_schema(record)
    assert caught.value.what == f"the type of field `{field}` can't be read."
    assert str(caught.value.why).startswith(why)
    assert caught.value.fix


@pytest.mark.parametrize("value", [[str], "[str]", {}])
def test_an_annotation_that_is_no_type_is_refused(value: Any) -> None:
    with pytest.raises(InvalidSchemaError, match=r"field `Odd\.tags` has the type"):
        as_schema(annotated("Odd", tags=value))


@dataclass
class Seeded:
    id: str
    seed: InitVar[int]


def test_a_field_that_rows_would_not_have_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match=r"field `Seeded\.seed` is an InitVar") as caught:
        as_schema(Seeded)
    assert caught.value.fix


@pytest.mark.parametrize("text", ["STRUCT<a: INT>", "id INT, struct<a: INT>", "Array<INT>", "p STRUCT<MAP<INT, INT>>"])
def test_a_type_where_a_column_should_stand(text: str) -> None:
    with pytest.raises(InvalidSchemaError, match="is a type where a column should stand") as caught:
        as_schema(text)
    assert caught.value.why == "A schema is a list of columns, each a name and a type."


@pytest.mark.parametrize("value", [None, 5, int, Place(1.0, 2.0), ["a INT"]])
def test_other_values_are_no_schema(value: object) -> None:
    with pytest.raises(InvalidSchemaError, match="is not a schema"):
        as_schema(value)
