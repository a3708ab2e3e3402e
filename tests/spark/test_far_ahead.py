"""An event far ahead of the others, as of a clock that is wrong, is kept until its time comes: the others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS: dict[str, Callable[[hr.Stream], hr.Stream]] = {
    "dedupe": lambda s: s.dedupe("id", within="10s"),
    "rolling": lambda s: s.rolling("seen", n=hr.last("5s").count(), before=hr.latest("id", within="10s")),
    "sliding": lambda s: s.window("seen", hr.sliding("10s"), last="max(id)"),
}


def events(second: float, number: int) -> list[dict[str, Any]]:
    """So many of a key, within ten seconds."""
    return [{"k": "a", "id": f"id-{second}-{n}", "at": at(second + 10 * n / number)} for n in range(number)]


def at(second: float) -> str:
    return f"2024-01-01T10:{int(second) // 60:02}:{second % 60:06.3f}Z"


def remembered(driver: Driver, spark: SparkSession, name: str) -> tuple[int, int]:
    """How many events the state has of those that are far ahead, and how many others."""
    state = spark.read.format("statestore").option("stateVarName", name).load(str(driver._folder / "0"))
    parts = [bytes(row.value) for row in state.select("user_map_value.value").collect()]
    return sum(part.count(b"ahead") for part in parts), sum(part.count(b"id-") for part in parts)


@pytest.mark.parametrize("number", [5, 200])
@pytest.mark.parametrize("step", STEPS)
def test_an_event_far_ahead_does_not_keep_the_others(spark: SparkSession, step: str, number: int) -> None:
    pipeline = hr.Pipeline("clocks")
    timed = pipeline.read("events", schema="k STRING, id STRING, at TIMESTAMP").event_time("at")
    STEPS[step](timed.key_by("k")).write("out")
    name = "dedupe-id" if step == "dedupe" else "seen"
    with Driver(pipeline, spark=spark) as driver:
        driver.send("events", {"k": "a", "id": "ahead", "at": "2024-06-01T10:00:00Z"})
        for second in (0, 600):
            driver.send("events", *events(second, number))
            ahead, others = remembered(driver, spark, name)
            assert ahead == 1
            assert others >= number / 2
            driver.advance_watermark(at(second + 300))
            driver.advance_watermark(at(second + 301))
            assert remembered(driver, spark, name) == (1, 0)
        driver.advance_watermark("2024-06-01T10:01:00Z")
        driver.advance_watermark("2024-06-01T10:01:01Z")
        assert driver.state_rows == 0
