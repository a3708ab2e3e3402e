"""How long to go on trying: a broker that is away for a minute is no reason to end a job that runs for months."""

from __future__ import annotations

import time
from collections.abc import Callable

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 30.0


class Retries:
    """For each query, the pause before its next attempt: longer each time, until one succeeds or the patience ends.

    >>> now = [0.0]
    >>> retries = Retries(10, clock=lambda: now[0])
    >>> retries.pause("q"), retries.pause("q"), retries.pause("q")
    (1.0, 2.0, 4.0)
    >>> now[0] = 11.0
    >>> retries.pause("q") is None
    True
    """

    def __init__(self, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience_seconds
        self._clock = clock
        self._failing: dict[str, tuple[float, int]] = {}

    def pause(self, query: str) -> float | None:
        """The query failed: seconds to wait, or None if it has failed for too long."""
        since, attempts = self._failing.get(query, (self._clock(), 0))
        if self._patience <= 0 or self._clock() - since > self._patience:
            return None
        self._failing[query] = since, attempts + 1
        return min(_FIRST_SECONDS * 2.0**attempts, _LONGEST_SECONDS)

    def succeeded(self, query: str) -> None:
        """The query finished a batch: the next failure is the first again."""
        self._failing.pop(query, None)
