"""From a pipeline to its queries: what runs together, what comes out where, and under which names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.plan import Branch, QueryPlan, Route, plan_queries
from headrace.errors import InvalidPipelineError, UnknownColumnError, UnsupportedStepError
from headrace.pipeline.nodes import Apply, EventTime, KeyBy, Select, Where, WithColumn
from tests.unit.declared import Declared, count, here


def declared() -> Declared:
    return Declared("job")


def branches(query: QueryPlan) -> dict[str, tuple[Route, list[str]]]:
    """Of each output topic: the route, and the kinds of the steps on the way."""
    return {b.topic: (b.route, [type(s).__name__ for s in b.steps]) for b in query.branches}


def branch(query: QueryPlan, topic: str) -> Branch:
    return next(b for b in query.branches if b.topic == topic)


def stateful(query: QueryPlan) -> list[str]:
    return [step.name for step in query.stateful]


def test_steps_on_one_key_run_in_one_query() -> None:
    d = declared()
    rolled = d.keyed.dedupe("txn_id").rolling("activity", n=count())
    rolled.where("n > 1").write("alerts")
    rolled.write("all")
    (query,) = plan_queries(d.pipeline)
    assert query.name == "job-activity"
    assert query.key == ("card_id",)
    assert stateful(query) == ["dedupe-txn_id", "activity"]
    assert query.step == "activity", "results are named after the last step"
    assert query.takes_side_rows
    assert query.event_time is not None
    assert query.event_time.column == "occurred_at"
    assert branches(query)["alerts"] == (Route.RESULT, ["Where"])
    assert branches(query)["all"] == (Route.RESULT, [])


def test_a_dedupe_before_the_key_is_fused_with_what_follows_it() -> None:
    d = declared()
    d.timed.dedupe("txn_id").key_by("card_id").rolling("activity", n=count()).write("all")
    (query,) = plan_queries(d.pipeline)
    assert stateful(query) == ["dedupe-txn_id", "activity"]
    assert query.key == ("card_id",)


def test_a_dedupe_without_a_key_is_keyed_by_its_id() -> None:
    d = declared()
    d.timed.dedupe("txn_id", "sent").write("once")
    (query,) = plan_queries(d.pipeline)
    assert query.key == ("txn_id", "sent")


def test_steps_stand_before_or_after_the_operator_as_written() -> None:
    d = declared()
    before = d.read.where("amount > 0").event_time("occurred_at").with_column("x", "amount * 2").key_by("card_id")
    before.rolling("activity", n=count()).select("card_id", "n").where("n > 1").write("alerts")
    (query,) = plan_queries(d.pipeline)
    assert [type(s) for s in query.before[:-1]] == [Where, EventTime, WithColumn, KeyBy]
    assert [type(s) for s in branch(query, "alerts").steps] == [Select, Where]


def test_what_nobody_routed_goes_to_topics_of_the_pipeline() -> None:
    d = declared()
    d.keyed.rolling("activity", n=count()).write("all")
    (query,) = plan_queries(d.pipeline)
    assert branches(query) == {
        "all": (Route.RESULT, []),
        "job.dead-letters": (Route.DEAD_LETTER, []),
        "job.quarantined": (Route.QUARANTINED, []),
        "job.late": (Route.LATE, []),
    }
    assert [b.write for b in query.branches if b.topic.startswith("job.")] == [None] * 3
    assert query.output_topics == ("all", "job.dead-letters", "job.quarantined", "job.late")


def test_without_max_skew_nothing_is_quarantined_and_without_state_nothing_is_late() -> None:
    pipeline = hr.Pipeline("job")
    pipeline.read("in", schema="k STRING, at TIMESTAMP").event_time("at").write("out")
    (query,) = plan_queries(pipeline)
    assert set(branches(query)) == {"out", "job.dead-letters"}


@pytest.mark.parametrize("where", ["dedupe", "rolling"])
def test_side_outputs_come_out_of_the_fused_operator_wherever_they_are_taken(where: str) -> None:
    d = declared()
    once = d.keyed.dedupe("txn_id")
    rolled = once.rolling("activity", n=count())
    rolled.write("all")
    taken = once if where == "dedupe" else rolled
    taken.late.write("late")
    taken.duplicates.select("txn_id").write("again")
    taken.quarantined.write("future")
    taken.dead_letters.write("dead")
    (query,) = plan_queries(d.pipeline)
    assert branches(query) == {
        "all": (Route.RESULT, []),
        "late": (Route.LATE, []),
        "again": (Route.DUPLICATE, ["Select"]),
        "future": (Route.QUARANTINED, []),
        "dead": (Route.DEAD_LETTER, []),
    }


def test_side_outputs_of_the_read_come_out_of_its_operator_too() -> None:
    d = declared()
    d.keyed.rolling("activity", n=count()).write("all")
    d.read.dead_letters.write("dead")
    d.timed.quarantined.write("future")
    (query,) = plan_queries(d.pipeline)
    assert branches(query)["dead"] == (Route.DEAD_LETTER, [])
    assert branches(query)["future"] == (Route.QUARANTINED, [])


def test_an_operator_of_which_only_a_side_output_is_written_runs_all_the_same() -> None:
    d = declared()
    d.keyed.rolling("activity", n=count()).late.write("late")
    (query,) = plan_queries(d.pipeline)
    assert stateful(query) == ["activity"]
    assert branches(query)["late"] == (Route.LATE, [])
    assert Route.RESULT not in [b.route for b in query.branches]


def test_a_read_of_which_only_the_dead_letters_are_written_is_read_all_the_same() -> None:
    d = declared()
    d.read.dead_letters.write("dead")
    (query,) = plan_queries(d.pipeline)
    assert (query.name, stateful(query), query.takes_side_rows) == ("job", [], True)
    assert branches(query) == {"dead": (Route.DEAD_LETTER, [])}


def two_operators() -> tuple[Declared, hr.Stream, hr.Stream]:
    d = declared()
    by_card = d.keyed.rolling("by-card", n=count())
    by_city = d.timed.key_by("place").rolling("by-place", n=count())
    return d, by_card, by_city


def test_two_operators_on_one_read_are_two_queries_and_one_takes_the_side_rows() -> None:
    d, by_card, by_place = two_operators()
    by_card.write("cards")
    by_place.write("places")
    first, second = plan_queries(d.pipeline)
    assert (first.name, second.name) == ("job-by-card", "job-by-place")
    assert (first.key, second.key) == (("card_id",), ("place",))
    assert (first.takes_side_rows, second.takes_side_rows) == (True, False)
    assert "job.quarantined" in branches(first)
    assert "job.quarantined" not in branches(second), "they would come twice"
    assert "job.late" in branches(second), "each operator has its own late rows"
    assert first.read is second.read


def test_each_operator_has_its_own_late_rows_and_the_read_one_set_of_dead_letters() -> None:
    d, by_card, by_place = two_operators()
    by_card.write("cards")
    by_place.write("places")
    by_place.late.write("late-places")
    by_place.dead_letters.write("dead")
    first, second = plan_queries(d.pipeline)
    assert branches(second)["late-places"] == (Route.LATE, [])
    assert "late-places" not in branches(first)
    assert [("dead" in branches(q)) for q in (first, second)] == [True, False]


def test_a_stateless_output_beside_an_operator_is_a_query_of_its_own() -> None:
    d = declared()
    d.keyed.rolling("activity", n=count()).write("all")
    d.read.where("amount > 0").write("copy")
    names = {q.name: q for q in plan_queries(d.pipeline)}
    assert set(names) == {"job-activity", "job"}
    assert [q.takes_side_rows for q in names.values()].count(True) == 1


def test_stateless_outputs_of_one_read_are_one_query() -> None:
    d = declared()
    d.read.where("amount > 0").write("a")
    d.read.select("card_id").write("b")
    (query,) = plan_queries(d.pipeline)
    assert branches(query)["a"] == (Route.RESULT, ["Where"])
    assert branches(query)["b"] == (Route.RESULT, ["Select"])


@pytest.mark.parametrize(
    "build",
    [
        lambda d: d.read.key_by("card_id"),
        lambda d: d.timed.key_by("card_id").where("amount > 0"),
        lambda d: d.timed.dedupe("txn_id").key_by("card_id"),
        lambda d: d.keyed.rolling("activity", n=count()),
    ],
    ids=["a copy", "timed", "after an operator of another key", "an operator"],
)
def test_records_have_the_key_of_their_stream(build: Callable[[Declared], hr.Stream]) -> None:
    d = declared()
    build(d).write("out")
    (query,) = plan_queries(d.pipeline)
    assert branch(query, "out").key == ("card_id",)


def test_a_write_may_have_another_key_and_a_stream_none() -> None:
    d = declared()
    d.read.key_by("card_id").write("by-id", key="txn_id")
    d.read.write("copy")
    (query,) = plan_queries(d.pipeline)
    assert (branch(query, "by-id").key, branch(query, "copy").key) == (("txn_id",), None)


def test_where_before_the_event_time_of_one_output_leaves_the_other_outputs_alone() -> None:
    d = declared()
    d.read.where("amount > 0").event_time("occurred_at").write("positive")
    d.read.write("all")
    for query in plan_queries(d.pipeline):
        if "all" in branches(query):
            assert not any(isinstance(step, Where) for step in query.before)


def test_two_reads_are_two_queries_each_with_its_own_side_rows() -> None:
    pipeline = hr.Pipeline("job")
    pipeline.read("a", schema="k STRING").write("out")
    pipeline.read("b", schema="k STRING").write("out")
    queries = plan_queries(pipeline)
    assert [(q.name, q.takes_side_rows) for q in queries] == [("job-a", True), ("job-b", True)]


def test_apply_makes_a_query_for_what_never_became_rows() -> None:
    """A function may drop rows or change them, so rows that are not data do not pass through it."""
    d = declared()
    applied = d.timed.apply(lambda df: df)
    applied.key_by("card_id").rolling("activity", n=count()).write("all")
    applied.dead_letters.write("dead")
    applied.quarantined.write("future")
    intake, query = plan_queries(d.pipeline)
    assert intake.name == "job-intake-transactions"
    assert (intake.takes_side_rows, query.takes_side_rows) == (True, False)
    assert [type(s) for s in intake.before] == [EventTime], "as far as it decides what is quarantined"
    assert branches(intake) == {"dead": (Route.DEAD_LETTER, []), "future": (Route.QUARANTINED, [])}
    assert [type(s) for s in query.before[:3]] == [EventTime, Apply, KeyBy]
    assert set(branches(query)) == {"all", "job.dead-letters", "job.late"}


def test_event_time_after_apply_quarantines_in_the_query_of_the_function() -> None:
    d = declared()
    timed = d.read.apply(lambda df: df).event_time("occurred_at", max_skew="5m")
    timed.write("all")
    timed.quarantined.write("future")
    intake, query = plan_queries(d.pipeline)
    assert set(branches(intake)) == {"job.dead-letters"}
    assert set(branches(query)) == {"all", "future", "job.dead-letters"}


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda s: s.rolling("first", n=count()).where("n > 1"), "`where` between two rolling steps"),
        (lambda s: s.rolling("first", n=count()).with_column("x", "n + 1"), "`with_column` between two rolling steps"),
        (
            lambda s: s.dedupe("txn_id").select("card_id", "occurred_at"),
            "drops or changes `txn_id`, an id of the dedupe",
        ),
        (lambda s: s.dedupe("txn_id").with_column("txn_id", "'x'"), "`txn_id` is an id of the dedupe before"),
        (lambda s: s.rolling("first", total=count()).dedupe("total"), "uses `total`, a result of the step before"),
    ],
    ids=["where", "with_column", "select", "another id", "a result"],
)
def test_a_step_between_fused_steps_that_would_change_their_meaning_is_refused(
    build: Callable[[hr.Stream], hr.Stream], what: str
) -> None:
    d = declared()
    problem = d.problem(build(d.keyed).rolling("last", m=count()))
    assert isinstance(problem, UnsupportedStepError)
    assert what in problem.what
    with pytest.raises(InvalidPipelineError, match=re.escape(what)):
        plan_queries(d.pipeline)


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda s: s.window("w", hr.tumbling("1m"), n="count(*)").rolling("r", m=count()), "step `r` after the window"),
        (lambda s: s.rolling("r", m=count()).window("w", hr.tumbling("1m"), n="count(*)"), "the window `w` after a"),
    ],
    ids=["before", "after"],
)
def test_a_window_shares_its_operator_with_no_rolling_step(build: Callable[[hr.Stream], hr.Stream], what: str) -> None:
    d = declared()
    assert what in d.problem(build(d.keyed)).what


def test_mistakes_between_fused_steps_are_told_with_all_others_whether_written_or_not() -> None:
    d = declared()
    first = d.keyed.rolling("first", n=count(), total=hr.last("1m").sum("amount"))
    start = here()
    shared = first.where("n > 1")
    d.read.where("amuont > 0").write("out")
    one, two = shared.rolling("one", a=count()), shared.rolling("two", b=count())
    first.rolling("sums", again=hr.last("1m").sum("total")).late.write("late")
    assert two is not None
    found = d.problems(one)
    assert [(type(p), p.location.line - start) for p in found if p.location is not None] == [
        (UnsupportedStepError, 1),
        (UnknownColumnError, 2),
        (UnsupportedStepError, 4),
    ]
    assert found[2].what == "step `sums` uses `total`, a result of the step before: not supported yet."


def test_what_follows_the_last_step_with_state_may_use_its_results() -> None:
    d = declared()
    activity = d.timed.dedupe("txn_id").key_by("card_id").rolling("activity", n=count())
    d.passes(activity.where("n > 1").with_column("txn_id", "n"), activity.late.where("amount > 1").select("amount"))


def test_a_wrong_pipeline_is_not_planned() -> None:
    d = declared()
    with pytest.raises(InvalidPipelineError, match="writes nothing"):
        plan_queries(d.pipeline)


def test_the_name_of_an_operators_query_does_not_depend_on_what_else_the_pipeline_does() -> None:
    """It is the name of the operator's state: another output must not make it start anew from the beginning."""

    def names(**more: Any) -> set[str]:
        d = declared()
        d.keyed.rolling("activity", n=count()).write("all")
        if more:
            d.read.write("copy")
        return {query.name for query in plan_queries(d.pipeline) if query.stateful}

    assert names() == names(copy=True)


