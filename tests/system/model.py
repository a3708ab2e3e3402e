"""What `rolling` and `dedupe` mean, computed the slow and obvious way: all events of a key in a list."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from headrace.pipeline.nodes import Latest, WindowAggregate
from tests.system.records import Position

Aggregates = Mapping[str, WindowAggregate | Latest]


@dataclass(frozen=True, eq=False)
class Arrival:
    """An event as it lies in the log."""

    position: Position
    key: Any
    time: int
    row: Mapping[str, Any]


def timestamp(millis: int) -> str:
    """A time as it is written in JSON."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def by_key(arrivals: Iterable[Arrival]) -> dict[Any, list[Arrival]]:
    """The arrivals of each key, in log order."""
    keys: dict[Any, list[Arrival]] = {}
    for arrival in sorted(arrivals, key=lambda a: a.position):
        keys.setdefault(arrival.key, []).append(arrival)
    return keys


def first_of_each_id(arrivals: Iterable[Arrival], column: str, within_ms: int) -> tuple[list[Arrival], list[Arrival]]:
    """Those that pass `dedupe`, and the duplicates."""
    passed, duplicates = [], []
    for events in by_key(arrivals).values():
        remembered: dict[Any, int] = {}
        for event in events:
            seen = remembered.get(event.row[column])
            if seen is not None and abs(event.time - seen) < within_ms:
                duplicates.append(event)
            else:
                remembered[event.row[column]] = event.time
                passed.append(event)
    return passed, duplicates


def rolling(arrivals: Iterable[Arrival], aggregates: Aggregates) -> Iterator[tuple[Arrival, dict[str, Any]]]:
    """Each event with its aggregates. `Distinct` stands for an approximate count of distinct values."""
    for events in by_key(arrivals).values():
        arrived: list[Arrival] = []
        for event in events:
            arrived.insert(bisect_right(arrived, event.time, key=lambda a: a.time), event)
            yield event, results_of(event, arrived, aggregates)


def results_of(event: Arrival, arrived: Sequence[Arrival], aggregates: Aggregates) -> dict[str, Any]:
    """The aggregates of an event of which `arrived` are all of its key so far, itself included, in order of time."""
    longest = max((a.window_ms for a in aggregates.values() if isinstance(a, WindowAggregate)), default=0)
    rank = arrived.index(event)
    results: dict[str, Any] = {}
    for name, aggregate in aggregates.items():
        if isinstance(aggregate, Latest):
            results[name] = _latest(aggregate, arrived, rank, aggregate.within_ms or longest)
        else:
            begin = bisect_right(arrived, event.time - aggregate.window_ms, key=lambda a: a.time)
            results[name] = _aggregate(aggregate, arrived[begin : rank + 1])
    return results


def _latest(latest: Latest, arrived: Sequence[Arrival], rank: int, within_ms: int) -> dict[str, Any] | None:
    if rank < latest.back:
        return None
    found = arrived[rank - latest.back]
    if found.time <= arrived[rank].time - within_ms:
        return None
    # JSON leaves out fields that are null.
    return {name: found.row[name] for name in latest.columns if found.row[name] is not None}


def _aggregate(aggregate: WindowAggregate, window: Sequence[Arrival]) -> Any:
    if aggregate.column is None:
        return len(window)
    values = [event.row[aggregate.column] for event in window]
    return _FUNCTIONS[aggregate.function]([value for value in values if value is not None])


@dataclass(frozen=True)
class Distinct:
    """The values of which Spark's own `approx_count_distinct` says how many there are."""

    values: tuple[Any, ...]


def _sum(values: list[Any]) -> Any:
    if not values:
        return None
    return math.fsum(values) if isinstance(values[0], float) else sum(values)


def _avg(values: list[Any]) -> float | None:
    return math.fsum(float(value) for value in values) / len(values) if values else None


def deviation(values: Sequence[float | Decimal | int]) -> float | None:
    """The sample standard deviation from exact arithmetic, rounded at the very end."""
    n = len(values)
    if n < 2:
        return None
    exact = [Fraction(float(value)) for value in values]
    variance = (n * sum((x * x for x in exact), Fraction()) - sum(exact, Fraction()) ** 2) / (n * (n - 1))
    # Scaled, so that neither very small nor very large variances leave the range of a double.
    scale = 0 if variance == 0 else (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(variance / Fraction(4) ** scale), scale)


_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": _sum,
    "avg": _avg,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "stddev": deviation,
    "approx_count_distinct": lambda values: Distinct(tuple(values)),
}
