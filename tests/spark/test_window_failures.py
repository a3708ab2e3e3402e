"""Results that can't be computed: told as dead letters, and nothing stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
