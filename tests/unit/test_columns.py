"""Columns are made while this module is imported: no SparkContext exists then, whatever other tests start later."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.pipeline.columns import (
    Reference,
    called_function,
    expression_text,
    is_column,
    plain_name,
    references,
)

USED: list[tuple[Any, set[str]]] = [
    (F.col("x"), {"x"}),
    (F.col("X"), {"X"}),
    (F.lit(5), set()),
    (F.current_timestamp(), set()),
    ((F.col("a") > 5) | ~(F.col("b") == F.col("c")), {"a", "b", "c"}),
    (-F.col("a") + 1 - F.col("b") * 2 / F.col("c") % 3, {"a", "b", "c"}),
    (F.when(F.col("a") > 1, F.col("b")).when(F.col("c"), 1).otherwise(F.col("d")), {"a", "b", "c", "d"}),
    (F.when(F.col("a") > 1, 0), {"a"}),
    (F.col("here.lat"), {"here"}),
    (F.col("`odd.name`.field"), {"odd.name"}),
    (F.col("`tick``ed`"), {"tick`ed"}),
    (F.col("here")["lat"], {"here"}),
    (F.col("here").getField("lat"), {"here"}),
    (F.col("xs")[F.col("i")], {"xs", "i"}),
    (F.col("xs").getItem(0), {"xs"}),
    (F.struct("a", F.col("b").alias("z")), {"a", "b"}),
    (F.array("a", F.lit(1)), {"a"}),
    (F.concat_ws("-", "a", F.col("b")), {"a", "b"}),
    (F.col("a").cast("string").alias("q"), {"a"}),
    (F.col("a").try_cast("int"), {"a"}),
    (F.transform("xs", lambda x: x + F.col("b")), {"xs", "b"}),
    (F.filter("xs", lambda x, i: x["field"] > i), {"xs"}),
    (F.aggregate("xs", F.col("zero"), lambda total, x: total + x), {"xs", "zero"}),
    (F.col("a").isin(1, 2), {"a"}),
    (F.col("a").between(F.col("low"), 9), {"a", "low"}),
    (F.col("a").like("x%") & F.col("b").startswith("y"), {"a", "b"}),
    (F.col("a").isNull() | F.isnan("b"), {"a", "b"}),
    (F.coalesce("a", "b", F.lit(0)), {"a", "b"}),
    (F.col("s").withField("f", F.col("v")), {"s", "v"}),
    (F.col("s").dropFields("f"), {"s"}),
    (F.col("a").desc(), {"a"}),
    (F.call_function("my_function", F.col("a")), {"a"}),
    (F.col("here.*"), {"here"}),
    (F.to_json(F.struct("a")), {"a"}),
    (F.to_timestamp("t", "yyyy"), {"t"}),
    (hr.speed_kmh("here"), {"here", "lat", "lon", "occurred_at"}),
    ("amount > 5 AND here.lat IS NULL", {"amount", "here"}),
    (F.expr("amount > 5"), {"amount"}),
    (F.col("a") > F.expr("b + 1"), {"a", "b"}),
    (hr.speed_kmh("prev", lat="y", lon="x", time="at") > 500, {"prev", "x", "y", "at"}),
]

UNKNOWN: list[Any] = [
    "amount >",
    F.expr("amount >"),
    F.col("a") > F.expr("b +"),
    F.col("*"),
    F.count("*"),
    F.col("broken`name"),
    F.col(""),
    5,
    None,
]


@pytest.mark.parametrize(("column", "used"), USED, ids=lambda value: str(value)[:40])
def test_the_top_level_columns_of_an_expression(column: Any, used: set[str]) -> None:
    found = references(column)
    assert found is not None
    assert {reference.path[0] for reference in found} == used


@pytest.mark.parametrize("value", UNKNOWN, ids=lambda value: str(value)[:40])
def test_none_where_only_spark_could_tell(value: Any) -> None:
    assert references(value) is None


FIELDS = F.radians(F.col("here.lat")) + F.radians(F.col("here")["lon"]) + F.col("`a.b`.c.d")
PLAIN, NESTED, COMPUTED, LITERAL = F.col("card_id"), F.col("here.lat"), F.col("a") + 1, F.lit("a")
SUM = F.col("a") > 5
STAR, DISTINCT = F.count("*"), F.count_distinct("a")
RATIO = F.count("*") / 2
LONG_TEXT = " OR ".join(f"ms = {i}" for i in range(1_000))
LONG = [F.expr(LONG_TEXT), reduce(or_, [F.col("ms") == i for i in range(1_000)])]
DEEP = reduce(lambda column, field: column[field], ["y"] * 1_000, F.col("x"))
MEANT = [F.col("user") == "a", F.upper("current_date"), F.col("s") + F.expr("1"), F.col("s")["user"]]
MAYBE_FUNCTIONS = ["user = 'a'", F.expr("user = 'a'"), F.upper(F.expr("User"))]


def test_references_are_paths_with_the_function_they_are_handed_to() -> None:
    assert references(FIELDS) == (
        Reference(("here", "lat"), "radians"),
        Reference(("here", "lon"), "radians"),
        Reference(("a.b", "c", "d"), "+"),
    )


def test_a_name_may_be_a_function_in_sql_text_and_is_a_column_in_a_column() -> None:
    assert [[r.may_be_function for r in references(value) or ()] for value in MEANT] == [[False]] * 4
    assert [[r.may_be_function for r in references(value) or ()] for value in MAYBE_FUNCTIONS] == [[True]] * 3
    assert references("user.name = amount") == (
        Reference(("user", "name"), in_sql=True),
        Reference(("amount",), in_sql=True),
    )


def test_a_long_chain_is_read() -> None:
    assert [list(map(str, references(value) or ())) for value in (LONG_TEXT, *LONG)] == [["ms"]] * 3
    assert references(DEEP) == (Reference(("x", *["y"] * 1_000)),)


def test_a_column_that_is_just_a_name_can_stand_for_it() -> None:
    assert plain_name(PLAIN) == "card_id"
    assert [plain_name(value) for value in (NESTED, COMPUTED, LITERAL, "card_id", 5)] == [None] * 5


def test_a_spark_column_is_told_from_other_values() -> None:
    assert is_column(PLAIN)
    assert not is_column("card_id")
    assert not is_column(True)
    assert not is_column(hr.Schema(()))


def test_an_expression_reads_without_the_wrapping_of_its_repr() -> None:
    assert expression_text(SUM) == ">(a, 5)"
    assert expression_text("a > 5") == "a > 5"
    assert expression_text(STAR) == "count(*)"


def test_a_call_is_told_from_what_is_made_of_calls() -> None:
    assert [called_function(value) for value in (STAR, DISTINCT, "Max_By(a, b)")] == ["count", "count", "max_by"]
    assert called_function(RATIO) == "/"
    assert [called_function(value) for value in (PLAIN, LITERAL, "a", "max(a) + 1", "max(abs(a))", 5)] == [None] * 6
