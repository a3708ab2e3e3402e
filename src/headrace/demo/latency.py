"""Latencies as a count per tenth of a millisecond: exact enough, and as small after a day as after a minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil


class Latencies:
    """How long things took, and its quantiles by nearest rank.

    >>> taken = Latencies([4.0, 5.0, 100.0])
    >>> taken.quantile(0.5), taken.quantile(0.99)
    (5.0, 100.0)
    """

    def __init__(self, milliseconds: Iterable[float] = ()) -> None:
        self._tenths: Counter[int] = Counter()
        self.count = 0
        for value in milliseconds:
            self.add(value)

    def add(self, milliseconds: float) -> None:
        """One more."""
        self._tenths[round(milliseconds * 10)] += 1
        self.count += 1

    def update(self, other: Latencies) -> None:
        """All of the other's as well."""
        self._tenths.update(other._tenths)
        self.count += other.count

    def quantile(self, share: float) -> float | None:
        """The smallest latency that `share` of all do not pass; None if there are none."""
        rank = max(1, ceil(share * self.count))
        for tenths in sorted(self._tenths):
            rank -= self._tenths[tenths]
            if rank <= 0:
                return tenths / 10
        return None
