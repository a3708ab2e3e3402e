"""Windows over recorded streams, against the results that another engine's tests expect of them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.testing import Driver
from tests.spark.window_cases import BUSY_DRIVERS, CASES, PICKUPS, TIMES, Case, Row, final_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[1] / "data" / "windows"
BATCHES = 4


LONG = (
    "tight_watermark",
    "most_active_driver_last_hour",
    "most_active_driver_last_hour_unaligned",
    "hourly_by_event_type",
    "month_loose_watermark",
)
"""A quarter of a minute and more; others have the same windows."""


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.soak] if c.name in LONG else [], id=c.name) for c in CASES]
)
def test_recorded_stream(case: Case, spark: SparkSession) -> None:
    results = run(case, rows_of(FOLDER / "inputs" / f"{case.source}.jsonl"), spark)
    assert comparable(results) == comparable(rows_of(FOLDER / "expected" / f"{case.name}.jsonl"))


@pytest.mark.soak
def test_window_of_window_results(spark: SparkSession) -> None:
    busy = run(PICKUPS, rows_of(FOLDER / "inputs" / "cars.jsonl"), spark)
    results = run(BUSY_DRIVERS, busy, spark)
    assert comparable(results) == comparable(rows_of(FOLDER / "expected" / "reinvoke_window_function.jsonl"))


def run(case: Case, rows: list[Row], spark: SparkSession) -> list[Row]:
    """The rows in batches, in their order, under a watermark as far as the events still to come allow."""
    size = -(-len(rows) // BATCHES)
    times = [datetime.fromisoformat(row[TIMES[case.source]]).astimezone(UTC) for row in rows]
    with Driver(case.pipeline(), spark=spark) as driver:
        for start in range(0, len(rows), size):
            driver.send(case.source, *rows[start : start + size])
            still_to_come = times[start + size :]
            if still_to_come:
                driver.advance_watermark(min(still_to_come))
        driver.advance_watermark(datetime(2030, 1, 1, tzinfo=UTC))
        assert driver.read("late") == []
        return case.shape(final_state(driver.read("results")))


def rows_of(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines() if line]


def comparable(rows: list[Row]) -> Counter[str]:
    """Rows as a multiset, with times in one form."""
    return Counter(json.dumps(_plain(row), sort_keys=True) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, str) and "T" in value:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return value
