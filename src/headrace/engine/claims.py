"""Watermark strategies at work: from what was seen of each partition to a claim about event time.

Pure computation: `timekeeper` feeds it and writes its claims to the log, where they become part of the input. A claim
depends on the clock and on how batches fell; that it is written once makes a repeated batch see the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from headrace.pipeline.nodes import EventTime
from headrace.pipeline.watermarks import Adaptive, Perfect, PerPartition

END_OF_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_REMEMBERED_BATCHES = 20


class Claims:
    """What can be claimed about event time, for one query.

    >>> import headrace as hr
    >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
    >>> timed = clicks.event_time("at", watermark=hr.per_partition(out_of_order="10s", idle="1m"))
    >>> claims = Claims(timed.node, partitions=[0, 1])
    >>> claims.observe({0: 100_000, 1: 40_000}, now_ms=0)
    >>> claims.next(now_ms=0)
    30000
    """

    def __init__(self, time: EventTime, partitions: Iterable[int], now_ms: int = 0) -> None:
        self._strategy = time.watermark
        self._bound = time.out_of_order_ms
        self._close_idle_ms = time.close_idle_ms
        self._latest: dict[int, int] = {}
        self._active = dict.fromkeys(partitions, now_ms)
        self._spreads: deque[int] = deque(maxlen=_REMEMBERED_BATCHES)
        self._last: int | None = None

    def observe(self, latest: Mapping[int, int], *, now_ms: int, spread_ms: int | None = None) -> None:
        """Take in a batch: the latest event time of each partition that had events, and how far they came apart."""
        for partition, time in latest.items():
            self._latest[partition] = max(time, self._latest.get(partition, time))
            self._active[partition] = now_ms
        if spread_ms is not None:
            self._spreads.append(spread_ms)

    def next(self, *, now_ms: int, ended: Collection[int] = (), over: bool = False) -> int | None:
        """The next claim, if it goes beyond the last one.

        `ended` are partitions that have been read to their end for good; `over` says that all input has been read.
        """
        claim = self._claim(now_ms, ended, over)
        if claim is None or (self._last is not None and claim <= self._last):
            return None
        self._last = claim
        return claim

    @property
    def last(self) -> int | None:
        """The last claim."""
        return self._last

    def _claim(self, now_ms: int, ended: Collection[int], over: bool) -> int | None:
        if isinstance(self._strategy, Perfect):
            return END_OF_TIME_MS if over else None
        if not self._latest:
            return None
        claim: int | None
        if isinstance(self._strategy, PerPartition):
            claim = self._slowest(now_ms, self._strategy, ended)
        else:
            claim = max(self._latest.values()) - self._span()
        silent = now_ms - max(self._active.values())
        if self._close_idle_ms is not None and silent >= self._close_idle_ms:
            # The source is silent: event time goes on with the clock, so that its last windows close in their time.
            claim = max(claim or 0, max(self._latest.values()) - self._span() + silent)
        return claim

    def _span(self) -> int:
        if not isinstance(self._strategy, Adaptive):
            return self._bound
        spread = max(self._spreads, default=self._strategy.ceiling_ms)
        return min(max(spread, self._strategy.floor_ms), self._strategy.ceiling_ms)

    def _slowest(self, now_ms: int, strategy: PerPartition, ended: Collection[int]) -> int | None:
        live = [p for p, at in self._active.items() if p not in ended and now_ms - at < strategy.idle_ms]
        if any(p not in self._latest for p in live):
            return None  # one that has shown nothing yet may have anything
        if not live:
            return max(self._latest.values()) - self._bound
        return min(self._latest[p] for p in live) - self._bound
