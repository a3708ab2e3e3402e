"""From the nodes of a pipeline to the queries that will run. No Spark here: `explain` and all checks need no JVM.

One query serves a keyed operator with everything around it: the read, the steps before, the fused stateful steps, and
all streams that come out of them, each into its own topic. A pipeline with two operators side by side has two queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from headrace.engine.sink_plan import internal_writes
from headrace.errors import UnsupportedStepError
from headrace.pipeline import Pipeline
from headrace.pipeline.columns import referenced_columns
from headrace.pipeline.contracts import Contract
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    LateRows,
    Latest,
    Node,
    Read,
    Rolling,
    Select,
    Side,
    SideOutput,
    Where,
    Window,
    WithColumn,
    Write,
)


class Route(IntEnum):
    """Where a row goes; the same numbers as in Routes.scala."""

    RESULT = 0
    LATE = 1
    DUPLICATE = 2
    QUARANTINED = 3
    DEAD_LETTER = 4
    FILTERED = 5
    CONTROL = 6


ROUTE_OF = {
    Side.LATE: Route.LATE,
    Side.DUPLICATES: Route.DUPLICATE,
    Side.QUARANTINED: Route.QUARANTINED,
    Side.DEAD_LETTERS: Route.DEAD_LETTER,
}

Stateful = (Dedupe, Rolling, Window)


@dataclass(frozen=True)
class Branch:
    """One stream out of a query: rows of a route, through stateless steps, into a topic."""

    route: Route
    steps: tuple[Node, ...]
    topic: str
    key: tuple[str, ...] | None
    write: Write | None
    """None for a default side output, which the user did not write."""

    @property
    def contract(self) -> Contract | None:
        """What its payloads are under; JSON if there is none."""
        return None if self.write is None else self.write.contract


@dataclass(frozen=True)
class QueryPlan:
    """One Spark query."""

    name: str
    read: Read
    before: tuple[Node, ...]
    """Steps from the read to the last stateful step (or apply), in order; stateful ones included."""
    key: tuple[str, ...]
    branches: tuple[Branch, ...]
    takes_side_rows: bool
    """Whether this query sends on the payloads that never became rows; one query per read does."""
    takes_quarantined: bool
    """Whether this query sends on the rows that its event time quarantines; one query per event time does."""

    @property
    def stateful(self) -> tuple[Dedupe | Rolling | Window, ...]:
        """The fused stateful steps."""
        return tuple(s for s in self.before if isinstance(s, Stateful))

    @property
    def window(self) -> Window | None:
        """The window step that the results come from, if they do."""
        return next((s for s in self.stateful if isinstance(s, Window)), None)

    @property
    def results_wait(self) -> bool:
        """Whether the passing of time alone may bring results: of a window, or of what a function of the user keeps."""
        return any(isinstance(s, Window | Apply) for s in self.before)

    @property
    def state_columns(self) -> frozenset[str]:
        """The columns whose values are in the state."""
        return (
            frozenset(self.key).union(*(_columns_of(step) for step in self.stateful)) if self.stateful else frozenset()
        )

    @property
    def event_time(self) -> EventTime | None:
        """The event time in force."""
        return next((s for s in self.before if isinstance(s, EventTime)), None)

    @property
    def step(self) -> str:
        """The name that the ids of this query's results carry."""
        return self.stateful[-1].name if self.stateful else self.name

    @property
    def dead_letter_topic(self) -> str | None:
        """Where rows go that do not fit the contract of their output; None if there is no such output."""
        return next((b.topic for b in self.branches if b.route is Route.DEAD_LETTER), None)

    @property
    def output_topics(self) -> tuple[str, ...]:
        """Every topic that this query may write to."""
        return tuple(dict.fromkeys(b.topic for b in self.branches))


def plan_queries(pipeline: Pipeline, *, sinks_from_topics: bool = False) -> tuple[QueryPlan, ...]:
    """Check the pipeline and split it into queries. Those that feed stores are in `sink_plan`.

    With `sinks_from_topics` every stream into a store comes out as a topic, also one that its sink would read from the
    source: where no store is at hand.

    >>> import headrace as hr
    >>> p = hr.Pipeline("clicks")
    >>> p.read("in", schema="id string").where("id is not null").write("out")
    >>> [q.name for q in plan_queries(p)]
    ['clicks']
    """
    pipeline.check()
    groups: dict[tuple[Read, Node | None], list[Write]] = {}
    side_writes: list[Write] = []
    for write in (*pipeline.writes, *internal_writes(pipeline, always=sinks_from_topics)):
        side = _side(write)
        if side is not None:
            side_writes.append(write)
            continue
        path = _path(write.input)
        groups.setdefault((_read(path), _anchor(path)), []).append(write)
    for write in side_writes:
        # A side output alone still needs its operator to run.
        path = _path(_side_node(write).input)
        anchor = _anchor(path)
        if isinstance(anchor, Stateful) and not any(_on_the_way(anchor, other) for _, other in groups):
            groups[(_read(path), anchor)] = []
    for write in side_writes:
        path = _path(_side_node(write).input)
        if not any(r is path[0] for r, _ in groups):
            groups[(_read(path), _anchor(path))] = []
    return tuple(_queries(pipeline, groups, side_writes))


