"""The record of a declaration: its nodes in the order in which they were written, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

from headrace.errors import Location, PipelineError, closest
from headrace.pipeline.columns import called_function
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    Latest,
    Node,
    Read,
    Rolling,
    Select,
    Side,
    SideOutput,
    SinkWrite,
    Window,
    WindowAggregate,
    WithColumn,
    Write,
)
from headrace.pipeline.rolling import output_type
from headrace.pipeline.schema import Column, Schema
from headrace.pipeline.windows import PANE_COLUMNS, WINDOW_COLUMNS

NodeT = TypeVar("NodeT", bound=Node)

Stateful = Dedupe | Rolling | Window

# Of other aggregates only Spark knows the type.
_COUNTS = frozenset({"count", "count_if", "approx_count_distinct"})

# Nodes never change, so neither do their columns.
_schemas: WeakKeyDictionary[Node, Schema | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a declaration, before it is known to whom it is told."""

    kind: type[PipelineError]
    what: str
    location: Location
    why: str | None = None
    fix: str | None = None

    @classmethod
    def of(cls, error: PipelineError, location: Location, prefix: str = "") -> Problem:
        """The problem that an error describes; an error that knows its own place keeps it."""
        return cls(type(error), prefix + error.what, error.location or location, error.why, error.fix)

    def error(self, pipeline: str) -> PipelineError:
        """The same as an error of that pipeline."""
        return self.kind(self.what, why=self.why, fix=self.fix, location=self.location, pipeline=pipeline)


@dataclass(eq=False)
class Plan:
    """What has been declared so far. Streams write into it; nothing is ever taken out."""

    name: str
    location: Location
    nodes: list[Node] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, node: NodeT) -> NodeT:
        """Record a step. A side output is recorded with the first step on it: to look at `.late` declares nothing."""
        source = input_of(node)
        if isinstance(source, SideOutput) and source not in self.nodes:
            self.nodes.append(source)
        added = cast(NodeT, _spelled(node))
        self.nodes.append(added)
        schema_of(added)  # now, while that of its input is at hand: no chain of steps is too long
        return added

    def side_output(self, node: Node, side: Side, location: Location) -> SideOutput:
        """The side output of a node: one node per side, however often it is asked for."""
        for found in self.all(SideOutput):
            if found.input is node and found.side is side:
                return found
        return SideOutput(node, side, location=location)

    def report(self, problem: Problem) -> None:
        """Record what a step can't carry itself: a duration, schema or name that can't be read. What several steps
        are given, as a trigger may be, is reported once.
        """
        if problem not in self.problems:
            self.problems.append(problem)

    def all(self, kind: type[NodeT]) -> tuple[NodeT, ...]:
        """The nodes of one kind, in the order in which they were written."""
        return tuple(node for node in self.nodes if isinstance(node, kind))

    def rebuilt(self, changed: Callable[[Node], Node]) -> Plan:
        """A plan of the same steps, each as `changed` makes it of the one here."""
        copy = Plan(self.name, self.location, problems=list(self.problems))
        made: dict[Node, Node] = {}
        for node in self.nodes:
            source = input_of(node)
            # The type checker can't know that a node with an input has a field of that name.
            moved = node if source is None else replace(node, input=made[source])  # type: ignore[call-arg]
            made[node] = changed(_spelled(moved))  # it may be known only now which columns there are
            copy.nodes.append(made[node])
            schema_of(made[node])
        return copy

    @property
    def stateful(self) -> tuple[Stateful, ...]:
        """The steps that keep state."""
        return tuple(node for node in self.nodes if isinstance(node, Stateful))


def input_of(node: Node) -> Node | None:
    """The node that feeds this one; None for a read."""
    found = getattr(node, "input", None)
    return found if isinstance(found, Node) else None


def upstream(node: Node) -> Iterator[Node]:
    """What a node's rows have come through, nearest first, without the node itself."""
    current = input_of(node)
    while current is not None:
        yield current
        current = input_of(current)


def nearest(node: Node, kind: type[NodeT]) -> NodeT | None:
    """The nearest node of a kind that this one's rows have come through."""
    return next((found for found in upstream(node) if isinstance(found, kind)), None)


def method_of(node: Node) -> str:
    """The method with which a user declares such a node.

    >>> method_of(WithColumn(Node(), "hour", "hour(at)"))
    'with_column'
    """
    if isinstance(node, SideOutput):
        return str(node.side)
    if isinstance(node, SinkWrite):
        return "write"
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", type(node).__name__).lower()


