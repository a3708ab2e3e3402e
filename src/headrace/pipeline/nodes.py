"""The plan: what a pipeline is once declared. Plain frozen data; the engine lowers it, `explain` draws it.

A step has inputs, and may have named side outputs. Stateful steps have a name, which is the identity of their state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.errors import Location
from headrace.pipeline.contracts import Contract
from headrace.pipeline.location import UNKNOWN
from headrace.pipeline.schema import Schema
from headrace.pipeline.sink import Sink
from headrace.pipeline.trigger_nodes import Trigger
from headrace.pipeline.watermarks import Watermark
from headrace.pipeline.windows import ResultTime, Windowing


class Side(StrEnum):
    """The side outputs: where a row goes that is not a result."""

    LATE = "late"
    DUPLICATES = "duplicates"
    QUARANTINED = "quarantined"
    DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True, eq=False)
class Node:
    """One step of a plan."""

    location: Location = field(default=UNKNOWN, kw_only=True)


@dataclass(frozen=True, eq=False)
class Read(Node):
    """A topic as a stream of rows: JSON payloads of one schema, or payloads under a contract of the registry."""

    topic: str
    schema: Schema
    """Without columns while nobody knows them: those of a contract that only the registry has."""
    contract: Contract | None = None
    max_bytes: int | None = None
    """Payloads that are larger become dead letters, without being parsed."""


@dataclass(frozen=True, eq=False)
class EventTime(Node):
    """Which column is the event's own time, and how far out of order or ahead of the clock it may be."""

    input: Node
    column: str
    watermark: Watermark
    max_skew_ms: int | None
    close_idle_ms: int | None = None

    @property
    def out_of_order_ms(self) -> int:
        """How far behind the latest event one may be, at most, without being late."""
        return self.watermark.tolerance_ms


@dataclass(frozen=True, eq=False)
class KeyBy(Node):
    """The columns that partition the stream: state is per key, order holds per key."""

    input: Node
    columns: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Dedupe(Node):
    """Only the first event of an id passes, within a span of event time."""

    input: Node
    name: str
    columns: tuple[str, ...]
    within_ms: int


@dataclass(frozen=True)
class WindowAggregate:
    """`last("1m").sum("amount")`: a function over the rows of (t - window, t]."""

    function: str  # count, sum, avg, min, max, stddev, approx_count_distinct
    column: str | None
    window_ms: int


@dataclass(frozen=True)
class Latest:
    """`latest("lat", "lon", back=1)`: columns of the n-th previous event by event time, within a span."""

    columns: tuple[str, ...]
    back: int
    within_ms: int | None


@dataclass(frozen=True, eq=False)
class Rolling(Node):
    """Per event: aggregates over the event-time window that ends at it, of what has arrived."""

    input: Node
    name: str
    aggregates: tuple[tuple[str, WindowAggregate | Latest], ...]


class Panes(StrEnum):
    """What a result says if its window had one before."""

    ACCUMULATING = "accumulating"  # all of the window so far, in place of the earlier result
    DISCARDING = "discarding"  # only what has come since the earlier result
    RETRACTING = "retracting"  # all of the window so far, and the earlier result taken back


class LateRows(StrEnum):
    """What becomes of a row that comes later than the allowed lateness."""

    SIDE = "side"
    DROP = "drop"


@dataclass(frozen=True, eq=False)
class Window(Node):
    """Per key and window: Spark's aggregates, with a result whenever the trigger fires.

    An aggregate is a Spark Column or SQL text. Without a key before it, the windows are those of the whole stream.
    """

    input: Node
    name: str
    windowing: Windowing
    aggregates: tuple[tuple[str, Any], ...]
    trigger: Trigger
    allowed_lateness_ms: int
    panes: Panes
    late: LateRows
    result_time: ResultTime


@dataclass(frozen=True, eq=False)
class Where(Node):
    """Rows for which the condition holds. `condition` is a Spark Column or a SQL string."""

    input: Node
    condition: Any


@dataclass(frozen=True, eq=False)
class Select(Node):
    """Named columns only; each a name, or (name, Column)."""

    input: Node
    columns: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False)
class WithColumn(Node):
    """One more column, or another value for a column."""

    input: Node
    name: str
    value: Any


@dataclass(frozen=True, eq=False)
class Apply(Node):
    """A function from DataFrame to DataFrame, for what a pipeline does not express. Stateless."""

    input: Node
    function: Callable[[Any], Any]
    schema: Schema | None


@dataclass(frozen=True, eq=False)
class SideOutput(Node):
    """The late, duplicate, quarantined or dead-letter rows met on the way to `input`, as a stream."""

    input: Node
    side: Side


@dataclass(frozen=True, eq=False)
class Write(Node):
    """A stream into a topic."""

    input: Node
    topic: str
    key: tuple[str, ...] | None
    contract: Contract | None = None
    delivery: str | None = None
    """A `Delivery` by its name; None for the default of the mode that runs."""


@dataclass(frozen=True, eq=False)
class SinkWrite(Node):
    """A stream into a store, by a query of its own."""

    input: Node
    sink: Sink
