"""Watermark strategies: what is claimed about event time, from what was seen."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.claims import END_OF_TIME_MS, Claims
from headrace.pipeline.nodes import EventTime

MINUTE = 60_000


def claims(partitions: list[int] | None = None, **event_time: Any) -> Claims:
    stream = hr.Pipeline("demo").read("clicks", schema="at TIMESTAMP").event_time("at", **event_time)
    assert isinstance(stream.node, EventTime)
    return Claims(stream.node, [0] if partitions is None else partitions, 0)


def test_the_slowest_live_partition_decides() -> None:
    slow = claims([0, 1, 2], watermark=hr.per_partition(out_of_order="10s", idle="1m"))
    slow.observe({0: 100_000, 1: 400_000}, now_ms=0)
    assert slow.next(now_ms=0) is None, "partition 2 has shown nothing yet"
    assert slow.next(now_ms=MINUTE) == 390_000, "all are idle: the furthest counts"


def test_an_idle_partition_is_left_out_until_it_speaks_again() -> None:
    slow = claims([0, 1], watermark=hr.per_partition(out_of_order="0s", idle="1m"))
    slow.observe({0: 100_000, 1: 50_000}, now_ms=0)
    assert slow.next(now_ms=0) == 50_000
    slow.observe({0: 200_000}, now_ms=30_000)
    assert slow.next(now_ms=30_000) is None
    assert slow.next(now_ms=MINUTE) == 200_000
    slow.observe({0: 300_000, 1: 60_000}, now_ms=MINUTE + 1)
    assert slow.next(now_ms=MINUTE + 1) is None, "it never goes back"
    slow.observe({1: 280_000}, now_ms=MINUTE + 2)
    assert slow.next(now_ms=MINUTE + 2) == 280_000


def test_a_partition_that_has_ended_holds_nothing_back() -> None:
    slow = claims([0, 1], watermark=hr.per_partition(out_of_order="0s", idle="1h"))
    slow.observe({0: 100_000, 1: 500_000}, now_ms=0)
    assert slow.next(now_ms=0, ended={0}) == 500_000


def test_input_that_ends_ends_time() -> None:
    perfect = claims(watermark=hr.perfect())
    perfect.observe({0: 100_000}, now_ms=0)
    assert perfect.next(now_ms=10**9) is None
    assert perfect.next(now_ms=10**9, over=True) == END_OF_TIME_MS


def test_an_adaptive_bound_follows_the_spread_within_its_limits() -> None:
    adaptive = claims(watermark=hr.adaptive(quantile=0.99, floor="1s", ceiling="1m"))
    adaptive.observe({0: 1_000_000}, now_ms=0, spread_ms=5_000)
    assert adaptive.next(now_ms=0) == 995_000
    adaptive.observe({0: 1_100_000}, now_ms=0, spread_ms=500_000)
    assert adaptive.next(now_ms=0) == 1_040_000, "the ceiling"
    quiet = claims(watermark=hr.adaptive(floor="1s", ceiling="1m"))
    quiet.observe({0: 1_000_000}, now_ms=0, spread_ms=0)
    assert quiet.next(now_ms=0) == 999_000, "the floor"


def test_one_large_spread_is_forgotten_after_some_batches() -> None:
    adaptive = claims(watermark=hr.adaptive(floor="1s", ceiling="1h"))
    adaptive.observe({0: 1_000_000}, now_ms=0, spread_ms=600_000)
    for i in range(30):
        adaptive.observe({0: 1_000_000 + i}, now_ms=0, spread_ms=2_000)
    assert adaptive.next(now_ms=0) == 1_000_029 - 2_000


def test_a_silent_source_goes_on_with_the_clock() -> None:
    silent = claims(out_of_order="10s", close_idle="2m")
    silent.observe({0: 1_000_000}, now_ms=0)
    assert silent.next(now_ms=0) == 990_000
    assert silent.next(now_ms=119_999) is None
    assert silent.next(now_ms=120_000) == 1_110_000
    assert silent.next(now_ms=180_000) == 1_170_000


@given(
    batches=st.lists(
        st.tuples(st.dictionaries(st.integers(0, 2), st.integers(0, 10**7)), st.integers(0, 10**5)), max_size=30
    )
)
def test_a_claim_never_goes_back(batches: list[tuple[dict[int, int], int]]) -> None:
    for strategy in (hr.per_partition(idle="5s"), hr.adaptive(), hr.bounded("3s")):
        made = claims([0, 1, 2], watermark=strategy, close_idle="4s")
        now, last = 0, -(10**12)
        for latest, passed in batches:
            now += passed
            made.observe(latest, now_ms=now, spread_ms=passed)
            claim = made.next(now_ms=now)
            if claim is not None:
                assert claim > last
                last = claim