def test_results_wait_for_the_watermark_in_windows_and_in_functions_of_the_user() -> None:
    pipeline = hr.Pipeline("waiting")
    clicks = pipeline.read("clicks", schema="id STRING, page STRING, at TIMESTAMP").event_time("at", out_of_order="1m")
    by_page = clicks.key_by("page")
    by_page.rolling("recent", count=hr.last("5m").count()).write("recent")
    by_page.window("views", hr.tumbling("1m"), views=F.count("*")).write("views")
    clicks.apply(lambda df: df).write("applied")
    waits = {query.output_topics[0]: query.results_wait for query in plan_queries(pipeline)}
    assert {topic: waits[topic] for topic in ("recent", "views", "applied")} == {
        "recent": False,
        "views": True,
        "applied": True,
    }


def test_event_times_that_only_functions_follow_have_queries_that_tell_of_what_has_none() -> None:
    pipeline = hr.Pipeline("job")
    read = pipeline.read("clicks", schema="a TIMESTAMP, b TIMESTAMP")
    read.write("copies")
    for column in ("a", "b"):
        read.event_time(column, max_skew="5m").apply(lambda rows: rows).write(f"by-{column}")
    queries = {query.name: query for query in plan_queries(pipeline)}
    for name in ("job-times-clicks", "job-times-clicks-2"):
        routes = {branch.route: branch.topic for branch in queries[name].branches}
        assert routes == {Route.DEAD_LETTER: "job.dead-letters", Route.QUARANTINED: "job.quarantined"}
    assert [query.name for query in queries.values() if query.takes_side_rows] == ["job"]
