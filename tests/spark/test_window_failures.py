"""Events and results on which an expression fails: told as dead letters, they change nothing, and nothing stops."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("windowing", [hr.tumbling("1m"), hr.hopping("1m", every="30s"), hr.session("10s")], ids=str)
def test_an_expression_over_aggregates_that_fails_makes_a_dead_letter(
    spark: SparkSession, windowing: hr.Windowing
) -> None:
    pipeline = hr.Pipeline("ratios")
    timed = pipeline.read("sales", schema="shop STRING, gain INT, cost INT, at TIMESTAMP").event_time("at")
    ratio = timed.key_by("shop").window("ratio", windowing, ratio=F.sum("gain") / F.sum("cost"))
    ratio.write("ratios")
    with Driver(pipeline, spark=spark) as driver:
        at = "2024-01-01T10:00:30Z"
        driver.send(
            "sales", {"shop": "a", "gain": 6, "cost": 0, "at": at}, {"shop": "b", "gain": 6, "cost": 3, "at": at}
        )
        driver.advance_watermark("2024-01-01T10:05:00Z")
        results, dead = driver.read("ratios"), driver.records("ratios.dead-letters")
        assert {(row["shop"], row["ratio"]) for row in results} == {("b", 2.0)}
        assert len(dead) == len(results)
        assert "step `ratio` could not compute the result of its window" in dead[0].headers["headrace-reason"]
        assert driver.state_rows == 0


MOST = 2**63 - 1


def pairs(windowing: hr.Windowing, trigger: hr.Trigger | None = None, **aggregates: Any) -> hr.Pipeline:
    pipeline = hr.Pipeline("pairs")
    timed = pipeline.read("pairs", schema="a BIGINT, b BIGINT, at TIMESTAMP").event_time("at")
    counted = timed.window("counted", windowing, trigger=trigger, allowed_lateness="1h", n="count(*)", **aggregates)
    counted.write("out")
    counted.late.write("late")
    return pipeline


def pair(minute: int, a: int, b: int = 1) -> dict[str, Any]:
    return {"a": a, "b": b, "at": at(minute)}


def at(minute: int) -> str:
    return f"2024-01-01T10:{minute:02}:00.000Z"


def bounds(driver: Driver) -> list[tuple[str, str, int]]:
    return sorted((row["window_start"], row["window_end"], row["n"]) for row in driver.read("out"))


@pytest.mark.parametrize("values", ["percentile_approx(a div b, 0.5)", "collect_list(a div b)", "max(a)"])
@pytest.mark.parametrize(
    ("windowing", "trigger"),
    [
        (hr.tumbling("20m"), None),
        (hr.hopping("20m", every="10m"), None),
        (hr.hopping("20m", every="10m"), hr.after_watermark(early=hr.after_count(100))),
        (hr.session("30m"), None),
    ],
    ids=["tumbling", "hopping in slices", "hopping", "session"],
)
def test_an_event_that_fails_in_one_aggregate_counts_in_no_other(
    spark: SparkSession, windowing: hr.Windowing, trigger: hr.Trigger | None, values: str
) -> None:
    """Some functions are updated one by one: by the time that the last of them fails, the others have counted."""
    pipeline = pairs(windowing, trigger, values=values, whole="collect_set(a div b) filter (where a div b > 0)")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("pairs", pair(5, 6, 2), pair(5, 1, 0), pair(15, 1, 0))
        driver.send("pairs", pair(5, 1, 0), pair(5, 8, 2))
        assert len(driver.records("pairs.dead-letters")) == 3
        driver.advance_watermark(at(59))
        results = driver.read("out")
        assert {row["n"] for row in results} == {2}
        assert {tuple(sorted(row["whole"])) for row in results} == {(3, 4)}
        if "list" in values:
            assert {tuple(row["values"]) for row in results} == {(3, 4)}


def test_an_event_that_fails_neither_extends_nor_joins_sessions(spark: SparkSession) -> None:
    pipeline = pairs(hr.session("10m"), total="sum(a div b)")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("pairs", pair(0, 1), pair(8, 1, 0), pair(15, 2))
        driver.send("pairs", pair(8, 1, 0), pair(22, 1, 0))
        driver.send("pairs", pair(30, 3))
        driver.advance_watermark(at(10))
        assert bounds(driver) == [(at(0), at(10), 1)]
        # Of the session that has given its result, too.
        driver.send("pairs", pair(9, 1, 0))
        driver.advance_watermark(at(59))
        assert bounds(driver) == [(at(15), at(25), 1), (at(30), at(40), 1)]
        assert len(driver.records("pairs.dead-letters")) == 4


def test_a_sum_that_does_not_fit_leaves_its_session_as_it_was(spark: SparkSession) -> None:
    """These events are right by themselves: they fail on what the session holds."""
    pipeline = pairs(hr.session("10m"), hr.after_watermark(early=hr.each()), total="sum(a)", values="collect_list(a)")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("pairs", pair(0, MOST))
        driver.send("pairs", pair(8, 1))
        driver.send("pairs", pair(15, 5), pair(20, 6))
        assert bounds(driver) == [(at(0), at(10), 1), (at(15), at(30), 2)]
        # It would join the two, whose sums do not fit together.
        driver.send("pairs", pair(9, -1))
        assert bounds(driver) == []
        driver.send("pairs", pair(16, 1))
        (row,) = driver.read("out")
        assert (row["window_start"], row["window_end"], row["n"]) == (at(15), at(30), 3)
        assert (row["total"], row["values"]) == (12, [5, 6, 1])
        letters = driver.records("pairs.dead-letters")
        assert [letter.row["at"] for letter in letters] == [at(8), at(9)]


def test_a_late_event_that_would_fail_is_late(spark: SparkSession) -> None:
    pipeline = pairs(hr.session("10m"), total="sum(a div b)", values="collect_list(a div b)")
    with Driver(pipeline, spark=spark) as driver:
        driver.advance_watermark("2024-01-01T12:00:00Z")
        driver.send("pairs", pair(0, 1, 0))
        assert [row["a"] for row in driver.read("late")] == [1]
        assert driver.records("pairs.dead-letters") == []


HOPPING = hr.hopping("20m", every="10m")
COMPUTE = "step `counted` could not compute the result of its window 2024-01-01T10:00:00Z to 2024-01-01T10:20:00Z: "


def totals(driver: Driver) -> list[tuple[str, int]]:
    return sorted((row["window_end"], row["total"]) for row in driver.read("out"))


def test_slices_that_do_not_fit_together_make_a_dead_letter_of_their_window(spark: SparkSession) -> None:
    with Driver(pairs(HOPPING, total="sum(a)"), spark=spark) as driver:
        driver.send("pairs", pair(5, MOST), pair(15, 1))
        driver.advance_watermark(at(21))
        (letter,) = driver.records("pairs.dead-letters")
        assert letter.headers["headrace-reason"].startswith(COMPUTE + "SparkArithmeticException: ")
        assert totals(driver) == [(at(10), MOST)]
        # A late event has both windows tell anew: now they fit.
        driver.send("pairs", pair(8, -5))
        assert totals(driver) == [(at(10), MOST - 5), (at(20), MOST - 4)]
        driver.send("pairs", pair(9, 5))
        assert totals(driver) == [(at(10), MOST)]
        driver.advance_watermark(at(59))
        assert totals(driver) == [(at(30), 1)]
        assert len(driver.records("pairs.dead-letters")) == 1


class PromptDriver(Driver):
    """Rows may come at the heels of a watermark, before what it makes due has been attended to."""

    def send_behind(self, watermark: str, topic: str, *rows: dict[str, Any]) -> None:
        (query,) = self._queries
        planned = self._folder / "0" / "offsets"
        before = len(list(planned.iterdir()))
        moment = datetime.fromisoformat(watermark)
        value = str(round(moment.timestamp() * 1000)).encode()
        query.log.add("headrace.control", 0, self._positions.take("headrace.control", 0), self._clock, None, value)
        query.log.flush()
        # Once the batch of the claim is planned, what comes is of the next one, which has the watermark.
        deadline = time.monotonic() + 60
        while len(list(planned.iterdir())) == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        self.send(topic, *rows)


def test_an_event_is_not_to_blame_for_a_window_that_closes_when_it_comes(spark: SparkSession) -> None:
    driver = PromptDriver(pairs(HOPPING, total="sum(a)"), spark=spark)
    with driver:
        driver.send("pairs", pair(5, MOST), pair(15, 1))
        driver.send_behind(at(21), "pairs", pair(25, 7), pair(26, 8))
        (letter,) = driver.records("pairs.dead-letters")
        assert letter.headers["headrace-reason"].startswith(COMPUTE)
        assert totals(driver) == [(at(10), MOST)]
        driver.advance_watermark(at(59))
        assert totals(driver) == [(at(30), 16), (at(40), 15)]


def test_a_condition_that_fails_does_not_hold(spark: SparkSession) -> None:
    """Others beside it may."""
    some, many = hr.when(F.col("errors") / F.col("total") > 0.1), hr.when("n >= 3")
    trigger = hr.after_watermark(early=hr.any_of(some, many))
    pipeline = pairs(hr.tumbling("20m"), trigger, errors="sum(a)", total="sum(b)")
    driver = PromptDriver(pipeline, spark=spark)
    with driver:
        driver.send("pairs", pair(1, 1, 0))
        assert totals(driver) == []
        driver.send("pairs", pair(2, 1, 0), pair(3, 1, 0))
        assert totals(driver) == [(at(20), 0)]
        driver.send("pairs", pair(4, 1, 5))
        assert totals(driver) == [(at(20), 5)]
        driver.send("pairs", pair(25, 1, 0))
        driver.send_behind(at(41), "pairs", pair(45, 1, 0))
        assert totals(driver) == [(at(20), 5), (at(40), 0)]
        assert driver.records("pairs.dead-letters") == []


@pytest.mark.parametrize("size", [1, 10])
def test_an_event_that_does_not_fit_one_of_its_windows_is_in_none(spark: SparkSession, size: int) -> None:
    trigger = hr.after_watermark(early=hr.after_count(100))
    with Driver(pairs(HOPPING, trigger, total="sum(a)", most="max(a)"), spark=spark) as driver:
        # Of the windows of the third, one has room for it and the other has not.
        sent = [pair(5, MOST), pair(25, 1), pair(15, 7), pair(15, -3), pair(26, -1)]
        for start in range(0, len(sent), size):
            driver.send("pairs", *sent[start : start + size])
        (letter,) = driver.records("pairs.dead-letters")
        assert letter.row["a"] == 7
        driver.advance_watermark(at(59))
        results = {row["window_end"]: (row["n"], row["total"], row["most"]) for row in driver.read("out")}
        assert results == {
            at(10): (1, MOST, MOST),
            at(20): (2, MOST - 3, MOST),
            at(30): (3, -3, 1),
            at(40): (2, 0, 1),
        }
