"""Values that steps and aggregates do not take are reported before anything runs, with their place and a fix."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import (
    InvalidDurationError,
    InvalidSchemaError,
    PipelineError,
    UnknownColumnError,
)
from tests.unit.declared import Declared, count

# Made while no SparkContext exists, whatever other tests start later.
AMUONT = F.col("amuont") > 5
SQL = F.expr("what_ever > 5")
SUM = F.sum("amount")
DOUBLED: Any = F.col("amount") * 2
BARE_NUMBER: Any = 60


@pytest.fixture
def declared() -> Declared:
    return Declared()


@pytest.mark.parametrize("value", [True, False])
def test_a_python_bool_is_no_condition(declared: Declared, value: bool) -> None:
    problem = declared.problem(declared.read.where(value))
    assert problem.what == f".where(...) takes a Spark Column or SQL text, not {value}."
    assert "& | ~" in str(problem.fix)


@pytest.mark.parametrize("value", [5, None, "", "  ", ["amount > 5"]])
def test_other_values_are_no_condition(declared: Declared, value: object) -> None:
    assert "takes a Spark Column or SQL text" in declared.problem(declared.read.where(value)).what


def test_a_constant_is_given_as_a_literal(declared: Declared) -> None:
    found = declared.problems(declared.read.with_column("x", 5), declared.read.select(y=5.5))
    assert [each.fix for each in found] == ["for a constant, pass F.lit(5).", "for a constant, pass F.lit(5.5)."]


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d.read.key_by(),
        lambda d: d.read.key_by(""),
        lambda d: d.read.key_by(5),
        lambda d: d.read.key_by(DOUBLED),
        lambda d: d.read.event_time(DOUBLED),
        lambda d: d.timed.dedupe(name="once"),
        lambda d: d.read.select(),
        lambda d: d.read.select(DOUBLED),
        lambda d: d.read.with_column(5, "1"),
        lambda d: d.keyed.rolling("r"),
        lambda d: d.keyed.rolling("r", x=5),
        lambda d: d.keyed.rolling("r", x=hr.last("1m")),
        lambda d: d.keyed.rolling("r", x=SUM),
        lambda d: d.keyed.rolling("r", x=hr.last("1m").sum(DOUBLED)),
        lambda d: d.keyed.rolling("r", n=hr.last("1m").count(), x=hr.latest()),
        lambda d: d.keyed.rolling("r", n=hr.last("1m").count(), x=hr.latest(DOUBLED)),
        lambda d: d.read.apply("not a function"),
    ],
)
def test_values_that_are_not_what_a_step_takes(declared: Declared, use: Any) -> None:
    assert type(declared.problem(use(declared))) is PipelineError


@pytest.mark.parametrize("function", ["sum", "avg", "min", "max", "stddev", "approx_count_distinct"])
@pytest.mark.parametrize("column", [None, "", " "])
def test_an_aggregate_but_a_count_needs_a_column(declared: Declared, function: str, column: Any) -> None:
    problem = declared.problem(declared.keyed.rolling("r", x=getattr(hr.last("1m"), function)(column)))
    assert problem.what == f"an aggregate takes the name of a column, not {column!r}."


def test_a_count_of_rows_names_no_column(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.rolling("r", n=hr.last("1m").count("*")))
    assert problem.fix == "leave it out: .count()."


@pytest.mark.parametrize("column", ["", None, ["lat"]])
def test_latest_takes_names_one_by_one(declared: Declared, column: Any) -> None:
    problem = declared.problem(declared.keyed.rolling("r", n=count(), x=hr.latest("lat", column)))
    assert problem.what == f"latest() takes names of columns, not {column!r}."
    assert str(problem.fix).startswith('pass each by itself, like hr.latest("lat", "lon")')


def test_latest_names_a_column_once_and_what_follows_is_checked_all_the_same(declared: Declared) -> None:
    activity = declared.keyed.rolling("r", n=count(), x=hr.latest("amount", "lat", "Amount"))
    found = declared.problems(activity.where("x.amount > x.lat AND x.lon > 1"))
    assert [problem.what for problem in found] == [
        "latest('amount', 'lat', 'Amount') names a column twice.",
        ".where(...) uses `x.lon`, but `x` has no field `lon`.",
    ]


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda d: d.read.key_by("card_id", "card_id"), ".key_by(...)"),
        (lambda d: d.read.apply(lambda df: df).key_by("CARD_ID", "card_id"), ".key_by(...)"),
        (lambda d: d.timed.dedupe("card_id", "Card_id"), "step `dedupe-card_id-Card_id`"),
    ],
)
def test_a_key_names_a_column_once(declared: Declared, use: Any, what: str) -> None:
    problem = declared.problem(use(declared))
    assert (problem.what, problem.fix) == (f"{what} names column `card_id` twice.", "name each column once.")


def test_so_does_the_key_of_an_output(declared: Declared) -> None:
    declared.read.write("out", key=["card_id", "Card_Id"])
    declared.read.write(hr.sinks.postgres("postgresql://localhost/shop", table="t", key=("lat", "lat")))
    assert [problem.what for problem in declared.problems()] == [
        ".write(...) names column `card_id` twice.",
        ".write(...) names column `lat` twice.",
    ]


@pytest.mark.parametrize("back", [-1, 1001, 1.5, True, "1"])
def test_latest_counts_back_from_0_to_1000(declared: Declared, back: Any) -> None:
    problem = declared.problem(declared.keyed.rolling("r", n=count(), x=hr.latest("lat", back=back)))
    assert problem.fix == "pass a whole number from 0 to 1000."


@pytest.mark.parametrize("back", [0, 1, 1000])
def test_latest_reaches_from_the_event_itself_to_a_thousand_back(declared: Declared, back: int) -> None:
    declared.passes(declared.keyed.rolling("r", n=count(), x=hr.latest("lat", back=back)))


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d.read.event_time("occurred_at", out_of_order="30 parsecs"),
        lambda d: d.read.event_time("occurred_at", max_skew="-1s"),
        lambda d: d.timed.dedupe("txn_id", within="0s"),
        lambda d: d.keyed.rolling("r", n=hr.last("0s").count()),
        lambda d: d.keyed.rolling("r", n=hr.last(BARE_NUMBER).count()),
        lambda d: d.keyed.rolling("r", n=hr.latest("lat", within="soon")),
    ],
)
def test_durations_that_cannot_be_read(declared: Declared, use: Any) -> None:
    assert isinstance(declared.problem(use(declared)), InvalidDurationError)


def test_the_rest_of_an_aggregate_is_checked_even_if_its_window_is_wrong(declared: Declared) -> None:
    found = declared.problems(declared.keyed.rolling("r", n=hr.last("1 lightyear").sum("amuont")))
    assert {type(each) for each in found} == {InvalidDurationError, UnknownColumnError}


def test_a_schema_that_cannot_be_read_is_one_problem(declared: Declared) -> None:
    other = declared.pipeline.read("other", schema="at TIMESTMP, key STRING").event_time("at").key_by("key")
    problem = declared.problem(other.rolling("r", n=count()))
    assert isinstance(problem, InvalidSchemaError)
    assert problem.what == '.read("other"): column `at` has an unknown type `timestmp`: did you mean TIMESTAMP?'


def test_a_schema_of_apply_that_cannot_be_read(declared: Declared) -> None:
    problem = declared.problem(declared.read.apply(lambda df: df, schema="a STRUCT<b INT").where(AMUONT))
    assert problem.what == ".apply(..., schema=...): column `a` can't be read: `>` is expected at the end."
