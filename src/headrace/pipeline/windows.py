"""Event-time windows: which rows are aggregated together, and the time that a result carries."""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import closest
from headrace.pipeline.arguments import Argument, Reading
from headrace.pipeline.ddl import Column
from headrace.pipeline.durations import Duration, format_duration

_DAY_MS = 86_400_000

# The columns that a window step adds to its key and aggregates: the window, and the pane that a row belongs to.
WINDOW_COLUMNS = (Column("window_start", "timestamp"), Column("window_end", "timestamp"))
PANE_COLUMNS = (
    Column("window_time", "timestamp"),
    Column("pane_index", "bigint"),
    Column("pane_timing", "string"),
    Column("is_last", "boolean"),
    Column("row_kind", "string"),
)


class WindowKind(StrEnum):
    """How rows are assigned to windows."""

    TUMBLING = "tumbling"
    HOPPING = "hopping"
    SLIDING = "sliding"
    SESSION = "session"
    GLOBAL = "global"


@dataclass(frozen=True)
class Windowing(Argument):
    """How a window step divides event time. Made by `tumbling`, `hopping`, `sliding`, `session`, `global_window`."""

    kind: WindowKind
    size_ms: int | None = None
    slide_ms: int | None = None
    gap_ms: int | None = None
    offset_ms: int = 0
    time_zone: str | None = None

    def __str__(self) -> str:
        if self.kind is WindowKind.GLOBAL:
            return "global_window()"
        length = self.gap_ms if self.kind is WindowKind.SESSION else self.size_ms
        parts = ["" if length is None else format_duration(length)]
        if self.slide_ms is not None:
            parts.append(f"every={format_duration(self.slide_ms)}")
        if self.offset_ms:
            parts.append(f"offset={format_duration(self.offset_ms)}")
        if self.time_zone is not None:
            parts.append(f"time_zone={self.time_zone}")
        return f"{self.kind}({', '.join(parts)})"


def tumbling(size: Duration, offset: Duration = "0s", time_zone: str | None = None) -> Windowing:
    """Windows of one size, end to end: each event is in one of them, [start, start + size).

    They are aligned to 1970-01-01T00:00 UTC, a Thursday, moved by `offset`, which may be negative. With a `time_zone`
    (an IANA name) they are aligned to local midnight, and a day is the local one, of 23 or 25 hours when the clocks
    change; the size is then in whole days.

    >>> tumbling("1h", offset="-15m").offset_ms
    -900000
    >>> print(tumbling("1d", time_zone="Europe/Berlin"))
    tumbling(1d, time_zone=Europe/Berlin)
    """
    reading = Reading("tumbling")
    size_ms = reading.duration(size)
    offset_ms = reading.duration(offset, "offset", signed=True)
    zone = _zone(reading, time_zone, [size_ms])
    return Windowing(WindowKind.TUMBLING, size_ms, offset_ms=offset_ms, time_zone=zone, problems=reading.problems)


def hopping(size: Duration, *, every: Duration, offset: Duration = "0s", time_zone: str | None = None) -> Windowing:
    """Windows of one size that start `every` so often, and so overlap: an event is in each that covers it.

    Alignment, `offset` and `time_zone` are as in `tumbling`. `every` is at most `size`, which need not be a multiple.

    >>> print(hopping("1h", every="1m"))
    hopping(1h, every=1m)
    """
    reading = Reading("hopping")
    size_ms = reading.duration(size)
    slide_ms = reading.duration(every, "every")
    offset_ms = reading.duration(offset, "offset", signed=True)
    if slide_ms > size_ms and not reading.problems:
        size_text, slide_text = format_duration(size_ms), format_duration(slide_ms)
        reading.refuse(
            f"windows of {size_text} every {slide_text} leave gaps.",
            "An event between two windows would be in neither, and be lost.",
            f'start them at least every {size_text}: hopping("{size_text}", every="{size_text}"), or make them longer.',
        )
    zone = _zone(reading, time_zone, [size_ms, slide_ms])
    return Windowing(
        WindowKind.HOPPING, size_ms, slide_ms, offset_ms=offset_ms, time_zone=zone, problems=reading.problems
    )


