"""Spans of time as a user writes them: `"30s"`, `"1h30m"` or a `timedelta`. Inside, always whole milliseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from headrace.errors import InvalidDurationError

Duration = str | timedelta

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
# Each unit at most once, from the largest down: "30m1h" is more likely a slip than a wish.
_TEXT = re.compile(r"\s*".join(f"(?:(?P<{unit}>[0-9]{{1,18}})\\s*{unit})?" for unit in _UNITS))
LONGEST_MS = 36_500 * _UNITS["d"]  # a hundred years: more is a slip, and far more would not fit a JVM long
_FIX = 'write a number and a unit (ms, s, m, h, d), like "500ms", "30s", "1h30m" or "7d", or pass a timedelta.'


def parse_duration(value: Duration, *, zero: bool = False, signed: bool = False) -> int:
    """Milliseconds of a duration. Zero is refused unless `zero` allows it; `signed` allows zero and less.

    >>> parse_duration("30s"), parse_duration("1h30m"), parse_duration(timedelta(days=7))
    (30000, 5400000, 604800000)
    >>> parse_duration("-1h", signed=True)
    -3600000
    """
    milliseconds = _milliseconds(value)
    shown = repr(value) if isinstance(value, str) else str(value)
    if not signed and (milliseconds < 0 or (milliseconds == 0 and not zero)):
        kind = "negative" if milliseconds < 0 else "zero"
        raise InvalidDurationError(f"{shown} is {kind}.", why="A span of time is longer than nothing here.", fix=_FIX)
    if abs(milliseconds) > LONGEST_MS:
        raise InvalidDurationError(f"{shown} is longer than a hundred years.", fix=_FIX)
    return milliseconds


def format_duration(milliseconds: int) -> str:
    """The shortest text that `parse_duration` reads back as this many milliseconds.

    >>> format_duration(5_400_000), format_duration(0), format_duration(-1)
    ('1h30m', '0s', '-1ms')
    """
    if milliseconds < 0:
        return f"-{format_duration(-milliseconds)}"
    parts = []
    for unit, size in _UNITS.items():
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _milliseconds(value: object) -> int:
    if isinstance(value, timedelta):
        whole, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise InvalidDurationError(
                f"{value} is finer than a millisecond.", why="Event time has milliseconds.", fix=_FIX
            )
        return whole
    if isinstance(value, (int, float)):
        raise InvalidDurationError(f"{value!r} is a bare number.", why="A duration needs a unit.", fix=_FIX)
    if not isinstance(value, str):
        raise InvalidDurationError(f"{value!r} is not a duration.", fix=_FIX)
    text = value.strip().lower()
    sign = -1 if text.startswith("-") else 1
    found = _TEXT.fullmatch(text.removeprefix("-").lstrip())
    if not text or found is None or not any(found.groups()):
        raise InvalidDurationError(f"{value!r} is not a duration.", fix=_FIX)
    return sign * sum(int(count) * _UNITS[unit] for unit, count in found.groupdict().items() if count)
