"""Sinks in a test with the Driver: no store is written to, and what would be is read by the sink's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import headrace as hr
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_a_sink_would_get_is_read_by_its_name(spark: SparkSession) -> None:
    pipeline = hr.Pipeline("driven")
    clicks = pipeline.read("clicks", schema="user STRING, page STRING, at TIMESTAMP")
    clicks.where("page <> '/health'").write(hr.sinks.postgres("postgresql://nowhere/none", table="clicks"))
    counts = clicks.event_time("at").key_by("user").rolling("counts", n=hr.last("1h").count())
    counts.select("user", "n").write(hr.sinks.redis("redis://nowhere", key="user", name="counts"))
    with Driver(pipeline, spark=spark) as driver:
        driver.send(
            "clicks",
            {"user": "ann", "page": "/", "at": "2024-01-01T10:00:00Z"},
            {"user": "ann", "page": "/health", "at": "2024-01-01T10:00:01Z"},
        )
        assert [row["page"] for row in driver.read("postgres-clicks")] == ["/"]
        assert driver.read("counts") == [{"user": "ann", "n": 1}, {"user": "ann", "n": 2}]
