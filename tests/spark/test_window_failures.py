"""An aggregate's expression that fails on an event: the event is a dead letter, and its window goes on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace import Windowing


def event(second: int, text: str, by: int = 1) -> dict[str, Any]:
    return {"key": "k", "text": text, "by": by, "at": f"2024-01-01T10:00:{second:02d}Z"}


def ratios(windows: Windowing) -> hr.Pipeline:
    pipeline = hr.Pipeline("ratios")
    counted = (
        pipeline.read("events", schema="key STRING, text STRING, by BIGINT, at TIMESTAMP")
        .event_time("at")
        .key_by("key")
        .window("ratio", windows, ratio=F.sum(F.col("text").cast("bigint") / F.col("by")), events=F.count("*"))
    )
    counted.write("ratios")
    counted.dead_letters.write("dead")
    return pipeline


@pytest.mark.parametrize(
    "windows", [hr.tumbling("1m"), hr.hopping("1m", every="30s"), hr.session("1m")], ids=lambda w: w.kind.value
)
def test_the_first_event_of_a_window_may_fail(spark: SparkSession, windows: Windowing) -> None:
    with Driver(ratios(windows), spark=spark) as driver:
        driver.send("events", event(31, "1", by=0))
        driver.send("events", event(32, "no number"))
        driver.send("events", event(33, "4", by=2), event(34, "5", by=0))
        driver.send("events", event(35, "6", by=2))
        driver.advance_watermark("2024-01-01T10:05:00Z")
        results = driver.read("ratios")
        dead = driver.records("dead")
        assert driver.state_rows == 0

    assert results
    assert {(row["ratio"], row["events"]) for row in results} == {(5.0, 2)}
    reasons = [record.headers["headrace-reason"] for record in dead]
    assert [reason.partition("]")[0].partition("[")[2] for reason in reasons] == [
        "DIVIDE_BY_ZERO",
        "CAST_INVALID_INPUT",
        "DIVIDE_BY_ZERO",
    ]
    assert not any("\n" in reason for reason in reasons)


def test_windows_of_failed_events_alone_leave_nothing(spark: SparkSession) -> None:
    with Driver(ratios(hr.tumbling("1m")), spark=spark) as driver:
        driver.send("events", event(1, "1", by=0))
        assert driver.state_rows == 0
        driver.advance_watermark("2024-01-01T10:05:00Z")
        assert driver.read("ratios") == []
        assert len(driver.records("dead")) == 1
