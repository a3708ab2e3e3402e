"""Watermarks: how far event time is taken to have come, and so which events are late and when windows end."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.pipeline.arguments import Argument, Reading
from headrace.pipeline.durations import LONGEST_MS, Duration, format_duration


@dataclass(frozen=True)
class Watermark(Argument):
    """A watermark strategy. Made by `bounded`, `adaptive`, `per_partition`, `perfect`."""

    @property
    def tolerance_ms(self) -> int:
        """How far behind the latest event one may be, at most, without being late."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bounded(Watermark):
    """See `bounded`."""

    out_of_order_ms: int

    @property
    def tolerance_ms(self) -> int:
        """The bound."""
        return self.out_of_order_ms

    def __str__(self) -> str:
        return f"bounded({format_duration(self.out_of_order_ms)})"


@dataclass(frozen=True)
class Adaptive(Watermark):
    """See `adaptive`."""

    quantile: float
    floor_ms: int
    ceiling_ms: int

    @property
    def tolerance_ms(self) -> int:
        """The ceiling."""
        return self.ceiling_ms

    def __str__(self) -> str:
        floor, ceiling = format_duration(self.floor_ms), format_duration(self.ceiling_ms)
        return f"adaptive(quantile={self.quantile:g}, floor={floor}, ceiling={ceiling})"


@dataclass(frozen=True)
class PerPartition(Watermark):
    """See `per_partition`."""

    out_of_order_ms: int
    idle_ms: int

    @property
    def tolerance_ms(self) -> int:
        """The bound within a partition."""
        return self.out_of_order_ms

    def __str__(self) -> str:
        bound, idle = format_duration(self.out_of_order_ms), format_duration(self.idle_ms)
        return f"per_partition(out_of_order={bound}, idle={idle})"


@dataclass(frozen=True)
class Perfect(Watermark):
    """See `perfect`."""

    @property
    def tolerance_ms(self) -> int:
        """Without limit: the longest duration that there is."""
        return LONGEST_MS

    def __str__(self) -> str:
        return "perfect()"


def bounded(out_of_order: Duration) -> Bounded:
    """The latest event time seen, over all partitions, minus a fixed span.

    >>> bounded("30s")
    Bounded(out_of_order_ms=30000)
    """
    reading = Reading("bounded")
    return Bounded(reading.duration(out_of_order, zero=True), problems=reading.problems)


def adaptive(quantile: float = 0.99, floor: Duration = "1s", ceiling: Duration = "10m") -> Adaptive:
    """The latest event time seen minus a span that follows the stream: a quantile of how late events have come lately.

    The span is never below `floor` and never above `ceiling`.

    >>> adaptive(quantile=0.999, ceiling="1h")
    Adaptive(quantile=0.999, floor_ms=1000, ceiling_ms=3600000)
    """
    reading = Reading("adaptive")
    if not isinstance(quantile, int | float) or isinstance(quantile, bool) or not 0 < quantile <= 1:
        reading.refuse(
            f"adaptive(quantile={quantile!r}) is not possible.",
            "It is the share of events that are to be on time.",
            "pass a number above 0 and up to 1, like 0.99.",
        )
        quantile = 1.0
    floor_ms = reading.duration(floor, "floor", zero=True)
    ceiling_ms = reading.duration(ceiling, "ceiling", zero=True)
    if floor_ms > ceiling_ms and not reading.problems:
        reading.refuse(
            f"adaptive(floor={format_duration(floor_ms)}, ceiling={format_duration(ceiling_ms)}): "
            "the floor is above the ceiling.",
            None,
            "swap them.",
        )
    return Adaptive(float(quantile), floor_ms, ceiling_ms, problems=reading.problems)


def per_partition(out_of_order: Duration = "30s", idle: Duration = "1m") -> PerPartition:
    """The slowest partition decides: the least, over the partitions, of the latest event time minus `out_of_order`.

    A partition without events for `idle` (by the clock) is left out until it has some again.

    >>> per_partition(idle="2m")
    PerPartition(out_of_order_ms=30000, idle_ms=120000)
    """
    reading = Reading("per_partition")
    bound = reading.duration(out_of_order, "out_of_order", zero=True)
    return PerPartition(bound, reading.duration(idle, "idle"), problems=reading.problems)


def perfect() -> Perfect:
    """For input that ends: no event is late, and the watermark goes to the end of time when the input has been read.

    >>> perfect()
    Perfect()
    """
    return Perfect()
