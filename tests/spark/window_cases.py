"""The window cases of Arroyo's SQL tests as pipelines, each with how its results read in the expected file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import headrace as hr

Row = dict[str, Any]

CARS = "timestamp TIMESTAMP, driver_id BIGINT, event_type STRING, location STRING"
IMPULSE = "timestamp TIMESTAMP, counter BIGINT, subtask_index BIGINT"
SCHEMAS = {"cars": CARS, "impulse": IMPULSE, "busy_drivers": "hour TIMESTAMP, driver_id BIGINT"}
TIMES = {"cars": "timestamp", "impulse": "timestamp", "busy_drivers": "hour"}

NUMBERS: dict[str, Any] = {
    "min": "min(counter)",
    "max": "max(counter)",
    "sum": "sum(counter)",
    "count": "count(*)",
    "avg": "avg(counter)",
}


@dataclass(frozen=True)
class Case:
    """Rows of `source` go through `declare`, and the final rows through `shape`, to be those of the file `name`."""

    name: str
    source: str
    declare: Callable[[hr.Stream], hr.Stream]
    shape: Callable[[list[Row]], list[Row]]

    def pipeline(self) -> hr.Pipeline:
        """Results go to `results`, late events to `late`."""
        pipeline = hr.Pipeline(self.name.replace("_", "-"))
        results = self.declare(pipeline.read(self.source, schema=SCHEMAS[self.source]))
        results.write("results")
        results.late.write("late")
        return pipeline


def final_state(rows: list[Row]) -> list[Row]:
    """What stands of each key and window after all changes."""
    pane = {"window_time", "pane_index", "pane_timing", "is_last", "row_kind"}
    standing: dict[str, Row] = {}
    aggregates = {*NUMBERS, "rows", "drivers", "subtasks"}
    for row in rows:
        identity = str({k: v for k, v in row.items() if k not in pane | aggregates})
        if row["row_kind"].startswith("-"):
            del standing[identity]
        else:
            standing[identity] = {k: v for k, v in row.items() if k not in pane}
    return list(standing.values())


def renamed(**names: str) -> Callable[[list[Row]], list[Row]]:
    """The columns that the file has, under its names: `file_name="our_name"`."""
    return lambda rows: [{theirs: row[ours] for theirs, ours in names.items()} for row in rows]


def updated(**names: str) -> Callable[[list[Row]], list[Row]]:
    """As `renamed`, as the changes of a table that was filled from nothing."""
    return lambda rows: [{"before": None, "after": row, "op": "c"} for row in renamed(**names)(rows)]


def top_driver(rows: list[Row]) -> list[Row]:
    """Of each window, the driver with the most events; of several, the one with the highest number."""
    best: dict[str, Row] = {}
    for row in rows:
        window = row["window_start"]
        if window not in best or _rank(row) > _rank(best[window]):
            best[window] = row
    names = {"count": "count", "driver_id": "driver_id", "start": "window_start", "end": "window_end"}
    return [row | {"row_number": 1} for row in renamed(**names)(list(best.values()))]


def busy_drivers(rows: list[Row]) -> list[Row]:
    """How many drivers have more than 85 events."""
    return [{"before": None, "after": {"drivers": sum(row["count"] > 85 for row in rows)}, "op": "c"}]


def _rank(row: Row) -> tuple[int, int]:
    return row["count"], row["driver_id"]


def _timed(stream: hr.Stream, source: str = "cars") -> hr.Stream:
    return stream.event_time(TIMES[source], watermark=hr.perfect())


def _per_driver(windows: hr.Windowing) -> Callable[[hr.Stream], hr.Stream]:
    return lambda s: _timed(s).key_by("driver_id").window("activity", windows, count="count(*)")


def _user(stream: hr.Stream) -> hr.Stream:
    return stream.select("timestamp", user_id="CASE WHEN counter % 10 = 0 THEN 0 ELSE counter END")


CASES = [
    Case(
        "tight_watermark",
        "cars",
        lambda s: _timed(s).window("hourly", hr.tumbling("1h"), count="count(*)"),
        renamed(count="count", timestamp="window_end"),
    ),
    Case(
        "hourly_by_event_type",
        "cars",
        lambda s: _timed(s).key_by("event_type").window("hourly", hr.tumbling("1h"), count="count(*)"),
        renamed(event_type="event_type", hour="window_start", count="count"),
    ),
    Case(
        "month_loose_watermark",
        "cars",
        lambda s: _timed(s).window("monthly", hr.tumbling("30d"), count="count(*)"),
        renamed(month="window_start", count="count"),
    ),
    Case("most_active_driver_last_hour", "cars", _per_driver(hr.hopping("1h", every="1m")), top_driver),
    Case("most_active_driver_last_hour_unaligned", "cars", _per_driver(hr.hopping("1h", every="40m")), top_driver),
    Case(
        "active_drivers",
        "cars",
        lambda s: (
            _timed(s)
            .key_by("driver_id")
            .window("events", hr.global_window(), trigger=hr.each(), panes="retracting", count="count(*)")
        ),
        busy_drivers,
    ),
    Case(
        "session_window",
        "impulse",
        lambda s: _timed(_user(s)).key_by("user_id").window("visits", hr.session("20s"), rows="count(*)"),
        renamed(user_id="user_id", start="window_start", end="window_end", rows="rows"),
    ),
    Case(
        "global_session_window",
        "impulse",
        lambda s: _timed(s).window("visits", hr.session("20s"), rows="count(*)"),
        renamed(start="window_start", end="window_end", rows="rows"),
    ),
    Case(
        "sliding_window_end",
        "impulse",
        lambda s: _timed(s).window(
            "last-ten", hr.hopping("10s", every="2s"), count="count(*)", min="min(counter)", max="max(counter)"
        ),
        renamed(start="window_start", end="window_end", count="count", min="min", max="max"),
    ),
    Case(
        "aggregates",
        "impulse",
        lambda s: _timed(s).window("totals", hr.global_window(), trigger=hr.each(), **NUMBERS),
        updated(**{name: name for name in NUMBERS}),
    ),
    Case(
        "grouped_aggregates",
        "impulse",
        lambda s: (
            _timed(s.select("timestamp", "counter", counter_mod="counter % 5"))
            .key_by("counter_mod")
            .window("totals", hr.global_window(), trigger=hr.each(), panes="retracting", **NUMBERS)
        ),
        updated(counter_mod="counter_mod", **{name: name for name in NUMBERS}),
    ),
    Case(
        "filter_updating_aggregates",
        "impulse",
        lambda s: _timed(s).window(
            "subtasks", hr.global_window(), trigger=hr.each(), subtasks="count(DISTINCT subtask_index)"
        ),
        lambda rows: updated(subtasks="subtasks")([row for row in rows if row["subtasks"] >= 1]),
    ),
]

# A window of windows is two pipelines: the rows that stand after the first are the events of the second.
PICKUPS = Case(
    "reinvoke_window_function",
    "cars",
    lambda s: (
        _timed(s.where("event_type = 'pickup'"))
        .key_by("driver_id")
        .window("pickups", hr.tumbling("1h"), count="count(*)")
    ),
    lambda rows: renamed(hour="window_start", driver_id="driver_id")([row for row in rows if row["count"] > 2]),
)
BUSY_DRIVERS = Case(
    "reinvoke_window_function",
    "busy_drivers",
    lambda s: _timed(s, "busy_drivers").window("busy", hr.tumbling("1h"), drivers="count(DISTINCT driver_id)"),
    renamed(start="window_start", end="window_end", drivers="drivers"),
)
