"""When the demo begins to measure: what waited for the job is worked off, and its JVM has compiled what it runs.

The latency itself tells: while the JVM compiles, on cores that it shares with the job, decisions take several times as
long. A machine on which it never settles is measured all the same, a little later.
"""

from __future__ import annotations

SETTLED_MS = 50.0  # the p99 of the last seconds: on 2 cores some 20 ms once the code is compiled, 50 to 300 before
LEAST_SECONDS = 10.0
MOST_SECONDS_TO_SETTLE = 45.0
MOST_SECONDS = 90.0
WINDOW_SECONDS = 5


def is_over(elapsed_seconds: float, *, waiting: int, rate: float, recent_p99_ms: float | None) -> bool:
    """Whether to begin; `waiting` transactions have not come out, and `recent_p99_ms` is of the last seconds.

    >>> is_over(12.0, waiting=3, rate=200, recent_p99_ms=18.5)
    True
    >>> is_over(12.0, waiting=3, rate=200, recent_p99_ms=140.0)
    False
    """
    if elapsed_seconds < LEAST_SECONDS:
        return False
    if elapsed_seconds >= MOST_SECONDS:
        return True
    if waiting >= rate * 0.5:  # half a second's worth: more than is ever on its way at once
        return False
    settled = recent_p99_ms is not None and recent_p99_ms < SETTLED_MS
    return settled or elapsed_seconds >= MOST_SECONDS_TO_SETTLE
