"""Plays events through a Driver as a run would take them: batch after batch, the watermark behind the latest event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from headrace.testing import Driver

Event = Mapping[str, Any]


def play(driver: Driver, topic: str, batches: Iterator[Sequence[Event]], *, time: str, out_of_order: timedelta) -> None:
    """Sends each batch, then moves the watermark to the latest event time seen, less what may be out of order."""
    latest: datetime | None = None
    for batch in batches:
        driver.send(topic, *batch)
        seen: datetime = max(event[time] for event in batch)
        latest = seen if latest is None else max(latest, seen)
        driver.advance_watermark(latest - out_of_order)


def cut(events: Sequence[Event], pieces: int, seed: int = 1) -> Iterator[Sequence[Event]]:
    """The events in their order, in batches of random sizes."""
    places = sorted(Random(seed).sample(range(1, len(events)), pieces - 1))
    for start, end in zip([0, *places], [*places, len(events)], strict=True):
        yield events[start:end]


def standing(rows: Sequence[Event], *key: str) -> dict[tuple[Any, ...], Event]:
    """The results that stand after all changes: the last one of each key, unless it was taken back."""
    table: dict[tuple[Any, ...], Event] = {}
    for row in rows:
        identity = tuple(row[name] for name in key)
        if row["row_kind"] in ("+I", "+U"):
            table[identity] = row
        else:
            assert {**row, "row_kind": table[identity]["row_kind"]} == table[identity], "takes back what stands"
            del table[identity]
    return table
