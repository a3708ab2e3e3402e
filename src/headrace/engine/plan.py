"""From the nodes of a pipeline to the queries that will run. No Spark here: `explain` and all checks need no JVM.

One query serves a keyed operator with everything around it: the read, the steps before, the fused stateful steps, and
all streams that come out of them, each into its own topic. A pipeline with two operators side by side has two queries.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import IntEnum

from headrace.engine.anchors import (
    after_side,
    anchor_of,
    has_apply,
    on_the_way,
    path_to,
    read_of,
    side_node,
    side_of,
    until_event_time,
)
from headrace.engine.query_names import Group, check_names, query_names
from headrace.engine.sink_plan import internal_writes, plan_sinks
from headrace.pipeline import Pipeline
from headrace.pipeline.columns import references
from headrace.pipeline.contracts import Contract
from headrace.pipeline.fusion_checks import columns_used
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    LateRows,
    Node,
    Read,
    Rolling,
    Select,
    Side,
    Where,
    Window,
    WithColumn,
    Write,
)
from headrace.pipeline.plan import default_topic, nearest, schema_of


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
            frozenset(self.key).union(*(columns_of(step) for step in self.stateful)) if self.stateful else frozenset()
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
    groups: dict[Group, list[Write]] = {}
    side_writes: list[Write] = []
    for write in (*pipeline.writes, *internal_writes(pipeline, always=sinks_from_topics)):
        side = side_of(write)
        if side is not None:
            side_writes.append(write)
            continue
        path = path_to(write.input)
        groups.setdefault((read_of(path), anchor_of(path)), []).append(write)
    for write in side_writes:
        # A side output alone still needs its operator to run.
        path = path_to(side_node(write).input)
        anchor = anchor_of(path)
        if isinstance(anchor, Stateful) and not any(on_the_way(anchor, other) for _, other in groups):
            groups[(read_of(path), anchor)] = []
    for write in side_writes:
        path = path_to(side_node(write).input)
        if not any(r is path[0] for r, _ in groups):
            groups[(read_of(path), anchor_of(path))] = []
    queries = tuple(_queries(pipeline, groups, side_writes))
    check_names(
        pipeline.name,
        [(query.name, query.before[-1].location if query.before else query.read.location) for query in queries],
        {plan.name: plan.write.location for plan in plan_sinks(pipeline)},
    )
    return queries


def _queries(pipeline: Pipeline, groups: dict[Group, list[Write]], side_writes: list[Write]) -> Iterator[QueryPlan]:
    unclaimed = list(side_writes)
    names = query_names(pipeline.name, list(groups), pipeline.nodes)
    for read in dict.fromkeys(read for read, _ in groups):
        anchors = [anchor for r, anchor in groups if r is read]
        plain = [a for a in anchors if not has_apply(a)]
        primary = next((a for a in plain if _times(_steps_to(a))), plain[0] if plain else None)
        taken: set[EventTime] = set()
        # A user's function may drop or change rows, so rows that never became data do not pass through it: if every
        # query has one, they get a query of their own.
        todo: list[tuple[str, tuple[Node, ...], Node | None, bool]] = []
        paths = [path_to(anchor) for anchor in anchors if anchor is not None]
        timed: set[Node] = {step for anchor in plain for step in _steps_to(anchor) if isinstance(step, EventTime)}
        if not plain:
            before = until_event_time(path_to(anchors[0])) if anchors[0] is not None else ()
            timed.update(step for step in before if isinstance(step, EventTime))
            todo.append((f"{pipeline.name}-intake-{read.topic}", before, None, True))
        for anchor in anchors:
            todo.append((names[read, anchor], _steps_to(anchor), anchor, bool(plain) and anchor is primary))
        # So does an event time that no other query has.
        alone = {path[-1]: path for path in map(until_event_time, paths) if path and path[-1] not in timed}
        for number, before in enumerate(alone.values(), 1):
            todo.append(
                (f"{pipeline.name}-times-{read.topic}{f'-{number}' if number > 1 else ''}", before, None, False)
            )
        own = {names[read, anchor] for anchor in anchors}
        for name, before, anchor, takes in todo:
            time = next((t for t in _times(before) if t not in taken), None)
            if time is not None:
                taken.add(time)
            claimed = [w for w in unclaimed if _belongs(w, read, anchor, takes, time)]
            unclaimed = [w for w in unclaimed if w not in claimed]
            writes = groups[(read, anchor)] if name in own else []
            yield _query(pipeline, name, read, before, writes, claimed, takes, time)


def _steps_to(anchor: Node | None) -> tuple[Node, ...]:
    return () if anchor is None else tuple(path_to(anchor)[1:])


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
    branches = []
    for w in writes:
        after = tuple(n for n in path_to(w.input)[1:] if n not in before and not isinstance(n, EventTime | KeyBy))
        # Not only an operator's: a stream without state may have a key too.
        keyed = nearest(w, KeyBy)
        branches.append(Branch(Route.RESULT, after, w.topic, w.key or (None if keyed is None else keyed.columns), w))
    for w in side_writes:
        branches.append(Branch(ROUTE_OF[side_node(w).side], after_side(w.input), w.topic, w.key, w))
    stateful = [s for s in before if isinstance(s, Stateful)]
    # A query may find rows without the time or the key that only it needs.
    needy = takes_side_rows or any(isinstance(s, (*Stateful, EventTime)) for s in before)
    # And a row may not fit the contract of its output, or a step may fail on it.
    needy = needy or any(b.contract is not None for b in branches)
    needy = needy or any(_may_fail(step) for step in (*before, *(step for b in branches for step in b.steps)))
    possible = [Side.DEAD_LETTERS] if needy else []
    if quarantining is not None:
        possible.append(Side.QUARANTINED)
    if any(not isinstance(s, Window) or s.late is LateRows.SIDE for s in stateful):
        possible.append(Side.LATE)
    for side in possible:
        # Nothing vanishes: what the user did not route goes to a topic of the pipeline's own.
        if not any(b.route is ROUTE_OF[side] for b in branches):
            branches.append(Branch(ROUTE_OF[side], (), default_topic(pipeline.name, side), None, None))
    return QueryPlan(name, read, before, _key(before), tuple(branches), takes_side_rows, quarantining is not None)


def _may_fail(step: Node) -> bool:
    """Whether it has expressions of the user."""
    return isinstance(step, Where | WithColumn) or (
        isinstance(step, Select) and any(value is not None for _, value in step.columns)
    )


def columns_of(step: Dedupe | Rolling | Window, there: Container[str] | None = None) -> set[str]:
    """The columns of its input that a step with state uses, as far as that is known before it runs.

    In SQL text `current_date` may be a column or a function. It is taken for a column, unless the names of the columns
    that really are `there`, in lower case, are given and lack it.
    """
    if not isinstance(step, Window):
        return columns_used(step)
    used: set[str] = set()
    known = schema_of(step.input)
    for reference in (found for _, value in step.aggregates for found in references(value) or ()):
        name = reference.path[0]
        if known is not None and name in known:
            # In an expression a name may be in any case; the state goes by the column's own.
            used.add(known.spelled(name))
        elif there is None or name.lower() in there or not reference.may_be_function:
            used.add(name)
    return used


def _key(before: tuple[Node, ...]) -> tuple[str, ...]:
    keys = [s.columns for s in before if isinstance(s, KeyBy)]
    if keys:
        return keys[-1]
    if any(isinstance(s, Window) for s in before):
        return ()  # its windows are those of the whole stream
    # A dedupe without a key: the id is the key.
    return next((s.columns for s in before if isinstance(s, Dedupe)), ())


def _belongs(
    write: Write, read: Read, anchor: Node | None, takes_side_rows: bool, quarantining: EventTime | None
) -> bool:
    """Whether a side output comes out of the query of that read and anchor."""
    side = side_node(write)
    path = path_to(side.input)
    if read_of(path) is not read:
        return False
    own = anchor_of(path)
    here = own is anchor or (isinstance(anchor, Stateful) and (own is None or on_the_way(own, anchor)))
    match side.side:
        case Side.DEAD_LETTERS:
            return takes_side_rows or here
        case Side.QUARANTINED:
            return quarantining is not None and quarantining in path
        case _:
            return here
