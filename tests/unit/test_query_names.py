"""The names of queries: nobody but the user changes them, and no two queries have one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headrace as hr
from headrace.engine.plan import plan_queries
from headrace.engine.sink_plan import plan_sinks
from headrace.errors import DuplicateStepError, InvalidPipelineError, PipelineError
from tests.unit.declared import Declared, count

DECLARATION = """
import headrace as hr

pipeline = hr.Pipeline("job")
rows = pipeline.read("in", schema="k STRING, at TIMESTAMP")
rows.apply(lambda df: df).write("first")
rows.apply(lambda df: df).write("second")
rows.event_time("at").write("timed")
rows.event_time("at", max_skew="5m").write("timed-too")
"""


def names(pipeline: hr.Pipeline) -> dict[str, str]:
    """Of each topic of results, the query that writes it."""
    return {query.branches[0].topic: query.name for query in plan_queries(pipeline)}


def declared(text: str) -> hr.Pipeline:
    found: dict[str, object] = {"__name__": "job"}
    exec(compile(text, "job.py", "exec"), found)
    pipeline = found["pipeline"]
    assert isinstance(pipeline, hr.Pipeline)
    return pipeline


def clashes(pipeline: hr.Pipeline) -> tuple[PipelineError, ...]:
    with pytest.raises(InvalidPipelineError) as caught:
        plan_queries(pipeline)
    assert all(isinstance(problem, DuplicateStepError) for problem in caught.value.problems)
    return caught.value.problems


def test_a_comment_more_renames_no_query() -> None:
    before = names(declared(DECLARATION))
    assert names(declared(DECLARATION.replace("rows.", "# why\n\nrows."))) == before
    assert before == {
        "first": "job-apply-in",
        "second": "job-apply-in-2",
        "timed": "job-timed-in",
        "timed-too": "job-timed-in-2",
    }


def test_functions_of_one_line_have_a_query_each() -> None:
    pipeline = hr.Pipeline("job")
    rows = pipeline.read("in", schema="k STRING")
    for number in range(3):
        rows.apply(lambda df: df, schema="k STRING").write(f"out-{number}")
    found = [query.name for query in plan_queries(pipeline)]
    assert found == ["job-intake-in", "job-apply-in", "job-apply-in-2", "job-apply-in-3"]


def test_functions_are_counted_as_they_are_declared_not_as_they_are_written() -> None:
    pipeline = hr.Pipeline("job")
    rows = pipeline.read("in", schema="k STRING")
    one, two = rows.apply(lambda df: df), rows.apply(lambda df: df)
    two.write("two")
    one.write("one")
    assert {name: topic for topic, name in names(pipeline).items()} == {
        "job-intake-in": "job.dead-letters",
        "job-apply-in": "one",
        "job-apply-in-2": "two",
    }


def test_functions_of_two_topics_are_counted_apart() -> None:
    pipeline = hr.Pipeline("job")
    for topic in ("a", "b"):
        pipeline.read(topic, schema="k STRING").apply(lambda df: df).write(f"{topic}-out")
    found = {name for name in names(pipeline).values() if "apply" in name}
    assert found == {"job-apply-a", "job-apply-b"}


@pytest.mark.parametrize(
    "more",
    [
        lambda d: d.keyed.rolling("activity", n=count()).write("counted"),
        lambda d: d.read.apply(lambda df: df).write("applied"),
        lambda d: d.read.write(hr.sinks.console()),
    ],
    ids=["an operator", "a function", "a sink"],
)
def test_what_comes_beside_the_one_query_without_state_does_not_rename_it(more: Callable[[Declared], None]) -> None:
    d = Declared("job")
    d.read.where("amount > 0").write("copy")
    assert names(d.pipeline) == {"copy": "job"}
    more(d)
    assert names(d.pipeline)["copy"] == "job"


def test_a_step_that_is_called_as_a_topic_is_refused() -> None:
    pipeline = hr.Pipeline("job")
    for topic in ("a", "b"):
        rows = pipeline.read(topic, schema="k STRING, at TIMESTAMP")
        rows.write(f"{topic}-out")
    rows.event_time("at").key_by("k").rolling("a", n=count()).write("counted")
    (problem,) = clashes(pipeline)
    assert problem.what == "two queries would be called `job-a`."
    assert str(problem.why).count("test_query_names.py:") == 2
    assert "test_query_names.py" in str(problem.location)
    assert "another" in str(problem.fix)


def test_a_step_that_is_called_as_the_query_of_a_sink_is_refused() -> None:
    d = Declared("job")
    d.keyed.rolling("to-console", n=count()).write("counted")
    d.read.write(hr.sinks.console())
    assert [plan.name for plan in plan_sinks(d.pipeline)] == ["job-to-console"]
    (problem,) = clashes(d.pipeline)
    assert problem.what == "two queries would be called `job-to-console`."


def test_all_queries_of_one_name_are_told_at_once() -> None:
    pipeline = hr.Pipeline("job")
    for topic in ("a", "b"):
        rows = pipeline.read(topic, schema="k STRING, at TIMESTAMP")
        rows.write(f"{topic}-out")
        rows.event_time("at").key_by("k").rolling(topic, n=count()).write(f"{topic}-counted")
    assert [problem.what for problem in clashes(pipeline)] == [
        "two queries would be called `job-a`.",
        "two queries would be called `job-b`.",
    ]
