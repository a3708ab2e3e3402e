"""Columns before, during and after a Spark session, in a process of its own: sessions are global to a process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace

SOURCES = Path(headrace.__file__).parents[1]

SCRIPT = """
import json
from datetime import datetime

from pyspark.sql import SparkSession, functions as F
from pyspark.sql.types import LongType

import headrace as hr
from headrace.pipeline.columns import is_column, references

twice = F.udf(lambda x: 2 * x, LongType())  # as user modules do, before there is a session
before = F.col("x") > 5

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
during = F.col("x") > 5
numbers = spark.range(3).toDF("x")

places = [
    ("paris to london, an hour", 51.5074, -0.1278, "2024-05-01 13:00:00", (48.8566, 2.3522, "2024-05-01 12:00:00")),
    ("across the date line", 0.0, -179.0, "2024-05-01 13:00:00", (0.0, 179.0, "2024-05-01 12:00:00")),
    ("antipodes", 0.0, 180.0, "2024-05-01 13:00:00", (0.0, 0.0, "2024-05-01 12:00:00")),
    ("same place, same time", 48.8566, 2.3522, "2024-05-01 12:00:00", (48.8566, 2.3522, "2024-05-01 12:00:00")),
    ("same time, elsewhere", 48.8576, 2.3522, "2024-05-01 12:00:00", (48.8566, 2.3522, "2024-05-01 12:00:00")),
    ("half a second", 48.8576, 2.3522, "2024-05-01 12:00:00.5", (48.8566, 2.3522, "2024-05-01 12:00:00")),
    ("no earlier event", 48.8566, 2.3522, "2024-05-01 12:00:00", None),
    ("earlier event without place", 48.8566, 2.3522, "2024-05-01 12:00:00", (None, 2.3522, "2024-05-01 11:00:00")),
    ("earlier event without time", 48.8566, 2.3522, "2024-05-01 12:00:00", (48.8566, 2.3522, None)),
]
time = lambda text: None if text is None else datetime.fromisoformat(text)
rows = [
    (name, lat, lon, time(at), None if here is None else (*here[:2], time(here[2])))
    for name, lat, lon, at, here in places
]
trips = spark.createDataFrame(
    rows,
    "name string, lat double, lon double, occurred_at timestamp, "
    "here struct<lat: double, lon: double, occurred_at: timestamp>",
)
result = {
    "before": type(before).__module__,
    "during": type(during).__module__,
    "during_is_column": is_column(during),
    "during_references": references(during),
    "sql_exists": F.exists(F.array(F.lit(1)), lambda x: x > 0)._jc is not None,
    "filtered": [row.x for row in numbers.where(F.col("x") > 1).collect()],
    "udf": [row[0] for row in numbers.select(twice("x")).collect()],
    "speeds": {row.name: row.kmh for row in trips.select("name", hr.speed_kmh("here").alias("kmh")).collect()},
}
spark.stop()
result["after"] = type(F.col("x")).__module__
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n{SCRIPT}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_columns_are_pure_python_before_a_session_and_classic_during_it(result: dict[str, Any]) -> None:
    assert result["before"] == "pyspark.sql.connect.column"
    assert result["during"] == "pyspark.sql.classic.column"
    assert result["sql_exists"]


def test_after_the_session_they_are_pure_python_again(result: dict[str, Any]) -> None:
    assert result["after"] == "pyspark.sql.connect.column"


def test_spark_works_as_ever_during_the_session(result: dict[str, Any]) -> None:
    assert result["filtered"] == [2]


def test_a_udf_defined_before_the_session_works_in_it(result: dict[str, Any]) -> None:
    assert result["udf"] == [0, 2, 4]


def test_a_classic_column_is_a_column_of_which_nothing_is_known(result: dict[str, Any]) -> None:
    assert result["during_is_column"]
    assert result["during_references"] is None


KM_PER_DEGREE = math.pi * 6371.0088 / 180


@pytest.mark.parametrize(
    ("trip", "kmh"),
    [
        ("paris to london, an hour", 343.56),
        ("across the date line", 2 * KM_PER_DEGREE),
        ("antipodes", 180 * KM_PER_DEGREE),
        ("same place, same time", 0.0),
        ("same time, elsewhere", 0.001 * KM_PER_DEGREE * 3600),
        ("half a second", 0.001 * KM_PER_DEGREE * 3600),
    ],
)
def test_speed_is_the_great_circle_over_the_time_of_at_least_a_second(
    result: dict[str, Any], trip: str, kmh: float
) -> None:
    assert result["speeds"][trip] == pytest.approx(kmh, rel=1e-4)


@pytest.mark.parametrize("trip", ["no earlier event", "earlier event without place", "earlier event without time"])
def test_speed_is_null_if_the_earlier_event_is_not_known(result: dict[str, Any], trip: str) -> None:
    assert result["speeds"][trip] is None
