"""Watermark strategies as declared, and the event time that has one."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidDurationError, PipelineError
from headrace.pipeline.durations import LONGEST_MS
from headrace.pipeline.nodes import EventTime
from headrace.pipeline.watermarks import Adaptive, Bounded, Perfect, PerPartition
from tests.unit.declared import Declared


@pytest.fixture
def declared() -> Declared:
    return Declared()


def timed(declared: Declared, **options: Any) -> EventTime:
    node = declared.read.event_time("occurred_at", **options).node
    assert isinstance(node, EventTime)
    return node


@pytest.mark.parametrize(
    ("made", "same", "tolerance_ms", "text"),
    [
        (hr.bounded("1m"), Bounded(60_000), 60_000, "bounded(1m)"),
        (hr.bounded("0s"), Bounded(0), 0, "bounded(0s)"),
        (hr.adaptive(), Adaptive(0.99, 1000, 600_000), 600_000, "adaptive(quantile=0.99, floor=1s, ceiling=10m)"),
        (hr.adaptive(1, "0s", "0s"), Adaptive(1.0, 0, 0), 0, "adaptive(quantile=1, floor=0s, ceiling=0s)"),
        (hr.per_partition(), PerPartition(30_000, 60_000), 30_000, "per_partition(out_of_order=30s, idle=1m)"),
        (hr.perfect(), Perfect(), LONGEST_MS, "perfect()"),
    ],
    ids=str,
)
def test_strategies_are_plain_data(made: hr.Watermark, same: hr.Watermark, tolerance_ms: int, text: str) -> None:
    assert made == same
    assert (made.tolerance_ms, str(made), made.problems) == (tolerance_ms, text, ())


def test_event_time_is_bounded_unless_told(declared: Declared) -> None:
    assert timed(declared).watermark == hr.bounded("30s")
    node = timed(declared, out_of_order="5s", max_skew="1m")
    assert (node.watermark, node.out_of_order_ms, node.max_skew_ms, node.close_idle_ms) == (
        Bounded(5000),
        5000,
        60_000,
        None,
    )


def test_event_time_takes_a_strategy_and_closes_idle_windows(declared: Declared) -> None:
    node = timed(declared, watermark=hr.adaptive(ceiling="1m"), close_idle="2m")
    assert (node.watermark, node.out_of_order_ms, node.close_idle_ms) == (hr.adaptive(ceiling="1m"), 60_000, 120_000)


@pytest.mark.parametrize("given", ["5s", "30s", "0s"])
def test_a_strategy_excludes_out_of_order(declared: Declared, given: str) -> None:
    problem = declared.problem(declared.read.event_time("occurred_at", out_of_order=given, watermark=hr.adaptive()))
    assert problem.what == ".event_time(...) has both out_of_order and watermark."


@pytest.mark.parametrize("value", ["30s", 30, hr.each(), hr.adaptive])
def test_values_of_another_kind_are_no_strategy(declared: Declared, value: Any) -> None:
    problem = declared.problem(declared.read.event_time("occurred_at", watermark=value))
    assert problem.what.startswith(".event_time(..., watermark=...) takes a watermark strategy, not ")


@pytest.mark.parametrize("quantile", [0, -0.5, 1.01, 99, True, "0.99", None])
def test_a_quantile_is_a_share(declared: Declared, quantile: Any) -> None:
    problem = declared.problem(declared.read.event_time("occurred_at", watermark=hr.adaptive(quantile=quantile)))
    assert problem.what == f"adaptive(quantile={quantile!r}) is not possible."


def test_a_floor_is_below_its_ceiling(declared: Declared) -> None:
    strategy = hr.adaptive(floor="2m", ceiling="1m")
    problem = declared.problem(declared.read.event_time("occurred_at", watermark=strategy))
    assert problem.what == "adaptive(floor=2m, ceiling=1m): the floor is above the ceiling."


@pytest.mark.parametrize(
    "use",
    [
        lambda: {"watermark": hr.bounded("-1s")},
        lambda: {"watermark": hr.adaptive(floor="x")},
        lambda: {"watermark": hr.adaptive(ceiling="x")},
        lambda: {"watermark": hr.per_partition(out_of_order="x")},
        lambda: {"watermark": hr.per_partition(idle="0s")},
        lambda: {"close_idle": "0s"},
        lambda: {"close_idle": 5},
    ],
)
def test_durations_of_strategies_are_checked_with_the_pipeline(declared: Declared, use: Any) -> None:
    problem = declared.problem(declared.read.event_time("occurred_at", **use()))
    assert isinstance(problem, InvalidDurationError)
    assert isinstance(problem, PipelineError)
