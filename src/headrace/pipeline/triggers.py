"""Triggers: when a window gives a result. They are Beam's, with the same meaning."""

from __future__ import annotations

from typing import Any

from headrace.pipeline.arguments import Reading
from headrace.pipeline.columns import is_column
from headrace.pipeline.durations import Duration
from headrace.pipeline.trigger_nodes import (
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    AnyOf,
    Repeat,
    Trigger,
    When,
)

__all__ = [
    "Trigger",
    "after_count",
    "after_each",
    "after_processing_time",
    "after_watermark",
    "all_of",
    "any_of",
    "default_trigger",
    "each",
    "every",
    "repeat",
    "when",
]


def after_watermark(early: Trigger | None = None, late: Trigger | None = None) -> AfterWatermark:
    """When the watermark passes the end of the window: the result on time.

    `early` says when there are results before that, `late` when after it, of late events within the allowed lateness;
    both are repeated. Without `late` the result on time is the last one: it finishes, and late events are refused.

    >>> print(after_watermark(early=every("5s"), late=each()))
    after_watermark(early=every(5s), late=each())
    """
    reading = Reading("after_watermark")
    before = None if early is None else _repeated(_trigger(reading, early, "early"))
    after = None if late is None else _repeated(_trigger(reading, late, "late"))
    return AfterWatermark(before, after, problems=reading.problems)


def after_processing_time(delay: Duration) -> AfterProcessingTime:
    """Once, a while by the clock after the first event of the window came (or the first since the last result).

    >>> after_processing_time("10s")
    AfterProcessingTime(delay_ms=10000)
    """
    reading = Reading("after_processing_time")
    return AfterProcessingTime(reading.duration(delay), problems=reading.problems)


def every(duration: Duration) -> Repeat:
    """Again and again, a while by the clock after the first event since the last result; never without new events.

    >>> every("5s")
    Repeat(of=AfterProcessingTime(delay_ms=5000))
    """
    reading = Reading("every")
    return Repeat(AfterProcessingTime(reading.duration(duration)), problems=reading.problems)


def after_count(n: int) -> AfterCount:
    """Once, when the window has n events.

    >>> after_count(100)
    AfterCount(n=100)
    """
    reading = Reading("after_count")
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        reading.refuse(
            f"after_count({n!r}) is not possible.", "It counts events.", "pass a whole number from 1 upwards."
        )
        n = 1
    return AfterCount(n, problems=reading.problems)


def each() -> Repeat:
    """With each event: the same as `repeat(after_count(1))`.

    >>> each()
    Repeat(of=AfterCount(n=1))
    """
    return Repeat(AfterCount(1))


def repeat(trigger: Trigger) -> Repeat:
    """Again and again: when the trigger finishes, it starts anew.

    >>> print(repeat(after_count(100)))
    repeat(after_count(100))
    """
    reading = Reading("repeat")
    return Repeat(_trigger(reading, trigger), problems=reading.problems)


def any_of(*triggers: Trigger) -> AnyOf:
    """Whenever one of them fires. It finishes with the first that does.

    >>> print(repeat(any_of(after_count(100), after_processing_time("5s"))))
    repeat(any_of(after_count(100), after_processing_time(5s)))
    """
    reading = Reading("any_of")
    return AnyOf(_triggers(reading, triggers, "any_of"), problems=reading.problems)


def all_of(*triggers: Trigger) -> AllOf:
    """When all of them have fired.

    >>> print(all_of(after_count(100), after_processing_time("5s")))
    all_of(after_count(100), after_processing_time(5s))
    """
    reading = Reading("all_of")
    return AllOf(_triggers(reading, triggers, "all_of"), problems=reading.problems)


def after_each(*triggers: Trigger) -> AfterEach:
    """One after the other: the first until it finishes, then the next.

    >>> print(after_each(after_count(1), every("1m")))
    after_each(after_count(1), every(1m))
    """
    reading = Reading("after_each")
    return AfterEach(_triggers(reading, triggers, "after_each"), problems=reading.problems)


def when(condition: Any) -> When:
    """When a condition on the result so far becomes true, as when a value crosses a threshold.

    The condition is a Spark Column or SQL text over the key, the bounds of the window and the aggregates. It fires
    once; `repeat(when(...))` fires again each time that the condition becomes true after it was not.

    >>> print(when("total > 10000"))
    when(total > 10000)
    """
    reading = Reading("when")
    if not is_column(condition) and not (isinstance(condition, str) and condition.strip()):
        decided = isinstance(condition, bool)
        reading.refuse(
            f"when(...) takes a Spark Column or SQL text, not {condition!r}.",
            "Python has decided it already, before any row was seen." if decided else None,
            'pass a condition on the aggregates, like F.col("total") > 100 or "total > 100".',
        )
        condition = "true"
    return When(condition, problems=reading.problems)


def default_trigger() -> Repeat:
    """What a window has unless it is told: a result when the watermark passes its end, and one with each late event.

    >>> print(default_trigger())
    repeat(after_watermark(late=each()))
    """
    return Repeat(AfterWatermark(None, each()))


def _repeated(trigger: Trigger) -> Repeat:
    return trigger if isinstance(trigger, Repeat) else Repeat(trigger)


def _triggers(reading: Reading, values: tuple[object, ...], function: str) -> tuple[Trigger, ...]:
    if not values:
        reading.refuse(
            f"{function}() has no triggers.", None, f'name some, like {function}(hr.after_count(100), hr.every("5s")).'
        )
        return (AfterCount(1),)
    return tuple(_trigger(reading, value) for value in values)


def _trigger(reading: Reading, value: object, name: str | None = None) -> Trigger:
    fix = 'pass one, like hr.every("5s"), hr.after_count(100) or hr.each().'
    return reading.argument(value, Trigger, AfterCount(1), "a trigger", fix, name)
