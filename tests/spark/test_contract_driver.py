"""A pipeline under contracts in a test: rows in, rows out, with no registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import RegistryUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_schema_file_is_enough(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "click.avsc"
    at = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "user", "type": "string"}, {"name": "at", "type": at}]
    file.write_text(json.dumps({"type": "record", "name": "Click", "fields": fields}))
    pipeline = hr.Pipeline("clicks")
    clicks = pipeline.read("clicks", contract=hr.contract("clicks-value", schema=file)).event_time("at")
    counts = clicks.key_by("user").rolling("per-user", n=hr.last("1m").count())
    counts.select("user", "n").write("counts", contract="counts-value")
    with hr.testing.Driver(pipeline, spark=spark) as driver:
        driver.send("clicks", {"user": "ann", "at": "2024-01-01T10:00:05Z"}, {"at": "2024-01-01T10:00:06Z"})
        driver.send("clicks", {"user": "ann", "at": "2024-01-01T10:00:07Z"})
        assert [row["n"] for row in driver.read("counts")] == [1, 2]
        (letter,) = driver.records("clicks.dead-letters")
        assert letter.headers["headrace-reason"] == "required field `user` is missing or null"


def test_without_a_file_a_registry_is_asked(spark: SparkSession) -> None:
    pipeline = hr.Pipeline("clicks")
    pipeline.read("clicks", contract="clicks-value").write("out")
    with pytest.raises(RegistryUnavailableError, match="no schema registry answers"):
        hr.testing.Driver(pipeline, spark=spark, registry="http://127.0.0.1:9")
