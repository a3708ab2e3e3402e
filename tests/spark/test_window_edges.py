"""Where windows are easily wrong: sessions that merge after they had results, repeated hours, events that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.claims import END_OF_TIME_MS
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH = hr.after_watermark(early=hr.each(), late=hr.each())


def sessions(panes: str, trigger: hr.Trigger = EACH) -> hr.Pipeline:
    pipeline = hr.Pipeline("visits")
    visits = (
        pipeline.read("clicks", schema="user STRING, at TIMESTAMP")
        .event_time("at")
        .key_by("user")
        .window("visits", hr.session("10m"), trigger=trigger, panes=panes, allowed_lateness="1h", n="count(*)")
    )
    visits.write("visits")
    visits.late.write("late")
    return pipeline


def click(minute: int) -> dict[str, str]:
    return {"user": "ann", "at": at(minute)}


def at(minute: int) -> str:
    return f"2024-01-01T{10 + minute // 60}:{minute % 60:02}:00.000Z"


def changes(driver: Driver) -> list[tuple[str, str, str, int]]:
    return [(r["row_kind"], r["window_start"], r["window_end"], r["n"]) for r in driver.read("visits")]


@pytest.mark.parametrize("panes", ["accumulating", "retracting"])
def test_results_of_sessions_that_an_event_bridges_stand_no_more(panes: str, spark: SparkSession) -> None:
    with Driver(sessions(panes), spark=spark) as driver:
        driver.send("clicks", click(0), click(15))
        assert changes(driver) == [("+I", at(0), at(10), 1), ("+I", at(15), at(25), 1)]
        driver.send("clicks", click(8))
        merged = changes(driver)
        assert sorted(merged[:2]) == [("-D", at(0), at(10), 1), ("-D", at(15), at(25), 1)]
        assert merged[2:] == [("+I", at(0), at(25), 3)]


@pytest.mark.parametrize("panes", ["accumulating", "retracting"])
def test_results_on_time_of_sessions_that_a_late_event_bridges_stand_no_more(panes: str, spark: SparkSession) -> None:
    with Driver(sessions(panes, hr.after_watermark(late=hr.each())), spark=spark) as driver:
        driver.send("clicks", click(0), click(15), click(30))
        driver.advance_watermark(at(40))
        assert [change[0] for change in changes(driver)] == ["+I", "+I", "+I"]
        driver.send("clicks", click(8))
        driver.send("clicks", click(22))
        merged = changes(driver)
        assert sorted(merged[:2]) == [("-D", at(0), at(10), 1), ("-D", at(15), at(25), 1)]
        assert merged[2] == ("+I", at(0), at(25), 3)
        assert sorted(merged[3:5]) == [("-D", at(0), at(25), 3), ("-D", at(30), at(40), 1)]
        assert merged[5:] == [("+I", at(0), at(40), 5)]
        driver.advance_watermark(at(200))
        assert changes(driver) == []
        assert driver.read("late") == []


def test_discarded_panes_of_merged_sessions_count_each_event_once(spark: SparkSession) -> None:
    with Driver(sessions("discarding"), spark=spark) as driver:
        driver.send("clicks", click(0), click(15))
        driver.send("clicks", click(8))
        driver.send("clicks", click(9), click(30))
        assert changes(driver) == [
            ("+I", at(0), at(10), 1),
            ("+I", at(15), at(25), 1),
            ("+I", at(0), at(25), 1),
            ("+I", at(0), at(25), 1),
            ("+I", at(30), at(40), 1),
        ]


def test_results_withdrawn_by_a_merge_are_those_of_all_sessions_that_were_merged(spark: SparkSession) -> None:
    # Neither merge gives a result, so what the three sessions had said stands until there is one.
    trigger = hr.after_watermark(early=hr.after_each(hr.after_count(1), hr.after_count(6)), late=hr.each())
    with Driver(sessions("accumulating", trigger), spark=spark) as driver:
        driver.send("clicks", click(0), click(15), click(30))
        assert [change[0] for change in changes(driver)] == ["+I", "+I", "+I"]
        driver.send("clicks", click(8))
        driver.send("clicks", click(22))
        assert changes(driver) == []
        driver.advance_watermark(at(41))
        merged = changes(driver)
        assert sorted(merged[:3]) == [
            ("-D", at(0), at(10), 1),
            ("-D", at(15), at(25), 1),
            ("-D", at(30), at(40), 1),
        ]
        assert merged[3:] == [("+I", at(0), at(40), 5)]


@pytest.mark.parametrize(
    ("zone", "times", "start", "end"),
    [
        # 02:10 for the second time: the day began when the clock first showed 02:30.
        ("Europe/Berlin", ["2024-10-27T01:10:00Z"], "2024-10-27T00:30:00.000Z", "2024-10-28T01:30:00.000Z"),
        # 02:30 was skipped: the day begins at 03:30, and 03:10 is of the day before.
        ("Europe/Berlin", ["2024-03-31T01:10:00Z"], "2024-03-30T01:30:00.000Z", "2024-03-31T01:30:00.000Z"),
    ],
)
def test_days_that_begin_in_an_hour_that_is_skipped_or_repeated(
    zone: str, times: list[str], start: str, end: str, spark: SparkSession
) -> None:
    pipeline = hr.Pipeline("days")
    days = (
        pipeline.read("events", schema="at TIMESTAMP")
        .event_time("at")
        .window("days", hr.tumbling("1d", offset="2h30m", time_zone=zone), trigger=hr.each(), n="count(*)")
    )
    days.write("days")
    days.late.write("late")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("events", *({"at": time} for time in times))
        assert driver.read("late") == []
        assert [(r["window_start"], r["window_end"], r["n"]) for r in driver.read("days")] == [(start, end, len(times))]


def test_a_window_goes_on_after_its_first_event_has_failed(spark: SparkSession) -> None:
    pipeline = hr.Pipeline("ratios")
    ratios = (
        pipeline.read("pairs", schema="a BIGINT, b BIGINT, at TIMESTAMP")
        .event_time("at")
        .window("ratios", hr.tumbling("1h"), total="sum(a div b)")
    )
    ratios.write("ratios")
    ratios.dead_letters.write("failed")

    def pair(a: int, b: int) -> dict[str, Any]:
        return {"a": a, "b": b, "at": at(5)}

    with Driver(pipeline, spark=spark) as driver:
        driver.send("pairs", pair(1, 0))
        driver.send("pairs", pair(6, 2))
        driver.send("pairs", pair(1, 0), pair(8, 2))
        driver.advance_watermark(at(60))
        assert len(driver.records("failed")) == 2
        assert [row["total"] for row in driver.read("ratios")] == [7]


def test_the_end_of_all_input_closes_a_global_window(spark: SparkSession) -> None:
    pipeline = hr.Pipeline("whole")
    timed = pipeline.read("clicks", schema="user STRING, at TIMESTAMP").event_time("at", watermark=hr.perfect())
    timed.key_by("user").window("all", hr.global_window(), n=F.count("*")).write("totals")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("clicks", *({"user": "ann", "at": "2024-01-01T10:00:00Z"} for _ in range(3)))
        assert driver.read("totals") == []
        driver.advance_watermark(END_OF_TIME_MS)
        (total,) = driver.read("totals")
        assert (total["n"], total["pane_timing"], total["is_last"]) == (3, "on_time", True)
        assert "window_end" not in total
        assert driver.state_rows == 0


@pytest.mark.parametrize("windows", [hr.tumbling("1h"), hr.session("10m")])
def test_windows_from_before_1970_close_when_there_is_a_watermark(windows: hr.Windowing, spark: SparkSession) -> None:
    """Spark says zero where it has no watermark, and its timers take that for a time."""
    pipeline = hr.Pipeline("archive")
    read = pipeline.read("clicks", schema="user STRING, at TIMESTAMP").event_time("at").key_by("user")
    read.window("visits", windows, allowed_lateness="1m", n="count(*)").write("visits")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("clicks", {"user": "ann", "at": "1969-07-20T20:17:00.000Z"})
        driver.send("clicks", {"user": "bob", "at": "1969-07-20T20:18:00.000Z"})
        assert driver.read("visits") == []
        driver.advance_watermark(at(0))
        assert {(row["user"], row["n"]) for row in driver.read("visits")} == {("ann", 1), ("bob", 1)}


def test_names_of_any_kind_in_and_out_of_a_window(spark: SparkSession) -> None:
    pipeline = hr.Pipeline("names")
    read = pipeline.read("clicks", schema="`user-id 1` STRING, `a b` INT, at TIMESTAMP").event_time("at")
    counted = read.with_column("it's", F.lit(1)).key_by("user-id 1")
    aggregates: dict[str, Any] = {"how many": F.count("*"), "süß-es": F.sum("`a b`")}
    counted.window("visits", hr.tumbling("1h"), **aggregates).write("out")
    read.where(F.col("`a b`") > 1).select("a b", "user-id 1").write("large")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("clicks", *({"user-id 1": "ann", "a b": n, "at": at(n)} for n in (1, 2)))
        driver.advance_watermark(at(200))
        (row,) = driver.read("out")
        assert (row["user-id 1"], row["how many"], row["süß-es"]) == ("ann", 2, 3)
        assert driver.read("large") == [{"a b": 2, "user-id 1": "ann"}]


@pytest.mark.parametrize("name", ["price.net", "cost${eur}", "a`b", "${spark.app.name}", "\\n'"])
def test_a_column_with_a_name_that_means_something_to_spark(spark: SparkSession, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    pipeline = hr.Pipeline("names")
    read = pipeline.read("clicks", schema=f"{quoted} STRING, n INT, at TIMESTAMP").event_time("at")
    keyed = read.key_by(name)
    keyed.window("hourly", hr.tumbling("1h"), last=F.max(F.col(quoted)), sum=F.sum("n")).write("windows")
    keyed.rolling("recent", **{"sum " + name: hr.last("1h").sum("n")}).write("rolling")
    read.with_column("more", F.col(quoted)).select(name, "more").write("selected")
    read.apply(lambda df: df.where("n > 1")).write("applied")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("clicks", *({name: "ann", "n": n, "at": at(n)} for n in (1, 2)))
        driver.advance_watermark(at(200))
        (window,) = driver.read("windows")
        assert (window[name], window["last"], window["sum"]) == ("ann", "ann", 3)
        assert [(row[name], row["sum " + name]) for row in driver.read("rolling")] == [("ann", 1), ("ann", 3)]
        assert driver.read("selected") == [{name: "ann", "more": "ann"}] * 2
        assert [(row[name], row["n"]) for row in driver.read("applied")] == [("ann", 2)]


@pytest.mark.parametrize("size", [50, 300])
def test_sums_of_more_than_any_window_need_not_fit(spark: SparkSession, size: int) -> None:
    """The state of a sliding window has sums of many events at once, more than are in any window."""
    pipeline = hr.Pipeline("sums")
    timed = pipeline.read("pairs", schema="a BIGINT, at BIGINT").event_time("at", out_of_order="1m")
    timed.window("sums", hr.sliding("1s"), total="sum(a)", n="count(*)").write("out")
    start = 1_704_103_200_000
    events = [{"a": 2**62 if at % 2000 == 0 else 1, "at": start + at} for at in range(0, 60_000, 400)]
    # Out of order too, so that what is there is split in its middle.
    events += [{"a": 1, "at": start + at} for at in (*range(100, 60_000, 800), *range(300, 60_000, 1300))]
    with Driver(pipeline, spark=spark) as driver:
        for first in range(0, len(events), size):
            driver.send("pairs", *events[first : first + size])
        found = [(row["total"], row["n"]) for row in driver.read("out")]
        assert driver.records("sums.dead-letters") == []
    expected = []
    for number, event in enumerate(events):
        window = [e["a"] for e in events[: number + 1] if event["at"] - 1000 < e["at"] <= event["at"]]
        expected.append((sum(window), len(window)))
    assert found == expected
