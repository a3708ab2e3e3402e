"""Numbers over time in a fixed amount of memory: the newest second by second, the older in coarser steps."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

NOTHING = math.nan


class Ring:
    """The last `size` steps of `seconds` each; a step holds the mean of what came in it.

    >>> ring = Ring(seconds=10, size=3)
    >>> for at, value in ((0, 1.0), (5, 3.0), (12, 5.0)):
    ...     ring.add(at, value)
    >>> ring.points(now=19, span=20)
    [(0, 2.0), (10, 5.0)]
    """

    __slots__ = ("_counts", "_newest", "_values", "seconds", "size")

    def __init__(self, seconds: int, size: int) -> None:
        self.seconds = seconds
        self.size = size
        self._values = array("d", [NOTHING]) * size
        self._counts = array("I", [0]) * size
        self._newest = -1

    def add(self, at: float, value: float | None) -> None:
        """A value at a time; None is a gap."""
        step = int(at // self.seconds)
        if step <= self._newest - self.size:
            return
        # Steps that nothing came in are gaps, not what was there a turn of the ring ago.
        for passed in range(max(self._newest + 1, step - self.size + 1), step + 1):
            self._values[passed % self.size] = NOTHING
            self._counts[passed % self.size] = 0
        self._newest = max(self._newest, step)
        if value is None:
            return
        place = step % self.size
        count = self._counts[place]
        before = self._values[place] if count else 0.0
        self._values[place] = before + (value - before) / (count + 1)
        self._counts[place] = count + 1

    def points(self, now: float, span: float) -> list[tuple[int, float]]:
        """What there is of the last `span` seconds, the oldest first: time and value."""
        last = int(now // self.seconds)
        first = max(last - int(span // self.seconds) + 1, self._newest - self.size + 1, 0)
        found = []
        for step in range(first, min(last, self._newest) + 1):
            value = self._values[step % self.size]
            if not math.isnan(value):
                found.append((step * self.seconds, value))
        return found


@dataclass(frozen=True)
class Resolution:
    """How long a step is, and how many are kept."""

    seconds: int
    size: int


FULL = (Resolution(1, 300), Resolution(10, 360), Resolution(60, 720))
"""Five minutes by the second, an hour by ten seconds, half a day by the minute: 22 kB for each series."""
BRIEF = (Resolution(5, 120),)
"""Ten minutes by five seconds: for what there is thousands of."""


class Series:
    """One number over time, in several resolutions.

    >>> series = Series()
    >>> for second in range(100):
    ...     series.add(second, float(second))
    >>> series.points(now=99, span=60)[0], len(series.points(now=99, span=600))
    ((40, 40.0), 10)
    """

    __slots__ = ("_rings",)

    def __init__(self, resolutions: tuple[Resolution, ...] = FULL) -> None:
        self._rings = tuple(Ring(r.seconds, r.size) for r in resolutions)

    def add(self, at: float, value: float | None) -> None:
        """A value at a time."""
        for ring in self._rings:
            ring.add(at, value)

    def points(self, now: float, span: float) -> list[tuple[int, float]]:
        """The last `span` seconds in the finest resolution that reaches so far back."""
        for ring in self._rings:
            if ring.seconds * ring.size >= span:
                return ring.points(now, span)
        return self._rings[-1].points(now, span)
