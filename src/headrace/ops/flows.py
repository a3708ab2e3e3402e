"""How fast topics grow, and how long a record that nobody has read has been waiting: from their ends over time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque

from headrace.ops.history import BRIEF, Series

RATE_SECONDS = 5.0
MINUTE_SECONDS = 60.0
_MOST_LOOKS = 240


class PartitionFlow:
    """One partition: its end at each look, thinned out with age."""

    __slots__ = ("_ends", "_first", "_times", "lag")

    def __init__(self) -> None:
        self._first = 0.0
        # Arrays: there are thousands of partitions, and lists of numbers take four times as much.
        self._times = array("d")
        self._ends = array("q")
        self.lag = Series(BRIEF)

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self._ends[-1] if self._ends else 0

    @property
    def first(self) -> float:
        """When it was first looked at."""
        return self._first

    def note(self, now: float, end: int) -> None:
        """The end at a time. Looks at which nothing had changed are kept as first and last only."""
        if len(self._ends) >= 2 and self._ends[-1] == end == self._ends[-2]:
            self._times[-1] = now
            return
        if not self._times:
            self._first = now
        self._times.append(now)
        self._ends.append(end)
        if len(self._times) > _MOST_LOOKS:
            # Every other one of the older half goes: recent times stay exact, the reach stays long.
            half = _MOST_LOOKS // 2
            self._times = self._times[:half:2] + self._times[half:]
            self._ends = self._ends[:half:2] + self._ends[half:]

    def per_second(self, now: float, seconds: float) -> float:
        """How fast it has grown in the last seconds, or since the first look if that is less."""
        span = min(seconds, now - self._first)
        return (self._ends[-1] - self.end_at(now - span)) / span if span > 0 else 0.0

    def end_at(self, at: float) -> float:
        """The end at a time, between two looks in proportion."""
        if not self._times:
            return 0.0
        place = bisect_right(self._times, at)
        if place == 0:
            return float(self._ends[0])
        if place == len(self._times):
            return float(self._ends[-1])
        before, after = self._times[place - 1], self._times[place]
        share = (at - before) / (after - before) if after > before else 1.0
        return self._ends[place - 1] + share * (self._ends[place] - self._ends[place - 1])

    def reached(self, offset: int) -> float | None:
        """When the record with that offset came; None if that was before the first look."""
        place = bisect_right(self._ends, offset)
        if place == 0:
            return None
        if place == len(self._ends):
            return self._times[-1]
        low, high = self._ends[place - 1], self._ends[place]
        # The record is the first after `offset` records: the moment at which the end passed it.
        share = (offset - low) / (high - low) if high > low else 0.0
        return self._times[place - 1] + share * (self._times[place] - self._times[place - 1])


class TopicFlow:
    """A topic: the sum of its partitions."""

    def __init__(self) -> None:
        self.partitions: dict[int, PartitionFlow] = {}
        self.first_seen: float | None = None
        self.last_growth: float | None = None
        self.counted = 0.0
        """Records that came since the first look."""
        self._totals: deque[tuple[float, float]] = deque()

    def note(self, now: float, ends: dict[int, int], density: float) -> None:
        """The ends at a time; `density` is how many records there are for each offset."""
        grown = 0
        for number, end in ends.items():
            flow = self.partitions.get(number)
            if flow is None:
                flow = self.partitions[number] = PartitionFlow()
            elif end > flow.end:
                grown += end - flow.end
            flow.note(now, end)
        if self.first_seen is None:
            self.first_seen = self.last_growth = now
        if grown:
            self.last_growth = now
        self.counted += grown * density
        self._totals.append((now, self.counted))
        while self._totals[0][0] < now - MINUTE_SECONDS - 2:
            self._totals.popleft()

    @property
    def end(self) -> int:
        """The ends of all partitions together."""
        return sum(flow.end for flow in self.partitions.values())

    def recent(self, seconds: float) -> tuple[float, float]:
        """Records that came in the last seconds, and in how many: less if the first look is not so long ago.

        Between two looks they came in proportion. Else a span that ends at a look would be a little short, and a
        topic that starts or stops would seem to do so at another rate than it did.
        """
        if len(self._totals) < 2:
            return 0.0, 0.0
        now, total = self._totals[-1]
        since = max(now - seconds, self._totals[0][0])
        earlier = self._totals[0]
        for look in self._totals:
            if look[0] > since:
                share = (since - earlier[0]) / (look[0] - earlier[0])
                return total - earlier[1] - share * (look[1] - earlier[1]), now - since
            earlier = look
        return 0.0, 0.0

    def rate(self, seconds: float = RATE_SECONDS) -> float | None:
        """Records per second of late; None before the second look."""
        records, span = self.recent(seconds)
        return records / span if span > 0 else None