def sliding(size: Duration) -> Windowing:
    """A window per event, which ends at it: for an event at t the rows of (t - size, t], one result per event.

    It has no trigger, panes or allowed lateness: each event gets its result once.

    >>> print(sliding("10m"))
    sliding(10m)
    """
    reading = Reading("sliding")
    return Windowing(WindowKind.SLIDING, reading.duration(size), problems=reading.problems)


def session(gap: Duration, time_zone: str | None = None) -> Windowing:
    """Windows of activity: events less than `gap` apart are in one, which ends `gap` after its last event.

    An event that bridges two sessions makes them one, also if they had results already. Sessions follow the events
    and not the calendar, so a `time_zone` is refused.

    >>> print(session("30m"))
    session(30m)
    """
    reading = Reading("session")
    gap_ms = reading.duration(gap)
    if time_zone is not None:
        reading.refuse(
            f"session(..., time_zone={time_zone!r}): sessions have no time zone.",
            "They begin and end with their events, not with the calendar.",
            'leave it out; for windows per local day use tumbling("1d", time_zone=...).',
        )
    return Windowing(WindowKind.SESSION, gap_ms=gap_ms, problems=reading.problems)


def global_window() -> Windowing:
    """One window for all time, per key. It ends with the stream, so it needs a trigger that does not wait for that.

    >>> print(global_window())
    global_window()
    """
    return Windowing(WindowKind.GLOBAL)


class Moment(StrEnum):
    """What the time of a result is measured from."""

    END = "end"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class ResultTime(Argument):
    """Which time a result carries in `window_time`. Made by `at_end`, `at_earliest`, `at_latest`."""

    kind: Moment
    plus_ms: int = 0

    def __str__(self) -> str:
        plus = f"plus={format_duration(self.plus_ms)}" if self.plus_ms else ""
        return f"at_{self.kind}({plus})"


def at_end() -> ResultTime:
    """The time of a result is the end of its window; null for a global window, which has none.

    >>> print(at_end())
    at_end()
    """
    return ResultTime(Moment.END)


def at_earliest(plus: Duration = "0s") -> ResultTime:
    """The time of a result is that of the earliest event in it that was not late, plus a span.

    >>> print(at_earliest(plus="100ms"))
    at_earliest(plus=100ms)
    """
    reading = Reading("at_earliest")
    return ResultTime(Moment.EARLIEST, reading.duration(plus, "plus", zero=True), problems=reading.problems)


def at_latest(plus: Duration = "0s") -> ResultTime:
    """The time of a result is that of the latest event in it, plus a span.

    >>> at_latest()
    ResultTime(kind=<Moment.LATEST: 'latest'>, plus_ms=0)
    """
    reading = Reading("at_latest")
    return ResultTime(Moment.LATEST, reading.duration(plus, "plus", zero=True), problems=reading.problems)


def _zone(reading: Reading, time_zone: str | None, spans_ms: list[int]) -> str | None:
    """The time zone if it is one, and if the spans are such that it makes sense."""
    if time_zone is None:
        return None
    known = zoneinfo.available_timezones()
    if not isinstance(time_zone, str) or time_zone not in known:
        meant = closest(time_zone, known) if isinstance(time_zone, str) else None
        hint = f"did you mean {meant!r}? " if meant else ""
        reading.refuse(
            f"{time_zone!r} is not a time zone.", None, f'{hint}Pass an IANA name, like "Europe/Berlin" or "UTC".'
        )
        return None
    if any(span % _DAY_MS for span in spans_ms) and not reading.problems:
        span = next(span for span in spans_ms if span % _DAY_MS)
        reading.refuse(
            f"windows by the calendar of {time_zone} are in whole days, not {format_duration(span)}.",
            "Days differ in length when the clocks change; how shorter windows divide them is not defined.",
            "make it whole days, or leave the time zone out: shorter windows are aligned to UTC.",
        )
        return None
    return time_zone
