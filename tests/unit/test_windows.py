"""Windows as declared: what they are, what a step made of them gives, and what can't be read."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import InvalidDurationError, PipelineError
from headrace.pipeline.nodes import LateRows, Panes, Side, Window
from headrace.pipeline.triggers import default_trigger
from headrace.pipeline.windows import Moment, Windowing, WindowKind
from tests.unit.declared import SCHEMA, Declared, here

# Made while no SparkContext exists, whatever other tests start later.
COUNT, TOTAL, CARDS = F.count("*"), F.sum("amount"), F.approx_count_distinct("card_id")
DISTINCT, EXPRESSION, HALF = F.count_distinct("card_id"), F.expr("count(*)"), F.count("*") / 2

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.fixture
def declared() -> Declared:
    return Declared()


def windowed(stream: hr.Stream, *arguments: Any, **options: Any) -> Window:
    node = stream.window("w", *arguments, **options).node
    assert isinstance(node, Window)
    return node


# Windows


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (hr.tumbling("1m"), (WindowKind.TUMBLING, MINUTE, None, None, 0, None)),
        (hr.tumbling(timedelta(hours=1), offset="15m"), (WindowKind.TUMBLING, HOUR, None, None, 15 * MINUTE, None)),
        (hr.tumbling("1d", offset="-1h"), (WindowKind.TUMBLING, DAY, None, None, -HOUR, None)),
        (hr.tumbling("1d", offset=timedelta(hours=-1)), (WindowKind.TUMBLING, DAY, None, None, -HOUR, None)),
        (
            hr.tumbling("7d", "4d", "Europe/Berlin"),
            (WindowKind.TUMBLING, 7 * DAY, None, None, 4 * DAY, "Europe/Berlin"),
        ),
        (hr.hopping("1h", every="40m"), (WindowKind.HOPPING, HOUR, 40 * MINUTE, None, 0, None)),
        (hr.hopping("1h", every="1h", offset="-5m"), (WindowKind.HOPPING, HOUR, HOUR, None, -5 * MINUTE, None)),
        (hr.hopping("7d", every="1d", time_zone="UTC"), (WindowKind.HOPPING, 7 * DAY, DAY, None, 0, "UTC")),
        (hr.sliding("10m"), (WindowKind.SLIDING, 10 * MINUTE, None, None, 0, None)),
        (hr.session("30m"), (WindowKind.SESSION, None, None, 30 * MINUTE, 0, None)),
        (hr.global_window(), (WindowKind.GLOBAL, None, None, None, 0, None)),
    ],
    ids=str,
)
def test_windows_are_plain_data(made: Windowing, fields: tuple[Any, ...]) -> None:
    assert made == Windowing(*fields)
    assert made.problems == ()


def test_the_kinds_of_windows_are_words() -> None:
    assert [str(kind) for kind in WindowKind] == ["tumbling", "hopping", "sliding", "session", "global"]
    assert json.loads(json.dumps(asdict(hr.session("5s"))))["kind"] == "session"


def test_windows_never_change() -> None:
    windows = hr.tumbling("1m")
    with pytest.raises(FrozenInstanceError):
        windows.size_ms = 5  # type: ignore[misc]
    assert hash(windows) == hash(hr.tumbling("60s"))


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (hr.tumbling("1h", offset="-15m"), "tumbling(1h, offset=-15m)"),
        (hr.hopping("7d", every="1d", time_zone="Asia/Tokyo"), "hopping(7d, every=1d, time_zone=Asia/Tokyo)"),
        (hr.sliding("90s"), "sliding(1m30s)"),
        (hr.session("30m"), "session(30m)"),
        (hr.global_window(), "global_window()"),
    ],
    ids=str,
)
def test_windows_read_as_they_are_written(made: Windowing, text: str) -> None:
    assert str(made) == text


@pytest.mark.parametrize(
    ("made", "kind", "plus_ms", "text"),
    [
        (hr.at_end(), Moment.END, 0, "at_end()"),
        (hr.at_earliest(), Moment.EARLIEST, 0, "at_earliest()"),
        (hr.at_latest("2s"), Moment.LATEST, 2000, "at_latest(plus=2s)"),
    ],
    ids=["end", "earliest", "latest"],
)
def test_the_time_of_a_result(made: hr.ResultTime, kind: Moment, plus_ms: int, text: str) -> None:
    assert made == hr.ResultTime(kind, plus_ms)
    assert str(made) == text


# What can't be read


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: hr.tumbling("30 parsecs"), "tumbling(...): '30 parsecs' is not a duration."),
        (lambda: hr.tumbling("-1m"), "tumbling(...): '-1m' is negative."),
        (lambda: hr.tumbling("1m", offset="soon"), "tumbling(..., offset=...): 'soon' is not a duration."),
        (lambda: hr.tumbling("1m", offset="-40000d"), "tumbling(..., offset=...): '-40000d' is longer than a hundred"),
        (lambda: hr.hopping("1h", every="0s"), "hopping(..., every=...): '0s' is zero."),
        (lambda: hr.sliding(10), "sliding(...): 10 is a bare number."),  # type: ignore[arg-type]
        (lambda: hr.session("x"), "session(...): 'x' is not a duration."),
    ],
)
def test_durations_of_windows_are_checked_with_the_pipeline(declared: Declared, make: Any, what: str) -> None:
    line = here() + 1
    windows = make()
    problem = declared.problem(declared.keyed.window("w", windows, n="count(*)"))
    assert isinstance(problem, InvalidDurationError)
    assert problem.what.startswith(what)
    assert problem.location is not None
    assert problem.location.line < line, "where the windows are made, not where they are used"


@pytest.mark.parametrize("plus", ["-1s", "x", None])
def test_the_time_added_to_a_result_is_checked(declared: Declared, plus: Any) -> None:
    stream = declared.keyed.window("w", hr.tumbling("1m"), n="count(*)", result_time=hr.at_earliest(plus=plus))
    assert isinstance(declared.problem(stream), InvalidDurationError)


def test_windows_with_gaps_between_them_would_lose_events(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.window("w", hr.hopping("1m", every="5m"), n="count(*)"))
    assert problem.what == "windows of 1m every 5m leave gaps."
    assert problem.fix == 'start them at least every 1m: hopping("1m", every="1m"), or make them longer.'


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Belrin", "did you mean 'Europe/Berlin'?"),
        ("Nowhere", "Pass an IANA name"),
        ("Europe", "Pass an IANA name"),
        ("../etc/passwd", "Pass an IANA name"),
        ("", "Pass an IANA name"),
        (2, "Pass an IANA name"),
        ([], "Pass an IANA name"),
    ],
)
def test_a_time_zone_has_an_iana_name(declared: Declared, zone: Any, hint: str) -> None:
    problem = declared.problem(declared.keyed.window("w", hr.tumbling("1d", time_zone=zone), n="count(*)"))
    assert problem.what == f"{zone!r} is not a time zone."
    assert hint in str(problem.fix)


@pytest.mark.parametrize(
    ("make", "span"),
    [
        (lambda: hr.tumbling("1h", time_zone="Europe/Berlin"), "1h"),
        (lambda: hr.tumbling("36h", time_zone="Europe/Berlin"), "1d12h"),
        (lambda: hr.hopping("1d", every="1h", time_zone="Europe/Berlin"), "1h"),
    ],
)
def test_windows_of_a_time_zone_are_whole_days(declared: Declared, make: Any, span: str) -> None:
    problem = declared.problem(declared.keyed.window("w", make(), n="count(*)"))
    assert problem.what == f"windows by the calendar of Europe/Berlin are in whole days, not {span}."


def test_sessions_have_no_time_zone(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.window("w", hr.session("5m", time_zone="UTC"), n="count(*)"))
    assert problem.what == "session(..., time_zone='UTC'): sessions have no time zone."


def test_windows_that_several_steps_share_are_reported_once(declared: Declared) -> None:
    wrong = hr.tumbling("30 parsecs")
    first = declared.keyed.window("a", wrong, n="count(*)")
    declared.problem(first, declared.keyed.window("b", wrong, n="count(*)"))


# A step


def test_a_window_step_becomes_a_node(declared: Declared) -> None:
    trigger = hr.after_watermark(early=hr.every("5s"), late=hr.each())
    node = windowed(
        declared.keyed,
        hr.tumbling("1m"),
        trigger=trigger,
        allowed_lateness="10m",
        panes="retracting",
        late="drop",
        result_time=hr.at_latest(),
        views=COUNT,
        total="sum(amount)",
    )
    assert (node.name, node.windowing, node.trigger) == ("w", hr.tumbling("1m"), trigger)
    assert [name for name, _ in node.aggregates] == ["views", "total"]
    assert node.aggregates[0][1] is COUNT
    assert (node.allowed_lateness_ms, node.panes, node.late) == (600_000, Panes.RETRACTING, LateRows.DROP)
    assert node.result_time == hr.at_latest()
    assert node.input is declared.keyed.node


def test_a_window_step_with_nothing_said(declared: Declared) -> None:
    node = windowed(declared.keyed, hr.tumbling("1m"), n=COUNT)
    assert node.trigger == default_trigger()
    assert (node.allowed_lateness_ms, node.panes, node.late) == (0, Panes.ACCUMULATING, LateRows.SIDE)
    assert node.result_time == hr.at_end()


def test_sliding_windows_fire_with_each_event(declared: Declared) -> None:
    assert windowed(declared.keyed, hr.sliding("10m"), n=COUNT).trigger == hr.each()


def test_a_window_step_keeps_state_and_so_it_is_a_step_of_the_pipeline(declared: Declared) -> None:
    stream = declared.keyed.window("w", hr.tumbling("1m"), n=COUNT)
    assert declared.pipeline.steps == (stream.node,)


def test_an_aggregate_may_be_called_name(declared: Declared) -> None:
    node = windowed(declared.keyed, hr.tumbling("1m"), name=COUNT, windowing=TOTAL)
    assert [name for name, _ in node.aggregates] == ["name", "windowing"]


# What is visible

AFTER = {
    "window_time": "timestamp",
    "pane_index": "bigint",
    "pane_timing": "string",
    "is_last": "boolean",
    "row_kind": "string",
}


def test_the_rows_of_a_window_have_its_key_bounds_aggregates_and_pane(declared: Declared) -> None:
    stream = declared.timed.key_by("CARD_ID", "sent").window(
        "w", hr.tumbling("1m"), n=COUNT, total=TOTAL, cards=CARDS, distinct=DISTINCT, half=HALF, sql=EXPRESSION
    )
    assert stream.schema is not None
    assert list(stream.schema.items()) == [
        ("card_id", "string"),
        ("sent", "bigint"),
        ("window_start", "timestamp"),
        ("window_end", "timestamp"),
        ("n", "bigint"),
        ("total", None),
        ("cards", "bigint"),
        ("distinct", "bigint"),
        ("half", None),
        ("sql", None),
        *AFTER.items(),
    ]


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("count(*)", "bigint"),
        (" COUNT ( DISTINCT card_id ) ", "bigint"),
        ("count_if(amount > 5)", "bigint"),
        ("count(*) / count(amount)", None),
        ("count(if(amount > 5, 1, null))", None),
        ("sum(amount)", None),
    ],
)
def test_a_plain_count_in_sql_is_known_to_be_a_number(declared: Declared, text: str, type: str | None) -> None:
    schema = declared.keyed.window("w", hr.tumbling("1m"), n=text).schema
    assert schema is not None
    assert schema["n"] == type


def test_without_a_key_the_windows_are_those_of_the_whole_stream(declared: Declared) -> None:
    schema = declared.timed.window("w", hr.tumbling("1m"), n=COUNT).schema
    assert schema is not None
    assert schema.names == ("window_start", "window_end", "n", *AFTER)


def test_after_an_apply_the_columns_of_a_window_are_known_again(declared: Declared) -> None:
    applied = declared.keyed.apply(lambda df: df)
    schema = applied.window("w", hr.tumbling("1m"), n=COUNT).schema
    assert schema is not None
    assert next(iter(schema.items())) == ("card_id", None)
    assert schema.names[1:] == ("window_start", "window_end", "n", *AFTER)


def test_late_rows_leave_a_window_as_they_came_into_it(declared: Declared) -> None:
    late = declared.keyed.with_column("day", "date(occurred_at)").window("w", hr.tumbling("1m"), n=COUNT).late
    assert late.schema is not None
    assert late.schema.names == (*declared.read.schema.names, "day")  # type: ignore[union-attr]
    assert late.node.side is Side.LATE  # type: ignore[attr-defined]


def test_results_can_be_shaped_and_written(declared: Declared) -> None:
    per_minute = declared.keyed.window("w", hr.tumbling("1m"), n=COUNT)
    declared.passes(
        per_minute.where("is_last").select("card_id", "n", minute="window_start"),
        per_minute.late.select("txn_id"),
    )


def test_a_misspelt_key_is_reported_once() -> None:
    declared = Declared()
    stream = declared.timed.key_by("card").window("w", hr.tumbling("1m"), n=COUNT).select("card_id", "n")
    assert declared.problem(stream).what == ".key_by(...) uses column `card`, which is not there."
    assert "card_id" in SCHEMA


def test_values_of_another_kind_are_no_windows(declared: Declared) -> None:
    texts: list[Any] = ["1m", None, hr.last("1m"), hr.each()]
    found = declared.problems(*(declared.keyed.window(f"w{i}", text, n=COUNT) for i, text in enumerate(texts)))
    assert [type(each) for each in found] == [PipelineError] * 4
    assert found[0].what == ".window(...) takes windows, not '1m'."
    assert 'hr.tumbling("1m")' in str(found[0].fix)


def test_a_function_that_was_not_called(declared: Declared) -> None:
    forgotten: Any = hr.global_window
    problem = declared.problem(declared.keyed.window("w", forgotten, n=COUNT))
    assert problem.what == ".window(...) takes windows, not the function `global_window`."
    assert problem.fix == "call it: hr.global_window(...)."
