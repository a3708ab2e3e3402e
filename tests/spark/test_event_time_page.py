"""The life of a window, as the page on event time tells it, is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace as hr
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "event-time.md"
DAY = "2024-01-01T"


def story() -> tuple[hr.Pipeline, list[str]]:
    found = re.search(r"```python\n(.*?)^```$.*?```text\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(found[1], str(PAGE), "exec"), names)
    return names["clicks"], found[2].splitlines()


def test_the_life_of_a_window(spark: SparkSession) -> None:
    pipeline, lines = story()
    assert len(lines) > 5
    with Driver(pipeline, spark=spark) as driver:
        for line in lines:
            happens, _, expected = (part.strip() for part in line.partition("->"))
            match happens.split():
                case ["click", *times]:
                    driver.send("clicks", *({"user": "ada", "at": f"{DAY}{time}Z"} for time in times))
                case ["clock", span]:
                    driver.advance_clock(span)
                case ["watermark", time]:
                    driver.advance_watermark(f"{DAY}{time}Z")
                case _:
                    raise AssertionError(line)
            results = driver.read("per-minute")
            shown = [f"{row['row_kind']} {row['clicks']} {row['pane_timing']}" for row in results]
            shown += ["too late" for _ in driver.read("too-late")]
            assert ", ".join(shown) == expected, line
