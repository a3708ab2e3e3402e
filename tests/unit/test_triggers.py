"""Triggers as declared: the tree that the kernel gets, and what can be told of it before it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import InvalidDurationError, PipelineError
from headrace.pipeline.trigger_nodes import AfterCount, AfterProcessingTime, AfterWatermark, Repeat
from headrace.pipeline.triggers import Trigger, default_trigger
from tests.unit.declared import Declared, here

# The same examples every time, and no verdict on how fast a busy machine is.
unhurried = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

LARGE = F.col("total") > 100

COUNT_3 = {"kind": "count", "n": 3}
EACH = {"kind": "repeat", "of": {"kind": "count", "n": 1}}
EVERY_5S = {"kind": "repeat", "of": {"kind": "processing_time", "delayMs": 5000}}
WATERMARK = {"kind": "watermark", "early": None, "late": None}


@pytest.mark.parametrize(
    ("trigger", "spec"),
    [
        (hr.after_watermark(), WATERMARK),
        (hr.after_count(3), COUNT_3),
        (hr.each(), EACH),
        (hr.every("5s"), EVERY_5S),
        (hr.after_processing_time("5s"), {"kind": "processing_time", "delayMs": 5000}),
        (hr.repeat(hr.after_count(3)), {"kind": "repeat", "of": COUNT_3}),
        (hr.any_of(hr.after_count(3), hr.after_watermark()), {"kind": "any", "of": [COUNT_3, WATERMARK]}),
        (hr.all_of(hr.after_count(3), hr.after_watermark()), {"kind": "all", "of": [COUNT_3, WATERMARK]}),
        (hr.after_each(hr.after_count(3), hr.each()), {"kind": "sequence", "of": [COUNT_3, EACH]}),
        (hr.when("n > 5"), {"kind": "when", "condition": 0}),
        (default_trigger(), {"kind": "repeat", "of": {"kind": "watermark", "early": None, "late": EACH}}),
    ],
    ids=str,
)
def test_the_tree_that_the_kernel_gets(trigger: Trigger, spec: dict[str, Any]) -> None:
    assert trigger.spec() == spec
    assert json.loads(json.dumps(trigger.spec())) == spec
    assert trigger.problems == ()


def test_early_and_late_are_repeated_and_only_once() -> None:
    trigger = hr.after_watermark(early=hr.after_count(3), late=hr.each())
    assert trigger == AfterWatermark(Repeat(AfterCount(3)), Repeat(AfterCount(1)))
    assert trigger.spec() == {"kind": "watermark", "early": {"kind": "repeat", "of": COUNT_3}, "late": EACH}
    assert hr.after_watermark(early=hr.every("5s")).spec()["early"] == EVERY_5S


def test_triggers_are_values() -> None:
    assert hr.each() == hr.repeat(hr.after_count(1))
    assert hr.every("5s") == hr.repeat(AfterProcessingTime(5000))
    assert len({hr.after_count(3), hr.after_count(3), hr.after_count(4)}) == 2


def test_a_condition_equals_only_itself_as_columns_can_not_be_compared() -> None:
    trigger = hr.when(LARGE)
    assert hr.repeat(trigger) == hr.repeat(trigger)
    assert len({trigger, hr.when(LARGE), hr.when("n > 5"), hr.when("n > 6")}) == 4
    assert trigger != hr.when(LARGE)
    assert hr.repeat(trigger) != hr.each()


# Conditions


def test_conditions_are_numbered_as_they_are_listed() -> None:
    trigger = hr.after_each(
        hr.when("a"),
        hr.after_watermark(early=hr.any_of(hr.when(LARGE), hr.after_count(3)), late=hr.when("c")),
        hr.repeat(hr.all_of(hr.when("a"), hr.when("d"))),
    )
    first, second, *others = trigger.conditions()
    assert (first, others) == ("a", ["c", "a", "d"])
    assert second is LARGE
    spec = trigger.spec()["of"]
    assert spec[0] == {"kind": "when", "condition": 0}
    assert spec[1]["early"]["of"]["of"][0] == {"kind": "when", "condition": 1}
    assert spec[1]["late"]["of"] == {"kind": "when", "condition": 2}
    assert [part["condition"] for part in spec[2]["of"]["of"]] == [3, 4]


def triggers() -> st.SearchStrategy[Trigger]:
    leaves: st.SearchStrategy[Trigger] = st.one_of(
        st.integers(1, 9).map(hr.after_count),
        st.integers(1, 9).map(lambda s: hr.every(f"{s}s")),
        st.integers(0, 99).map(lambda n: hr.when(f"n > {n}")),
        st.just(hr.after_watermark()),
    )

    def made_of(inner: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
        several = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            inner.map(hr.repeat),
            several.map(lambda parts: hr.any_of(*parts)),
            several.map(lambda parts: hr.all_of(*parts)),
            several.map(lambda parts: hr.after_each(*parts)),
            st.tuples(inner, inner).map(lambda pair: hr.after_watermark(early=pair[0], late=pair[1])),
        )

    return st.recursive(leaves, made_of, max_leaves=12)


def numbers(spec: Any) -> list[int]:
    """Of the conditions in a tree, as they come."""
    if isinstance(spec, list):
        return [number for part in spec for number in numbers(part)]
    if not isinstance(spec, dict):
        return []
    if spec["kind"] == "when":
        return [spec["condition"]]
    return [number for key in ("early", "late", "of") for number in numbers(spec.get(key))]


@unhurried
@given(triggers())
def test_every_condition_has_one_number_in_any_tree(trigger: Trigger) -> None:
    assert numbers(trigger.spec()) == list(range(len(trigger.conditions())))
    assert trigger.spec() == trigger.spec()


@unhurried
@given(triggers())
def test_what_is_repeated_never_finishes(trigger: Trigger) -> None:
    assert not hr.repeat(trigger).may_finish()
    assert hr.repeat(trigger).fires_before_end() == trigger.fires_before_end()


# Finishing


@pytest.mark.parametrize(
    ("trigger", "finishes"),
    [
        (hr.after_watermark(), True),
        (hr.after_watermark(early=hr.each()), True),
        (hr.after_watermark(late=hr.after_count(3)), False),
        (hr.after_count(3), True),
        (hr.after_processing_time("5s"), True),
        (hr.when("n > 5"), True),
        (hr.each(), False),
        (hr.every("5s"), False),
        (hr.any_of(hr.each(), hr.after_count(3)), True),
        (hr.any_of(hr.each(), hr.every("5s")), False),
        (hr.all_of(hr.each(), hr.after_count(3)), False),
        (hr.all_of(hr.after_watermark(), hr.after_count(3)), True),
        (hr.after_each(hr.after_count(3), hr.each()), False),
        (hr.after_each(hr.after_count(3), hr.after_watermark()), True),
        (default_trigger(), False),
    ],
    ids=str,
)
def test_whether_a_trigger_may_finish(trigger: Trigger, finishes: bool) -> None:
    assert trigger.may_finish() is finishes


@pytest.mark.parametrize(
    ("trigger", "before"),
    [
        (hr.after_watermark(), False),
        (hr.after_watermark(late=hr.each()), False),
        (hr.after_watermark(early=hr.every("5s")), True),
        (hr.after_watermark(early=hr.after_watermark()), False),
        (hr.after_count(3), True),
        (hr.when("n > 5"), True),
        (hr.repeat(hr.after_watermark()), False),
        (hr.any_of(hr.after_watermark(), hr.each()), True),
        (hr.all_of(hr.after_watermark(), hr.each()), False),
        (hr.after_each(hr.after_watermark(), hr.each()), False),
        (hr.after_each(hr.after_count(3), hr.after_watermark()), True),
        (default_trigger(), False),
    ],
    ids=str,
)
def test_whether_a_trigger_can_fire_before_the_end_of_its_window(trigger: Trigger, before: bool) -> None:
    assert trigger.fires_before_end() is before


@pytest.mark.parametrize(
    "text",
    [
        "after_watermark(early=every(5s), late=each())",
        "repeat(any_of(after_count(100), after_processing_time(5s)))",
        "after_each(after_count(1), all_of(every(1m), after_watermark()))",
    ],
)
def test_a_trigger_reads_as_it_is_written(text: str) -> None:
    names = {name: getattr(hr, name) for name in hr.__all__}
    code = text.replace("(5s)", "('5s')").replace("(1m)", "('1m')")
    assert str(eval(code, names)) == text  # our own text


def test_a_condition_reads_as_spark_shows_it() -> None:
    assert str(hr.repeat(hr.when(LARGE))) == "repeat(when(>(total, 100)))"


# What can't be read


@pytest.fixture
def declared() -> Declared:
    return Declared()


def problem_of(declared: Declared, trigger: Any) -> PipelineError:
    return declared.problem(declared.keyed.window("w", hr.tumbling("1m"), n="count(*)", trigger=trigger))


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "3", None])
def test_a_count_is_a_whole_number(declared: Declared, n: Any) -> None:
    problem = problem_of(declared, hr.repeat(hr.after_count(n)))
    assert problem.what == f"after_count({n!r}) is not possible."
    assert problem.fix == "pass a whole number from 1 upwards."


@pytest.mark.parametrize("duration", ["0s", "-5s", "soon", 5])
@pytest.mark.parametrize("make", [hr.every, hr.after_processing_time])
def test_a_delay_is_a_duration(declared: Declared, make: Any, duration: Any) -> None:
    problem = problem_of(declared, hr.after_watermark(early=make(duration)))
    assert isinstance(problem, InvalidDurationError)
    assert problem.what.startswith(f"{make.__name__}(...): ")


@pytest.mark.parametrize("make", [hr.any_of, hr.all_of, hr.after_each])
def test_no_triggers_at_all(declared: Declared, make: Any) -> None:
    assert problem_of(declared, make()).what == f"{make.__name__}() has no triggers."


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda value: hr.repeat(value), "repeat(...)"),
        (lambda value: hr.any_of(hr.each(), value), "any_of(...)"),
        (lambda value: hr.after_watermark(early=value), "after_watermark(..., early=...)"),
        (lambda value: hr.after_watermark(late=value), "after_watermark(..., late=...)"),
        (lambda value: value, ".window(..., trigger=...)"),
    ],
)
def test_values_of_another_kind_are_no_triggers(declared: Declared, make: Any, what: str) -> None:
    assert problem_of(declared, make("5s")).what == f"{what} takes a trigger, not '5s'."


def test_a_trigger_that_was_not_called(declared: Declared) -> None:
    forgotten: Any = hr.each
    problem = problem_of(declared, hr.after_watermark(late=forgotten))
    assert problem.what == "after_watermark(..., late=...) takes a trigger, not the function `each`."
    assert problem.fix == "call it: hr.each(...)."


@pytest.mark.parametrize("condition", [True, None, 5, "", "  ", ["n > 5"]])
def test_a_condition_is_a_column_or_sql_text(declared: Declared, condition: Any) -> None:
    problem = problem_of(declared, hr.when(condition))
    assert problem.what == f"when(...) takes a Spark Column or SQL text, not {condition!r}."


def test_all_problems_of_a_tree_are_reported_at_the_lines_of_its_parts(declared: Declared) -> None:
    start = here()
    count = hr.after_count(0)
    delay = hr.every("soon")
    trigger = hr.any_of(count, hr.after_watermark(early=delay))
    found = declared.problems(declared.keyed.window("w", hr.tumbling("1m"), n="count(*)", trigger=trigger))
    assert [each.location.line - start for each in found if each.location] == [1, 2]