def _queries(
    pipeline: Pipeline, groups: dict[tuple[Read, Node | None], list[Write]], side_writes: list[Write]
) -> Iterator[QueryPlan]:
    unclaimed = list(side_writes)
    reads = list(dict.fromkeys(read for read, _ in groups))
    single = len(groups) == 1
    for read in reads:
        anchors = [anchor for r, anchor in groups if r is read]
        plain = [a for a in anchors if not _has_apply(a)]
        primary = next((a for a in plain if _times(_steps_to(a))), plain[0] if plain else None)
        taken: set[EventTime] = set()
        # A user's function may drop or change rows, so rows that never became data do not pass through it: if every
        # query has one, they get a query of their own.
        todo: list[tuple[str, tuple[Node, ...], Node | None, bool]] = []
        if not plain:
            before = _until_event_time(_path(anchors[0])) if anchors[0] is not None else ()
            todo.append((f"{pipeline.name}-intake-{read.topic}", before, None, True))
        for anchor in anchors:
            # An operator's query is named after its step, whatever else the pipeline does: it is the name of its state.
            alone = single and plain and not isinstance(anchor, Stateful)
            name = pipeline.name if alone else f"{pipeline.name}-{_label(read, anchor)}"
            todo.append((name, _steps_to(anchor), anchor, bool(plain) and anchor is primary))
        for name, before, anchor, takes in todo:
            time = next((t for t in _times(before) if t not in taken), None)
            if time is not None:
                taken.add(time)
            claimed = [w for w in unclaimed if _belongs(w, read, anchor, takes, time)]
            unclaimed = [w for w in unclaimed if w not in claimed]
            own = not takes or bool(plain)
            yield _query(pipeline, name, read, before, groups[(read, anchor)] if own else [], claimed, takes, time)


def _steps_to(anchor: Node | None) -> tuple[Node, ...]:
    return () if anchor is None else tuple(_path(anchor)[1:])


def _times(before: tuple[Node, ...]) -> list[EventTime]:
    """The event time that quarantines rows which then reach the end of these steps: none that an apply comes after."""
    applied = max((i for i, s in enumerate(before) if isinstance(s, Apply)), default=-1)
    return [s for i, s in enumerate(before) if isinstance(s, EventTime) and s.max_skew_ms is not None and i > applied]


def _query(
    pipeline: Pipeline,
    name: str,
    read: Read,
    before: tuple[Node, ...],
    writes: list[Write],
    side_writes: list[Write],
    takes_side_rows: bool,
    quarantining: EventTime | None,
) -> QueryPlan:
    _check_fusion(pipeline, before)
    branches = []
    for w in writes:
        after = tuple(n for n in _path(w.input)[1:] if n not in before and not isinstance(n, EventTime | KeyBy))
        branches.append(Branch(Route.RESULT, after, w.topic, w.key, w))
    for w in side_writes:
        branches.append(Branch(ROUTE_OF[_side_node(w).side], _after_side(w.input), w.topic, w.key, w))
    stateful = [s for s in before if isinstance(s, Stateful)]
    # A query may find rows without the time or the key that only it needs.
    needy = takes_side_rows or any(isinstance(s, (*Stateful, EventTime)) for s in before)
    # And a row may not fit the contract of its output.
    needy = needy or any(b.contract is not None for b in branches)
    possible = {Route.DEAD_LETTER: "dead-letters"} if needy else {}
    if quarantining is not None:
        possible[Route.QUARANTINED] = "quarantined"
    if any(not isinstance(s, Window) or s.late is LateRows.SIDE for s in stateful):
        possible[Route.LATE] = "late"
    for route, label in possible.items():
        # Nothing vanishes: what the user did not route goes to a topic of the pipeline's own.
        if not any(b.route is route for b in branches):
            branches.append(Branch(route, (), f"{pipeline.name}.{label}", None, None))
    return QueryPlan(name, read, before, _key(before), tuple(branches), takes_side_rows, quarantining is not None)


