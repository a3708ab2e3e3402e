"""Small summaries of large streams: quantiles of latencies, and the most frequent keys."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import NamedTuple

_GROWTH = math.log(1.01)


class LatencyWindow:
    """Quantiles of the latencies of the last seconds, right to one percent.

    >>> window = LatencyWindow(seconds=30)
    >>> for value in range(1, 101):
    ...     window.add(1000.0, float(value))
    >>> [round(window.quantile(share)) for share in (0.5, 0.99)]
    [50, 99]
    """

    def __init__(self, seconds: int = 30) -> None:
        self._seconds = seconds
        self._parts: deque[tuple[int, Counter[int]]] = deque()
        self._sum: Counter[int] = Counter()
        self.count = 0

    def add(self, at: float, milliseconds: float) -> None:
        """A latency that was seen at a time; times do not go back."""
        second = int(at)
        if not self._parts or self._parts[-1][0] < second:
            self._parts.append((second, Counter()))
        bucket = 0 if milliseconds <= 0.1 else 1 + int(math.log(milliseconds / 0.1) / _GROWTH)
        self._parts[-1][1][bucket] += 1
        self._sum[bucket] += 1
        self.count += 1

    def forget(self, now: float) -> None:
        """Drop what is too old."""
        while self._parts and self._parts[0][0] <= now - self._seconds:
            _, old = self._parts.popleft()
            self._sum.subtract(old)
            self.count -= old.total()
            self._sum = +self._sum

    def quantile(self, share: float) -> float | None:
        """The latency in milliseconds that `share` of all do not pass, by nearest rank; None if there are none."""
        if self.count == 0:
            return None
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self._sum):
            rank -= self._sum[bucket]
            if rank <= 0:
                # The middle of the bucket, so that the error goes both ways.
                return 0.0 if bucket == 0 else 0.1 * math.exp((bucket - 0.5) * _GROWTH)
        return None


class HotKey(NamedTuple):
    """A frequent key: at least `seen - error` and at most `seen` of all that came by."""

    key: str
    seen: float
    error: float


class HotKeys:
    """The most frequent keys of a stream in fixed memory (the space-saving algorithm), the recent ones weighing more.

    >>> keys = HotKeys(capacity=2)
    >>> for key in ("a", "a", "b", "a"):
    ...     keys.add(key)
    >>> keys.top(1)[0].key, round(keys.share("a"), 2)
    ('a', 0.75)
    """

    def __init__(self, capacity: int = 200) -> None:
        self._capacity = capacity
        self._counts: dict[str, list[float]] = {}
        self.total = 0.0

    def add(self, key: str) -> None:
        """One more occurrence."""
        self.total += 1
        known = self._counts.get(key)
        if known is not None:
            known[0] += 1
        elif len(self._counts) < self._capacity:
            self._counts[key] = [1.0, 0.0]
        else:
            # The newcomer takes the place of the rarest, and may have been as frequent: that is its error.
            rarest = min(self._counts, key=lambda k: self._counts[k][0])
            count, _ = self._counts.pop(rarest)
            self._counts[key] = [count + 1, count]

    def fade(self, factor: float) -> None:
        """Let all counts weigh less from here on."""
        self.total *= factor
        for known in self._counts.values():
            known[0] *= factor
            known[1] *= factor

    def top(self, most: int = 10) -> list[HotKey]:
        """The most frequent, with what is certain about them; keys that may be there by chance alone are left out."""
        ranked = sorted(self._counts.items(), key=lambda item: -item[1][0])
        return [HotKey(key, count, error) for key, (count, error) in ranked[:most] if count > 2 * error]

    def share(self, key: str) -> float:
        """The share of all that a key has, at least."""
        count, error = self._counts.get(key, (0.0, 0.0))
        return (count - error) / self.total if self.total else 0.0
