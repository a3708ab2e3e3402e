"""Every mistake that a pipeline can have is reported before anything runs, with its place and a fix."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import (
    InvalidDurationError,
    InvalidPipelineError,
    MissingEventTimeError,
    PipelineError,
    UnknownColumnError,
)
from tests.unit.declared import SCHEMA, Declared, count, here

COLUMNS = "txn_id, card_id, amount, lat, lon, occurred_at, sent, tags, place"

# Made while no SparkContext exists, whatever other tests start later.
AMUONT = F.col("amuont") > 5
MIXED_CASE = (F.col("AMOUNT") > 5) & (F.col("Place.City") == "Oslo") & (F.col("tags.anything") == "x")
WRONG_FIELD = F.col("place.ctiy") == "Oslo"
LAMBDA = F.exists(F.map_keys("tags"), lambda key: key == F.col("card"))
SQL = F.expr("what_ever > 5")
USER = F.col("user") == "a"
MAX_USER = F.max("user")
COUNT = F.col("n") > 5
SPEED = hr.speed_kmh("here") > 500
SPEED_BY_SENT = hr.speed_kmh("here", time="sent") > 500
SPEED_BY_CITY = hr.speed_kmh("here", lat="card_id") > 500
DOUBLED: Any = F.col("amount") * 2


@pytest.fixture
def declared() -> Declared:
    return Declared()


# All at once


def test_all_problems_are_raised_at_once_in_the_order_of_the_lines() -> None:
    start = here()
    pipeline = hr.Pipeline("card fraud")
    txns = pipeline.read("transactions", schema=SCHEMA)
    window = hr.last("30 parsecs")
    activity = (
        txns.event_time("occured_at")
        .key_by("card")
        .rolling("activity", n=window.count(), total=hr.last("1m").sum("amuont"))
    )
    activity.where(True).write("transactions")
    with pytest.raises(InvalidPipelineError) as caught:
        pipeline.check()
    found = [(type(each), each.location.line - start) for each in caught.value.problems if each.location]
    assert found == [
        (PipelineError, 1),
        (InvalidDurationError, 3),
        (UnknownColumnError, 5),
        (UnknownColumnError, 6),
        (UnknownColumnError, 7),
        (PipelineError, 9),
        (PipelineError, 9),
    ]
    assert str(caught.value).startswith("pipeline `card fraud` has 7 problems.\n\nPipelineError: pipeline name")


def test_a_problem_reads_as_what_where_why_and_fix(declared: Declared) -> None:
    line = here() + 1
    declared.read.key_by("card_id").rolling("probe", n=count())
    problem = declared.problem(declared.read)
    assert isinstance(problem, MissingEventTimeError)
    assert problem.location is not None
    assert problem.render() == (
        "step `probe` needs event time.\n"
        f"  at {problem.location.file}:{line}, pipeline `card-fraud`\n"
        "  A rolling window orders events by time; its input has no event-time column.\n"
        '  Fix: call .event_time("<column>", out_of_order=...) before .rolling(...). '
        "Timestamp columns here: occurred_at"
    )


def test_the_problems_survive_pickling(declared: Declared) -> None:
    declared.read.where(AMUONT).write("out")
    with pytest.raises(InvalidPipelineError) as caught:
        declared.pipeline.check()
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert str(copy) == str(caught.value)


def test_a_sound_pipeline_passes_however_often_it_is_checked(declared: Declared) -> None:
    activity = (
        declared.timed.dedupe("txn_id")
        .key_by("card_id")
        .rolling("activity", n=count(), here=hr.latest("lat", "lon", "occurred_at"))
    )
    alerts = activity.where(COUNT | SPEED)
    streams = (alerts, activity.late, activity.duplicates, activity.quarantined, activity.dead_letters)
    declared.passes(*streams)
    declared.pipeline.check()


# Columns


def test_an_unknown_column_comes_with_the_closest_and_those_that_are_there(declared: Declared) -> None:
    problem = declared.problem(declared.read.where(AMUONT))
    assert isinstance(problem, UnknownColumnError)
    assert problem.what == ".where(...) uses column `amuont`, which is not there."
    assert problem.fix == f"did you mean `amount`? Columns here: {COLUMNS}"


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda d: d.read.event_time("nope"), ".event_time(...)"),
        (lambda d: d.read.key_by("card_id", "nope"), ".key_by(...)"),
        (lambda d: d.timed.dedupe("nope"), "step `dedupe-nope`"),
        (lambda d: d.keyed.rolling("r", n=hr.last("1m").count("nope")), "step `r`"),
        (lambda d: d.keyed.rolling("r", n=hr.last("1m").max("nope")), "step `r`"),
        (lambda d: d.keyed.rolling("r", n=count(), l=hr.latest("lat", "nope")), "step `r`"),
        (lambda d: d.read.select("card_id", "nope"), ".select(...)"),
        (lambda d: d.read.select("card_id", "nope").select("nope"), ".select(...)"),
    ],
)
def test_an_unknown_column_is_found_wherever_a_name_stands(declared: Declared, use: Any, what: str) -> None:
    found = declared.problems(use(declared))
    assert isinstance(found[0], UnknownColumnError)
    assert found[0].what == f"{what} uses column `nope`, which is not there."


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d.read.with_column("x", AMUONT),
        lambda d: d.read.select("card_id", x=AMUONT),
        lambda d: d.read.where(LAMBDA),
    ],
)
def test_an_unknown_column_is_found_inside_expressions(declared: Declared, use: Any) -> None:
    assert isinstance(declared.problem(use(declared)), UnknownColumnError)


def test_an_unknown_key_of_a_write(declared: Declared) -> None:
    declared.read.write("out", key=["card_id", "card"])
    assert declared.problem().what == ".write(...) uses column `card`, which is not there."


def test_a_result_of_a_step_is_a_column_after_it_and_not_before(declared: Declared) -> None:
    before = declared.keyed.where(COUNT)
    after = before.rolling("r", n=count()).where(COUNT)
    problem = declared.problem(after)
    assert problem.location == before.node.location


def test_what_a_select_leaves_out_is_gone(declared: Declared) -> None:
    assert "Columns here: card_id" in str(declared.problem(declared.read.select("card_id").where(COUNT)).fix)


def test_a_slip_in_a_select_is_reported_once(declared: Declared) -> None:
    stream = declared.read.select("card_id", "ammount").with_column("double", DOUBLED)
    assert declared.problem(stream).what == ".select(...) uses column `ammount`, which is not there."


def test_spark_does_not_tell_upper_from_lower_case_and_neither_do_we(declared: Declared) -> None:
    declared.passes(declared.timed.key_by("CARD_ID").where(MIXED_CASE).rolling("r", n=hr.last("1m").sum("Amount")))


def test_a_field_that_a_struct_does_not_have(declared: Declared) -> None:
    problem = declared.problem(declared.read.where(WRONG_FIELD))
    assert problem.what == ".where(...) uses `place.ctiy`, but `place` has no field `ctiy`."
    assert problem.fix == "did you mean `city`? Fields there: city, zip"


def test_a_field_where_only_columns_can_stand(declared: Declared) -> None:
    found = declared.problems(declared.read.key_by("place.city"), declared.read.select("place.city"))
    assert found[0].what == ".key_by(...) takes `place.city` as the name of a column; it is a field of `place`."
    assert found[0].fix == 'make it a column first: .with_column("city", F.col("place.city")).'
    assert found[1].fix == 'give it a name: .select(city=F.col("place.city")).'


def test_what_only_spark_can_read_is_left_to_spark(declared: Declared) -> None:
    declared.passes(
        declared.read.where("what_ever >"),  # no SQL, which is for Spark to say
        declared.read.where("amount > (SELECT 5)"),
        declared.read.apply(lambda df: df).where(AMUONT),
    )


def test_columns_in_sql_text_are_found_like_those_in_columns(declared: Declared) -> None:
    found = declared.problems(
        declared.read.where("amuont > 5 AND Place.ctiy = 'Oslo'"),
        declared.read.where(SQL),
        declared.keyed.window("w", hr.tumbling("1m"), total="sum(amuont)"),
        declared.read.with_column("x", "transform(map_keys(tags), key -> concat(key, crad_id))"),
    )
    assert [(type(problem), problem.what, problem.location is not None) for problem in found] == [
        (UnknownColumnError, ".where(...) uses column `amuont`, which is not there.", True),
        (UnknownColumnError, ".where(...) uses `Place.ctiy`, but `Place` has no field `ctiy`.", True),
        (UnknownColumnError, ".where(...) uses column `what_ever`, which is not there.", True),
        (UnknownColumnError, "step `w` uses column `amuont`, which is not there.", True),
        (UnknownColumnError, ".with_column(...) uses column `crad_id`, which is not there.", True),
    ]
    assert found[0].fix == f"did you mean `amount`? Columns here: {COLUMNS}"


def test_a_trigger_in_sql_text_sees_what_its_windows_have(declared: Declared) -> None:
    window = hr.when("n > 5 AND window_end < current_timestamp AND amount > 5")
    problem = declared.problem(declared.keyed.window("w", hr.tumbling("1m"), trigger=hr.repeat(window), n="count(*)"))
    assert problem.what == "step `w`: hr.when(...) uses column `amount`, which its windows do not have."


def test_what_spark_takes_for_a_function_is_no_unknown_column(declared: Declared) -> None:
    declared.passes(declared.read.where("occurred_at < current_timestamp AND date(occurred_at) = CURRENT_DATE"))


def test_a_column_object_never_means_a_function(declared: Declared) -> None:
    """To Spark `F.col("user")` is the name of the user who runs the job, if there is no such column."""
    found = declared.problems(
        declared.read.select("card_id", users="1").where(USER),
        declared.keyed.window("w", hr.tumbling("1m"), u=MAX_USER),
        declared.keyed.window("v", hr.tumbling("1m"), trigger=hr.repeat(hr.when(USER)), n="count(*)"),
    )
    assert [(type(problem), problem.what) for problem in found] == [
        (UnknownColumnError, ".where(...) uses column `user`, which is not there."),
        (UnknownColumnError, "step `w` uses column `user`, which is not there."),
        (UnknownColumnError, "step `v`: hr.when(...) uses column `user`, which its windows do not have."),
    ]
    assert found[0].fix == "did you mean `users`? Columns here: card_id, users"


def test_a_select_does_not_see_what_it_makes(declared: Declared) -> None:
    problem = declared.problem(declared.read.select(double="amount * 2", twice="DOUBLE * 2"))
    assert problem.what == ".select(...) uses column `DOUBLE`, which is not there."
    assert problem.why == "A select sees only the columns that come into it, not those that it makes."
    assert problem.fix == 'make it before: .with_column("DOUBLE", ...).'


def test_a_late_stream_has_no_results_of_the_step(declared: Declared) -> None:
    activity = declared.keyed.rolling("r", n=count())
    assert isinstance(declared.problem(activity.late.where(COUNT)), UnknownColumnError)


@pytest.mark.parametrize("name", ["_headrace_route", "__hr_time", "_HEADRACE"])
@pytest.mark.parametrize(
    "use",
    [
        lambda d, name: d.read.with_column(name, "1"),
        lambda d, name: d.read.select("card_id", **{name: "1"}),
        lambda d, name: d.keyed.rolling("r", **{name: hr.last("1m").count()}),
        lambda d, name: d.read.apply(lambda df: df, schema=f"{name} INT"),
        lambda d, name: d.pipeline.read("other", schema=f"a INT, {name} INT"),
    ],
)
def test_reserved_names(declared: Declared, name: str, use: Any) -> None:
    assert declared.problem(use(declared, name)).what == f"column `{name}` has a reserved name."


def test_a_result_that_would_hide_a_column(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.rolling("r", Amount=count()))
    assert problem.what == "step `r` names a result `Amount`, but its input has that column already."


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d.read.select("card_id", "CARD_ID"),
        lambda d: d.read.select("card_id", card_id="upper(card_id)"),
        lambda d: d.keyed.rolling("r", card_ID_n=hr.last("1m").count(), card_id_n=hr.last("2m").count()),
    ],
)
def test_one_name_for_two_columns(declared: Declared, use: Any) -> None:
    assert declared.problem(use(declared)).what.endswith("twice.")


# Types


@pytest.mark.parametrize("function", ["sum", "avg", "stddev"])
@pytest.mark.parametrize(("column", "type"), [("card_id", "string"), ("occurred_at", "timestamp"), ("tags", "map")])
def test_arithmetic_needs_numbers(declared: Declared, function: str, column: str, type: str) -> None:
    problem = declared.problem(declared.keyed.rolling("r", x=getattr(hr.last("1m"), function)(column)))
    assert problem.what.startswith(f"step `r`: `x` takes the {function} of `{column}`, which is {type}")
    assert problem.why == f"{function} takes numbers."


@pytest.mark.parametrize("column", ["amount", "sent", "occurred_at", "card_id"])
def test_least_and_greatest_need_an_order(declared: Declared, column: str) -> None:
    declared.passes(declared.keyed.rolling("r", x=hr.last("1m").min(column), y=hr.last("1m").max(column)))


@pytest.mark.parametrize("function", ["min", "max", "approx_count_distinct"])
def test_maps_have_no_order_and_no_identity(declared: Declared, function: str) -> None:
    problem = declared.problem(declared.keyed.rolling("r", x=getattr(hr.last("1m"), function)("tags")))
    assert "which is map<string,string>" in problem.what


def test_a_map_is_no_key(declared: Declared) -> None:
    found = declared.problems(declared.timed.key_by("tags"), declared.timed.dedupe("tags"))
    assert [each.what for each in found] == [
        ".key_by(...) can't use column `tags`, which is map<string,string>.",
        "step `dedupe-tags` can't use column `tags`, which is map<string,string>.",
    ]


@pytest.mark.parametrize("type", ["TIMESTAMP", "BIGINT"])
def test_event_time_is_a_timestamp_or_epoch_milliseconds(type: str) -> None:
    pipeline = hr.Pipeline("p")
    pipeline.read("t", schema=f"at {type}").event_time("at").write("out")
    pipeline.check()


@pytest.mark.parametrize(
    ("type", "fix"),
    [("STRING", "as TIMESTAMP"), ("TIMESTAMP_NTZ", "as TIMESTAMP"), ("INT", "as BIGINT"), ("DATE", "of one of these")],
)
def test_other_types_are_no_event_time(type: str, fix: str) -> None:
    pipeline = hr.Pipeline("p")
    pipeline.read("t", schema=f"at {type}").event_time("at").write("out")
    with pytest.raises(InvalidPipelineError) as caught:
        pipeline.check()
    (problem,) = caught.value.problems
    assert problem.what == f"event-time column `at` is {type.lower()}."
    assert fix in str(problem.fix)


def test_a_speed_needs_numbers_for_places_and_timestamps_for_times(declared: Declared) -> None:
    activity = declared.keyed.rolling("r", n=count(), here=hr.latest("lat", "lon", "occurred_at", "sent", "card_id"))
    found = declared.problems(activity.where(SPEED), activity.where(SPEED_BY_CITY), activity.where(SPEED_BY_SENT))
    assert [each.what for each in found] == [
        ".where(...) takes `card_id` as an angle (a latitude or longitude), but it is string.",
        ".where(...) takes `here.card_id` as an angle (a latitude or longitude), but it is string.",
        ".where(...) takes `sent` as a time, but it is bigint.",
        ".where(...) takes `here.sent` as a time, but it is bigint.",
    ]


def test_a_speed_needs_the_place_and_time_of_the_earlier_event(declared: Declared) -> None:
    activity = declared.keyed.rolling("r", n=count(), here=hr.latest("lat", "lon"))
    problem = declared.problem(activity.where(SPEED))
    assert problem.what == ".where(...) uses `here.occurred_at`, but `here` has no field `occurred_at`."
