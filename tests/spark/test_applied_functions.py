"""Functions given to `.apply`: what goes wrong in them names the line where they were given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.lowering import lower
from headrace.engine.plan import plan_queries
from headrace.errors import EnvironmentProblem, PipelineError, UnknownColumnError
from headrace.kernel.doorway import MemoryLog
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(pipeline: hr.Pipeline) -> hr.Stream:
    return pipeline.read("clicks", schema="user STRING, ms BIGINT, at TIMESTAMP")


def refused(spark: SparkSession, function: Any) -> PipelineError:
    pipeline = hr.Pipeline("clicks")
    read(pipeline).apply(function).write("out")
    with pytest.raises(PipelineError) as caught, Driver(pipeline, spark=spark):
        pass
    assert caught.value.pipeline == "clicks"
    assert caught.value.location is not None
    assert Path(caught.value.location.file).name == Path(__file__).name
    return caught.value


def test_a_forgotten_return(spark: SparkSession) -> None:
    def forgets(rows: Any) -> None:
        rows.where("ms > 5")

    problem = refused(spark, forgets)
    assert problem.what == "the function given to .apply(...) gave None, not a DataFrame."
    assert "Is a `return` missing?" in str(problem.why)


def test_what_it_raises_comes_with_the_place(spark: SparkSession) -> None:
    def divides(rows: Any) -> Any:
        return rows.limit(1 // 0)

    problem = refused(spark, divides)
    assert problem.what == "the function given to .apply(...) failed."
    assert f"ZeroDivisionError: integer division or modulo by zero\nat {__file__}:" in str(problem.why)
    assert "TypeError" in str(refused(spark, lambda: None).why), "it takes no argument"
    assert "AttributeError" in str(refused(spark, lambda rows: rows.frobnicate()).why)


def test_the_event_time_after_it_is_found_in_any_case_and_missed_by_name(spark: SparkSession) -> None:
    pipeline = hr.Pipeline("clicks")
    timed = read(pipeline).apply(lambda rows: rows).event_time("AT")
    seen = timed.key_by("user").rolling("seen", n=hr.last("1h").count())
    seen.select("USER", "n").write("out", key="User")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("clicks", {"user": "ann", "ms": 5, "at": "2024-01-01T10:00:00Z"})
        (record,) = driver.records("out")
    assert (record.key, record.row["n"]) == ("ann", 1)

    pipeline = hr.Pipeline("clicks")
    missed = read(pipeline).apply(lambda rows: rows).event_time("when")
    missed.key_by("user").rolling("seen", n=hr.last("1h").count()).write("out")
    with pytest.raises(UnknownColumnError, match="uses column `when`, which is not there") as caught:
        Driver(pipeline, spark=spark)
    assert "Columns here: user, ms, at" in str(caught.value.fix)


def add_one(rows: Any) -> Any:
    return rows.withColumn("ms", F.udf(lambda ms: ms + 1, "bigint")("ms"))


def in_pandas(rows: Any) -> Any:
    return rows.mapInPandas(lambda frames: frames, rows.schema)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (add_one, "the Python function `<lambda>`"),
        (in_pandas, "mapInPandas"),
        (lambda rows: rows.withColumn("ms", F.col("ms") + 1), None),
    ],
)
def test_what_runs_in_python_is_known_before_it_runs(spark: SparkSession, function: Any, named: str | None) -> None:
    pipeline = hr.Pipeline("clicks")
    read(pipeline).apply(function).write("out")
    (plan,) = (plan for plan in plan_queries(pipeline) if plan.before)
    found = lower(MemoryLog(spark).records, plan).python
    assert (None if found is None else found.name) == named


def test_a_session_of_somebody_else_has_no_kernel(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = hr.Pipeline("clicks")
    read(pipeline).write("out")
    monkeypatch.setattr("headrace.testing.driver._session", None)
    with pytest.raises(EnvironmentProblem, match="is not one of Headrace"):
        # It would start one, and there is one that it did not start: that of these tests.
        Driver(pipeline)
