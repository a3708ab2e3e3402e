"""Brute force: which events each window of a key takes, from the events in the order of their coming.

It knows nothing of triggers or panes: a window takes an event unless the watermark, when the event came, was past the
window's end by the allowed lateness. An event that no window takes is late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

Span = tuple[int, int] | None
"""Start and end in milliseconds; None for the global window."""


@dataclass(frozen=True)
class Arrival:
    """An event and the watermark at its coming; None before there was one."""

    id: int
    key: str
    at: int
    watermark: int | None


@dataclass(frozen=True)
class Truth:
    """What each key's windows hold in the end, and which events are late."""

    windows: dict[tuple[str, Span], list[int]]
    late: list[int]


Assign = Callable[[int], list[Span]]


def assigned(arrivals: Sequence[Arrival], assign: Assign, lateness: int) -> Truth:
    """For windows that do not depend on other events."""
    windows: dict[tuple[str, Span], list[int]] = defaultdict(list)
    late = []
    for event in arrivals:
        open_spans = [span for span in assign(event.at) if not _over(span, lateness, event.watermark)]
        for span in open_spans:
            windows[event.key, span].append(event.id)
        if not open_spans:
            late.append(event.id)
    return Truth(dict(windows), late)


def sessions(arrivals: Sequence[Arrival], gap: int, lateness: int) -> Truth:
    """For sessions: an event joins those of its key that it overlaps and that are not over."""
    live: dict[tuple[str, Span], list[int]] = {}
    done: dict[tuple[str, Span], list[int]] = {}
    late = []
    for event in arrivals:
        for identity in [i for i in live if _over(i[1], lateness, event.watermark)]:
            done[identity] = live.pop(identity)
        start, end = event.at, event.at + gap
        met = [(k, s) for k, s in live if k == event.key and s is not None and s[0] < end and start < s[1]]
        bounds = [s for _, s in met if s is not None]
        whole = (min([start, *(s[0] for s in bounds)]), max([end, *(s[1] for s in bounds)]))
        if _over(whole, lateness, event.watermark):
            late.append(event.id)
        else:
            taken = [event.id, *(i for identity in met for i in live.pop(identity))]
            live[event.key, whole] = taken
    return Truth(done | live, late)


def aligned(size: int, slide: int, offset: int = 0) -> Assign:
    """All windows that start a multiple of `slide` after `offset` and cover the time."""

    def assign(at: int) -> list[Span]:
        first = (at - size - offset) // slide
        starts = [n * slide + offset for n in range(first, first + size // slide + 3)]
        return [(start, start + size) for start in starts if start <= at < start + size]

    return assign


def local_days(zone: str, offset: timedelta, days: int = 1) -> Assign:
    """Windows of so many local days, one per day, each from that long after midnight by the wall clock."""

    def bound(day: date) -> int:
        wall = datetime.combine(day, time()) + offset
        return round(wall.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)

    def assign(at: int) -> list[Span]:
        today = datetime.fromtimestamp(at / 1000, UTC).date()
        starts = [today + timedelta(days=n) for n in range(-days - 2, 3)]
        spans = [(bound(start), bound(start + timedelta(days=days))) for start in starts]
        return [(start, end) for start, end in spans if start <= at < end]

    return assign


def everything(at: int) -> list[Span]:
    """The global window."""
    return [None]


def _over(span: Span, lateness: int, watermark: int | None) -> bool:
    return span is not None and watermark is not None and span[1] + lateness <= watermark
