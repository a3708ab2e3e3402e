"""How often a record of an output may be there after a crash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from headrace.errors import PipelineError, closest
from headrace.pipeline.nodes import Write
from headrace.pipeline.plan import Problem


class Delivery(StrEnum):
    """What a write may ask for: `stream.write("alerts", delivery="exactly_once")`.

    >>> Delivery("at_least_once").words
    'at least once'
    """

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"

    @property
    def words(self) -> str:
        """As people say it."""
        return self.value.replace("_", " ")


def read_delivery(value: object) -> Delivery | PipelineError | None:
    """What a user wrote as `delivery=`; None is the default of the mode that runs.

    >>> read_delivery("exactly_once"), read_delivery(None)
    (<Delivery.EXACTLY_ONCE: 'exactly_once'>, None)
    >>> print(read_delivery("exactly-once").fix)
    did you mean "exactly_once"? There are: exactly_once, at_least_once, at_most_once
    """
    names = [d.value for d in Delivery]
    if value is None or value in names:
        return None if value is None else Delivery(str(value))
    nearest = closest(str(value), names)
    return PipelineError(
        f".write(..., delivery={value!r}) is no delivery.",
        fix=(f'did you mean "{nearest}"? ' if nearest else "") + f"There are: {', '.join(names)}",
    )


def check_deliveries(writes: Sequence[Write]) -> Iterator[Problem]:
    """A topic has one guarantee: its readers can't tell which write a record came from."""
    first: dict[str, Write] = {}
    for write in writes:
        other = first.setdefault(write.topic, write)
        if other.delivery != write.delivery:
            yield Problem(
                PipelineError,
                f"topic `{write.topic}` is written with two deliveries: {_said(other)} at {other.location}, "
                f"{_said(write)} here.",
                write.location,
                "A reader of the topic can't tell the records apart, so it has the weaker of the two for all of them.",
                "give both writes the same delivery, or write to two topics.",
            )


def _said(write: Write) -> str:
    return "the default" if write.delivery is None else f'"{write.delivery}"'