def _check_fusion(pipeline: Pipeline, before: tuple[Node, ...]) -> None:
    """Steps between fused steps are computed before the operator: what that would change the meaning of is refused."""
    last = max((i for i, s in enumerate(before) if isinstance(s, Stateful)), default=-1)
    results: set[str] = set()
    ids: set[str] = set()
    windowed: str | None = None
    for step in before[: last + 1]:
        problem = None
        if isinstance(step, Where | WithColumn | Select) and results:
            problem = f"`{_METHOD[type(step)]}` between two rolling steps is not supported yet."
        elif isinstance(step, Stateful) and windowed is not None:
            problem = f"step `{step.name}` after the window `{windowed}` is not supported yet."
        elif isinstance(step, Window) and results:
            problem = f"the window `{step.name}` after a rolling step is not supported yet."
        elif isinstance(step, WithColumn) and step.name.lower() in ids:
            problem = f"`{step.name}` is an id of the dedupe before; another value for it here is not supported yet."
        elif isinstance(step, Select) and (lost := ids - {n.lower() for n, value in step.columns if value is None}):
            problem = (
                f"this select drops or changes `{sorted(lost)[0]}`, an id of the dedupe before: not supported yet."
            )
        elif isinstance(step, Stateful) and (used := results & {c.lower() for c in _columns_of(step)}):
            problem = f"step `{step.name}` uses `{sorted(used)[0]}`, a result of the step before: not supported yet."
        if problem is not None:
            raise UnsupportedStepError(
                problem,
                why="Both stateful steps run fused in one operator, on the row as it came in.",
                fix="do it before the first or after the last of them,\n"
                "or write to a topic and read it in a second pipeline.",
                location=step.location,
                pipeline=pipeline.name,
            )
        if isinstance(step, Rolling):
            results.update(name.lower() for name, _ in step.aggregates)
        elif isinstance(step, Window):
            windowed = step.name
        elif isinstance(step, Dedupe):
            ids.update(c.lower() for c in step.columns)


_METHOD: dict[type[Node], str] = {Where: "where", WithColumn: "with_column", Select: "select"}


def _columns_of(step: Dedupe | Rolling | Window) -> set[str]:
    if isinstance(step, Dedupe):
        return set(step.columns)
    used: set[str] = set()
    if isinstance(step, Window):
        return used.union(*(referenced_columns(value) or () for _, value in step.aggregates))
    for _, aggregate in step.aggregates:
        used.update(aggregate.columns if isinstance(aggregate, Latest) else filter(None, (aggregate.column,)))
    return used


def _key(before: tuple[Node, ...]) -> tuple[str, ...]:
    keys = [s.columns for s in before if isinstance(s, KeyBy)]
    if keys:
        return keys[-1]
    if any(isinstance(s, Window) for s in before):
        return ()  # its windows are those of the whole stream
    # A dedupe without a key: the id is the key.
    return next((s.columns for s in before if isinstance(s, Dedupe)), ())


def _path(node: Node) -> list[Node]:
    """From the read to the node, following inputs; a side output counts as its input's place."""
    path = [node]
    while not isinstance(path[-1], Read):
        current = path[-1]
        path.append(current.input)  # type: ignore[attr-defined]
    return path[::-1]


def _after_side(node: Node) -> tuple[Node, ...]:
    steps: list[Node] = []
    while not isinstance(node, SideOutput):
        steps.append(node)
        node = node.input  # type: ignore[attr-defined]
    return tuple(steps[::-1])


def _until_event_time(path: list[Node]) -> tuple[Node, ...]:
    """The steps that decide what is quarantined, as far as they lie before any `.apply`."""
    for i, node in enumerate(path):
        if isinstance(node, Apply):
            return ()
        if isinstance(node, EventTime):
            return tuple(path[1 : i + 1])
    return ()


def _read(path: list[Node]) -> Read:
    read = path[0]
    assert isinstance(read, Read)
    return read


def _anchor(path: list[Node]) -> Node | None:
    """What a query is built around: the last stateful step, function or event time on the way, if any."""
    return next((n for n in reversed(path) if isinstance(n, (*Stateful, Apply, EventTime))), None)


def _on_the_way(step: Node, anchor: Node | None) -> bool:
    """Whether the query of that anchor runs the step too, fused: its side rows come out there."""
    return anchor is not None and step in _path(anchor)


def _has_apply(anchor: Node | None) -> bool:
    return anchor is not None and any(isinstance(n, Apply) for n in _path(anchor))


def _side_node(write: Write) -> SideOutput:
    node = write.input
    while not isinstance(node, SideOutput):
        node = node.input  # type: ignore[attr-defined]
    return node


def _side(write: Write) -> Side | None:
    found = [n for n in _path(write.input) if isinstance(n, SideOutput)]
    return found[-1].side if found else None


def _belongs(
    write: Write, read: Read, anchor: Node | None, takes_side_rows: bool, quarantining: EventTime | None
) -> bool:
    """Whether a side output comes out of the query of that read and anchor."""
    side = _side_node(write)
    path = _path(side.input)
    if _read(path) is not read:
        return False
    own = _anchor(path)
    here = own is anchor or (isinstance(anchor, Stateful) and (own is None or _on_the_way(own, anchor)))
    match side.side:
        case Side.DEAD_LETTERS:
            return takes_side_rows or here
        case Side.QUARANTINED:
            return quarantining is not None and quarantining in path
        case _:
            return here


def _label(read: Read, anchor: Node | None) -> str:
    if isinstance(anchor, Stateful):
        return anchor.name
    if anchor is None:
        return read.topic
    return f"{read.topic}-{'apply' if isinstance(anchor, Apply) else 'timed'}-{anchor.location.line}"
