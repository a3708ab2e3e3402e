"""What only Spark can find wrong with an expression is told with its line, before an event is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine import lowering
from headrace.errors import InvalidExpressionError, PipelineError, UnknownColumnError
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Declare = Callable[[hr.Stream], Any]
MINUTE = hr.tumbling("1m")
N = hr.last("1m").count()
# Made while no SparkContext exists: a Column that is made in a session tells nothing of its columns.
MAX_DATE = F.max("current_date")


def refused(declare: Declare, spark: SparkSession, *, blind: bool = False) -> PipelineError:
    """What is said of a pipeline that was declared in one line: it names that line."""
    pipeline = hr.Pipeline("clicks")
    stream = pipeline.read("clicks", schema="user STRING, ms INT, at TIMESTAMP, tags ARRAY<STRING>").event_time("at")
    # What is after an `.apply` that does not say what it gives is not known before a session runs.
    declare(stream.apply(lambda rows: rows) if blind else stream)
    with pytest.raises(PipelineError) as caught, Driver(pipeline, spark=spark):
        pass
    problem = caught.value
    assert problem.pipeline == "clicks"
    assert problem.location is not None
    assert Path(problem.location.file).name == Path(__file__).name
    assert problem.location.line == declare.__code__.co_firstlineno
    return problem


@pytest.mark.parametrize(
    ("declare", "step", "why"),
    [
        (lambda s: s.where("ms >").write("o"), "where", "Syntax error at or near end of input"),
        (lambda s: s.where(F.col("tags") > 5).write("o"), "where", "data type mismatch"),
        (lambda s: s.with_column("x", "nosuch(ms)").write("o"), "with_column", "nosuch"),
        (lambda s: s.select("user", x="sum(ms)").write("o"), "select", "GROUP BY"),
        (
            lambda s: s.with_column("x", F.upper("tags")).key_by("user").rolling("r", n=N).write("o"),
            "with_column",
            "upper(tags)",
        ),
        (lambda s: s.key_by("user").window("w", MINUTE, x="avg(tags)").write("o"), "step `w`", "data type mismatch"),
        (lambda s: s.key_by("user").window("w", MINUTE, x="ms + 1").write("o"), "step `w`", "GROUP BY"),
        (lambda s: s.key_by("user").window("w", MINUTE, x="sum(ms").write("o"), "step `w`", "Syntax error"),
    ],
)
def test_an_expression_that_spark_does_not_take(spark: SparkSession, declare: Declare, step: str, why: str) -> None:
    problem = refused(declare, spark)
    assert isinstance(problem, InvalidExpressionError)
    assert step in problem.what
    assert why in str(problem.why)
    assert "SQLSTATE" not in str(problem), "words for people"
    assert "__hr_" not in str(problem), "nor what is ours"
    assert "user, ms, at, tags" in str(problem.fix)


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.where("usr = 'a'").write("o"),
        lambda s: s.where(F.col("usr") == "a").write("o"),
        lambda s: s.with_column("x", F.upper("usr")).write("o"),
        lambda s: s.select("ms", "usr").write("o"),
        lambda s: s.select("ms", x="usr").write("o"),
        lambda s: s.write("o", key="usr"),
        lambda s: s.key_by("usr").rolling("r", n=N).write("o"),
        lambda s: s.key_by("ms").rolling("r", x=hr.latest("usr", back=1, within="1h")).write("o"),
        lambda s: s.key_by("ms").dedupe("usr", within="1h").write("o"),
        lambda s: s.key_by("ms").window("w", MINUTE, x="max(usr)").write("o"),
        lambda s: s.key_by("ms").window("w", MINUTE, x=F.max("usr")).write("o"),
        lambda s: s.key_by("usr").window("w", MINUTE, n="count(*)").write("o"),
        lambda s: s.key_by("ms").rolling("r", n=N).where("usr = 'a'").write("o"),
        lambda s: s.key_by("ms").rolling("r", n=N).select("usr").write("o"),
    ],
)
def test_a_column_that_is_not_there_after_an_apply(spark: SparkSession, declare: Declare) -> None:
    problem = refused(declare, spark, blind=True)
    assert isinstance(problem, UnknownColumnError)
    assert "uses column `usr`, which is not there" in problem.what
    assert str(problem.fix).startswith("did you mean `user`? Columns here: user, ms, at, tags")


def test_a_column_object_means_a_column_also_after_an_apply(spark: SparkSession) -> None:
    problem = refused(lambda s: s.key_by("ms").window("w", MINUTE, x=MAX_DATE).write("o"), spark, blind=True)
    assert isinstance(problem, UnknownColumnError)
    assert problem.what == "step `w` uses column `current_date`, which is not there."


def test_after_an_apply_its_rows_tell_whether_sql_text_means_a_column(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_state = []
    lower = lowering.lower

    def noting(*args: Any, **more: Any) -> lowering.Lowered:
        lowered = lower(*args, **more)
        in_state.append(lowered.state_types)
        return lowered

    monkeypatch.setattr(lowering, "lower", noting)
    pipeline = hr.Pipeline("clicks")
    clicks = pipeline.read("clicks", schema="user STRING, ms INT, at TIMESTAMP").event_time("at")
    windows = clicks.apply(lambda rows: rows).key_by("ms").window("w", MINUTE, u="max(USER)", path="max(current_path)")
    windows.write("o")
    with Driver(pipeline, spark=spark):
        pass
    assert {"ms": "int", "USER": "string"} in in_state


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.where("ms + 1").write("o"),
        lambda s: s.where(F.col("ms")).key_by("user").rolling("r", n=N).write("o"),
        lambda s: s.key_by("user").dedupe("at", within="1h").where("ms").rolling("r", n=N).write("o"),
        lambda s: s.key_by("user").rolling("r", n=N).where("ms").write("o"),
    ],
)
def test_a_condition_that_is_not_true_or_false(spark: SparkSession, declare: Declare) -> None:
    problem = refused(declare, spark)
    assert isinstance(problem, InvalidExpressionError)
    assert problem.what == ".where(...) has a condition of type int, not boolean."