def label(node: Node) -> str:
    """A node as messages name it.

    >>> label(WithColumn(Node(), "hour", "hour(at)"))
    '.with_column(...)'
    """
    if isinstance(node, Stateful):
        return f"step `{node.name}`"
    return f".{method_of(node)}" if isinstance(node, SideOutput) else f".{method_of(node)}(...)"


def schema_of(node: Node) -> Schema | None:
    """The columns that rows have after a node; None if they are not known before it runs."""
    if node not in _schemas:
        _schemas[node] = _schema(node)
    return _schemas[node]


def _spelled(node: Node) -> Node:
    """The node with the columns that it names as its input writes them.

    Names are found in any case, as in Spark. From here on there is one spelling: the engine looks columns up by it.
    """
    source = input_of(node)
    schema = None if source is None else schema_of(source)
    if schema is None:
        return node
    match node:
        case EventTime():
            return replace(node, column=schema.spelled(node.column))
        case KeyBy() | Dedupe():
            return replace(node, columns=tuple(map(schema.spelled, node.columns)))
        case Rolling():
            return replace(node, aggregates=tuple((name, _respelled(a, schema)) for name, a in node.aggregates))
        case Select():
            kept = ((schema.spelled(name) if value is None else name, value) for name, value in node.columns)
            return replace(node, columns=tuple(kept))
        case WithColumn():
            return replace(node, name=schema.spelled(node.name))
        case Write() if node.key is not None:
            return replace(node, key=tuple(map(schema.spelled, node.key)))
        case SinkWrite() if (key := tuple(map(schema.spelled, node.sink.key))) != node.sink.key:
            return replace(node, sink=replace(node.sink, key=key))
    return node


def _respelled(aggregate: WindowAggregate | Latest, schema: Schema) -> WindowAggregate | Latest:
    if isinstance(aggregate, Latest):
        return replace(aggregate, columns=tuple(map(schema.spelled, aggregate.columns)))
    return aggregate if aggregate.column is None else replace(aggregate, column=schema.spelled(aggregate.column))


def _schema(node: Node) -> Schema | None:
    match node:
        case Read():
            # A schema that could not be read leaves a Read without columns: its problem is reported already.
            return node.schema if node.schema.columns else None
        case Apply():
            return node.schema
        case SideOutput():
            return _side_schema(node)
        case Window():
            return Schema((*firing_schema(node).columns, *PANE_COLUMNS))
    source = input_of(node)
    schema = None if source is None else schema_of(source)
    if schema is None:
        return None
    match node:
        case Rolling():
            outputs = [Column(name, output_type(aggregate, schema)) for name, aggregate in node.aggregates]
            for output in outputs:
                schema = schema.with_column(output)
            return schema
        case WithColumn():
            return schema.with_column(Column(node.name, None))
        case Select():
            return _distinct([_selected(name, value, schema) for name, value in node.columns])
    return schema


def firing_schema(node: Window) -> Schema:
    """The columns that a window has before it fires, which its trigger may look at: its key, bounds and aggregates."""
    key, schema = nearest(node, KeyBy), schema_of(node.input)
    columns = () if key is None else key.columns
    keys = [Column(name, None) if schema is None else _selected(name, None, schema) for name in columns]
    types = [(name, "bigint" if called_function(value) in _COUNTS else None) for name, value in node.aggregates]
    return _distinct([*keys, *WINDOW_COLUMNS, *(Column(name, type) for name, type in types)])


def default_topic(pipeline: str, side: Side) -> str:
    """Where the rows of a side go that the user does not write. Duplicates are dropped then.

    >>> default_topic("clicks", Side.DEAD_LETTERS)
    'clicks.dead-letters'
    """
    return f"{pipeline}.{side.replace('_', '-')}"


def _distinct(columns: list[Column]) -> Schema:
    """One column per name: that one is taken twice is reported where it is."""
    return Schema(tuple({column.name.lower(): column for column in columns}.values()))


def _selected(name: str, value: object, schema: Schema) -> Column:
    if value is None and name in schema:
        return schema.column(name)
    if value is None:
        # A slip is reported once, where it is; what follows is checked against what was most likely meant.
        meant = closest(name, schema.names)
        return Column(name, None) if meant is None else schema.column(meant)
    return Column(name, None)


def _side_schema(node: SideOutput) -> Schema | None:
    if node.side is Side.DEAD_LETTERS:
        return None  # bytes that did not parse have no columns
    path = list(upstream(node))
    if node.side is Side.QUARANTINED:
        return schema_of(path[-1])
    stateful = [step for step in path if isinstance(step, Stateful)]
    # Late rows and duplicates leave as they came into the first step with state.
    return schema_of(stateful[-1].input if stateful else node.input)
