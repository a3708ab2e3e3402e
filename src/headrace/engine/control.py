"""Control records: claims about time, as data in a topic of their own.

A record's timestamp is the clock; its value, if it has one, claims that event time has come so far (milliseconds).
Records of partition i go to state partition i. What the clock and the watermark were is thus on the log: a repeated
batch sees the same, and anybody can look it up.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.plan import QueryPlan
from headrace.pipeline.nodes import Window
from headrace.pipeline.watermarks import Bounded


@dataclass(frozen=True)
class Control:
    """Where a query's control records are, and whether they alone move its watermark."""

    topic: str
    claims: bool
    partitions: tuple[int, ...] = ()
    """Those of the data's topic, to be watched; none if somebody else claims."""


def needs_clock(query: QueryPlan) -> bool:
    """Whether a trigger of the query waits for processing time."""
    return any(isinstance(s, Window) and "processing_time" in str(s.trigger.spec()) for s in query.stateful)


def needs_claims(query: QueryPlan) -> bool:
    """Whether the watermark is more than Spark's own: the latest event time less a bound."""
    time = query.event_time
    if not query.stateful or time is None:
        return False
    return not isinstance(time.watermark, Bounded) or time.close_idle_ms is not None


def needs_control(query: QueryPlan) -> bool:
    """Whether the query reads control records at all."""
    return needs_clock(query) or needs_claims(query)


def control_topic(query: QueryPlan, checkpoint: str) -> str:
    """A query's own, for each checkpoint another: what was claimed in one run is nothing to another."""
    return f"headrace.{query.name}.{checkpoint}.control"


def is_control(topic: str) -> bool:
    """Whether a topic has control records."""
    return topic.startswith("headrace.") and topic.endswith(".control")


def claim(event_time_ms: int | None) -> bytes | None:
    """The value of a control record."""
    return None if event_time_ms is None else str(event_time_ms).encode()
