"""What can be wrong with a window step, and what `headrace` says to it before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import (
    DuplicateStepError,
    InvalidDurationError,
    MissingEventTimeError,
    PipelineError,
    UnknownColumnError,
    UnsupportedStepError,
)
from headrace.pipeline.nodes import LateRows, Panes, Window
from tests.unit.declared import Declared, count, here

# Made while no SparkContext exists, whatever other tests start later.
COUNT: Any = F.count("*")
TOTAL, LATEST = F.sum("amount"), F.max_by("lat", "occurred_at")
MISSPELT, MISSPELT_FIELD, PLAIN = F.sum("amuont"), F.max("place.ctiy"), F.col("amount")
BIG, BY_KEY, BY_BOUNDS = F.col("Total") > 100, F.col("card_id") == "x", F.col("window_end") > F.col("window_start")
BY_EVENT, BY_PANE, BY_AGGREGATE = F.col("amount") > 5, F.col("pane_index") > 1, F.sum("lat") > 5

MINUTE = hr.tumbling("1m")


@pytest.fixture
def declared() -> Declared:
    return Declared()


# All at once


def test_everything_wrong_with_a_window_is_said_at_once() -> None:
    declared = Declared()
    start = here()
    stream = declared.read.window(
        "bad name",
        hr.hopping("1m", every="5m"),
        trigger=hr.after_count(0),
        allowed_lateness="soon",
        panes="acumulating",
        late="dorp",
        row_kind=COUNT,
        total=MISSPELT,
        five=5,
    )
    found = declared.problems(stream)
    assert all(each.location and start < each.location.line < start + 12 for each in found)
    assert {(type(each), each.what) for each in found} == {
        (PipelineError, "step name 'bad name' can't be used."),
        (PipelineError, "windows of 1m every 5m leave gaps."),
        (PipelineError, "after_count(0) is not possible."),
        (InvalidDurationError, ".window(..., allowed_lateness=...): 'soon' is not a duration."),
        (PipelineError, ".window(..., panes=...) can't be 'acumulating'."),
        (PipelineError, ".window(..., late=...) can't be 'dorp'."),
        (MissingEventTimeError, "step `bad name` needs event time."),
        (PipelineError, "step `bad name` names a result `row_kind`, but its rows have that column already."),
        (PipelineError, "step `bad name`: `five` takes a Spark Column or SQL text, not 5."),
        (UnknownColumnError, "step `bad name` uses column `amuont`, which is not there."),
    }


# Event time, key and name


def test_a_window_needs_event_time(declared: Declared) -> None:
    problem = declared.problem(declared.read.key_by("card_id").window("w", MINUTE, n=COUNT))
    assert isinstance(problem, MissingEventTimeError)
    assert problem.why == "A window groups events by time; its input has no event-time column."
    assert problem.fix == (
        'call .event_time("<column>", out_of_order=...) before .window(...). Timestamp columns here: occurred_at'
    )


def test_a_window_needs_no_key(declared: Declared) -> None:
    declared.passes(declared.timed.window("w", MINUTE, n=COUNT))


def test_the_event_time_and_the_key_must_reach_the_window(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.select("card_id", "amount").window("w", MINUTE, n=COUNT))
    assert problem.what == ".select(...) drops column `occurred_at`, which step `w` needs."


def test_a_name_of_a_step_is_given_once(declared: Declared) -> None:
    first = declared.keyed.rolling("activity", n=count())
    problem = declared.problem(first, declared.keyed.window("activity", MINUTE, n=COUNT))
    assert isinstance(problem, DuplicateStepError)


def test_another_key_after_a_window_needs_a_second_pipeline(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, n=COUNT).key_by("n"))
    assert isinstance(problem, UnsupportedStepError)
    assert "changes the key after step `w`" in problem.what


# Aggregates


def test_any_aggregate_of_spark_will_do(declared: Declared) -> None:
    declared.passes(declared.keyed.window("w", MINUTE, n=COUNT, total=TOTAL, last=LATEST, sql="max(amount) - 1"))


def test_no_aggregates(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE))
    assert problem.what == "step `w` computes nothing."
    assert problem.fix == 'name what to compute: views=F.count("*").'


@pytest.mark.parametrize("value", [5, None, True, "", " ", ["count(*)"], len])
def test_values_that_are_no_aggregate(declared: Declared, value: Any) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, n=value))
    assert problem.what == f"step `w`: `n` takes a Spark Column or SQL text, not {value!r}."
    assert problem.fix == 'pass a Spark aggregate, like n=F.sum("amount"), or SQL text, like n="sum(amount)".'


@pytest.mark.parametrize("value", [hr.last("1m").count(), hr.last("1m"), hr.latest("lat"), hr.last("x").count()])
def test_an_aggregate_of_rolling_has_windows_of_its_own(declared: Declared, value: Any) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, n=value))
    assert problem.what == "step `w`: `n` is an aggregate of .rolling(...), which has windows of its own."


def test_a_column_is_no_aggregate(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, x=PLAIN))
    assert problem.what == "step `w`: `x` is the column `amount`, not an aggregate."


def test_unknown_columns_inside_aggregates(declared: Declared) -> None:
    found = declared.problems(declared.keyed.window("w", MINUTE, x=MISSPELT, y=MISSPELT_FIELD))
    assert [type(each) for each in found] == [UnknownColumnError] * 2
    assert [each.what for each in found] == [
        "step `w` uses column `amuont`, which is not there.",
        "step `w` uses `place.ctiy`, but `place` has no field `ctiy`.",
    ]
    assert str(found[0].fix).startswith("did you mean `amount`?")


@pytest.mark.parametrize(
    "name",
    [
        "card_id",
        "Card_ID",
        "window_start",
        "window_end",
        "window_time",
        "pane_index",
        "pane_timing",
        "is_last",
        "row_kind",
    ],
)
def test_a_name_that_the_rows_have_already(declared: Declared, name: str) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, **{name: COUNT}))
    assert problem.what == f"step `w` names a result `{name}`, but its rows have that column already."


def test_an_aggregate_may_be_called_like_a_column_that_is_not_in_the_result(declared: Declared) -> None:
    declared.passes(declared.keyed.window("w", MINUTE, amount=TOTAL, late_by="max(amount)"))


def test_one_name_for_two_aggregates(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, total=TOTAL, Total=COUNT))
    assert problem.what == "step `w` gives column `total` twice."


def test_a_reserved_name(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, __hr_n=COUNT))
    assert problem.what == "column `__hr_n` has a reserved name."


def test_a_key_that_is_called_like_a_column_of_windows() -> None:
    pipeline = hr.Pipeline("p")
    rows = pipeline.read("t", schema="Window_Start STRING, at TIMESTAMP").event_time("at").key_by("Window_Start")
    declared = Declared()
    declared.pipeline, stream = pipeline, rows.window("w", MINUTE, n=COUNT)
    problem = declared.problem(stream)
    assert problem.what == "step `w` has the key `Window_Start`."


# Options


@pytest.mark.parametrize("value", list(Panes))
def test_panes_are_one_of_three(declared: Declared, value: Panes) -> None:
    stream = declared.keyed.window("w", MINUTE, n=COUNT, panes=str(value))
    assert isinstance(stream.node, Window)
    assert stream.node.panes is value
    declared.passes(stream)


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"panes": "acumulating"}, 'did you mean "accumulating"? It is one of "accumulating", "discarding", '),
        ({"panes": "Retracting"}, 'did you mean "retracting"? It is one of'),
        ({"panes": "x"}, 'It is one of "accumulating", "discarding", "retracting".'),
        ({"panes": None}, 'It is one of "accumulating"'),
        ({"late": "dropped"}, 'did you mean "drop"? It is one of "side", "drop".'),
        ({"late": True}, 'It is one of "side", "drop".'),
    ],
)
def test_a_word_that_is_misspelt(declared: Declared, options: dict[str, Any], fix: str) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, n=COUNT, **options))
    ((name, value),) = options.items()
    assert problem.what == f".window(..., {name}=...) can't be {value!r}."
    assert str(problem.fix).startswith(fix)


@pytest.mark.parametrize("name", ["trigger", "panes", "late", "allowed_lateness", "result_time"])
def test_an_aggregate_that_is_called_like_an_option(declared: Declared, name: str) -> None:
    problem = declared.problem(declared.keyed.window("w", MINUTE, n=COUNT, **{name: COUNT}))
    assert f"{name}=" in problem.what
    assert problem.fix == "for an aggregate, choose another name: this one is an option's."


def test_a_result_time_of_another_kind(declared: Declared) -> None:
    wrong: Any = "end"
    problem = declared.problem(declared.keyed.window("w", MINUTE, n=COUNT, result_time=wrong))
    assert problem.what == ".window(..., result_time=...) takes the time of a result, not 'end'."


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"trigger": hr.every("5s")}, "a trigger"),
        ({"trigger": hr.after_watermark()}, "a trigger"),
        ({"allowed_lateness": "1m"}, "allowed_lateness"),
        ({"panes": "retracting"}, 'panes="retracting"'),
    ],
)
def test_sliding_windows_give_each_event_one_result(declared: Declared, options: Any, named: str) -> None:
    problem = declared.problem(declared.keyed.window("w", hr.sliding("10m"), n=COUNT, **options))
    assert problem.what == f"step `w` has sliding windows and {named}."


def test_sliding_windows_with_what_they_do_anyway(declared: Declared) -> None:
    options: dict[str, Any] = {"trigger": hr.each(), "allowed_lateness": "0s", "panes": "accumulating", "late": "drop"}
    declared.passes(declared.keyed.window("w", hr.sliding("10m"), n=COUNT, **options))


# Triggers


@pytest.mark.parametrize("condition", [BIG, BY_KEY, BY_BOUNDS, "total > 100", "total >"])
def test_a_condition_looks_at_what_its_window_has(declared: Declared, condition: Any) -> None:
    trigger = hr.repeat(hr.when(condition))
    declared.passes(declared.keyed.window("w", hr.global_window(), total=TOTAL, trigger=trigger))


@pytest.mark.parametrize(
    ("condition", "name"),
    [(BY_EVENT, "amount"), (BY_PANE, "pane_index"), (BY_AGGREGATE, "lat"), ("amount > 5", "amount")],
)
def test_a_condition_does_not_look_at_events_or_panes(declared: Declared, condition: Any, name: str) -> None:
    trigger = hr.after_watermark(early=hr.any_of(hr.each(), hr.when(condition)))
    problem = declared.problem(declared.keyed.window("w", MINUTE, total=TOTAL, trigger=trigger))
    assert isinstance(problem, UnknownColumnError)
    assert problem.what == f"step `w`: hr.when(...) uses column `{name}`, which its windows do not have."
    assert str(problem.fix).endswith("Columns there: card_id, window_start, window_end, total")


def test_a_condition_is_checked_where_the_input_is_not_known(declared: Declared) -> None:
    applied = declared.keyed.apply(lambda df: df)
    problem = declared.problem(applied.window("w", MINUTE, total=TOTAL, trigger=hr.when(BY_EVENT)))
    assert isinstance(problem, UnknownColumnError)


@pytest.mark.parametrize(
    "trigger",
    [None, hr.after_watermark(), hr.after_watermark(late=hr.each()), hr.all_of(hr.each(), hr.after_watermark())],
    ids=str,
)
def test_a_global_window_does_not_wait_for_the_end_of_the_stream(declared: Declared, trigger: Any) -> None:
    problem = declared.problem(declared.keyed.window("w", hr.global_window(), n=COUNT, trigger=trigger))
    assert problem.what == "step `w` would give no result before the end of the stream."
    assert 'hr.every("1m")' in str(problem.fix)


@pytest.mark.parametrize("trigger", [None, hr.after_watermark()], ids=str)
def test_unless_the_stream_has_an_end(declared: Declared, trigger: Any) -> None:
    timed = declared.read.event_time("occurred_at", watermark=hr.perfect())
    declared.passes(timed.key_by("card_id").window("w", hr.global_window(), n=COUNT, trigger=trigger))


@pytest.mark.parametrize(
    "trigger", [hr.each(), hr.every("1m"), hr.after_watermark(early=hr.after_count(5)), hr.after_count(5)], ids=str
)
def test_a_global_window_with_results_on_the_way(declared: Declared, trigger: hr.Trigger) -> None:
    declared.passes(declared.keyed.window("w", hr.global_window(), n=COUNT, trigger=trigger))


def test_a_trigger_that_finishes_is_the_users_own_choice(declared: Declared) -> None:
    declared.passes(declared.keyed.window("w", MINUTE, n=COUNT, trigger=hr.after_count(5), allowed_lateness="1h"))


# Late rows


def test_late_rows_of_a_window_can_be_written_and_shaped(declared: Declared) -> None:
    windowed = declared.keyed.window("w", MINUTE, n=COUNT)
    declared.passes(windowed, windowed.late.where("amount > 5"), windowed.select("n").late)


def test_late_rows_do_not_have_the_columns_of_results(declared: Declared) -> None:
    late = declared.keyed.window("w", MINUTE, n=COUNT).late.select("window_start")
    assert isinstance(declared.problem(late), UnknownColumnError)


def test_late_rows_that_are_dropped_can_not_be_written(declared: Declared) -> None:
    windowed = declared.keyed.window("w", MINUTE, n=COUNT, late="drop")
    assert isinstance(windowed.node, Window)
    assert windowed.node.late is LateRows.DROP
    problem = declared.problem(windowed.late)
    assert problem.what == ".late has no rows here."
    assert problem.why == "Step `w` drops its late rows."


def test_the_late_rows_of_a_step_before_are_still_there(declared: Declared) -> None:
    declared.passes(declared.keyed.dedupe("txn_id").window("w", MINUTE, n=COUNT, late="drop").late)
