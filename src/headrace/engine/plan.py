"""From the nodes of a pipeline to the queries that will run. No Spark here: `explain` and all checks need no JVM.

One query serves a keyed operator with everything around it: the read, the steps before, the fused stateful steps, and
all streams that come out of them, each into its own topic. A pipeline with two operators side by side has two queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from headrace.errors import UnsupportedStepError
from headrace.pipeline import Pipeline
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
    Where,
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


ROUTE_OF = {
    Side.LATE: Route.LATE,
    Side.DUPLICATES: Route.DUPLICATE,
    Side.QUARANTINED: Route.QUARANTINED,
    Side.DEAD_LETTERS: Route.DEAD_LETTER,
}

Stateful = (Dedupe, Rolling)


@dataclass(frozen=True)
class Branch:
    """One stream out of a query: rows of a route, through stateless steps, into a topic."""

    route: Route
    steps: tuple[Node, ...]
    topic: str
    key: tuple[str, ...] | None
    write: Write | None
    """None for a default side output, which the user did not write."""


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
    """Whether this query sends on rows that never became data (dead letters, quarantined); one query per read does."""

    @property
    def stateful(self) -> tuple[Dedupe | Rolling, ...]:
        """The fused stateful steps."""
        return tuple(s for s in self.before if isinstance(s, Stateful))

    @property
    def event_time(self) -> EventTime | None:
        """The event time in force."""
        return next((s for s in self.before if isinstance(s, EventTime)), None)

    @property
    def step(self) -> str:
        """The name that the ids of this query's results carry."""
        return self.stateful[-1].name if self.stateful else self.name

    @property
    def output_topics(self) -> tuple[str, ...]:
        """Every topic that this query may write to."""
        return tuple(dict.fromkeys(b.topic for b in self.branches))


def plan_queries(pipeline: Pipeline) -> tuple[QueryPlan, ...]:
    """Check the pipeline and split it into queries.

    >>> import headrace as hr
    >>> p = hr.Pipeline("clicks")
    >>> p.read("in", schema="id string").where("id is not null").write("out")
    >>> [q.name for q in plan_queries(p)]
    ['clicks']
    """
    pipeline.check()
    groups: dict[tuple[Read, Node | None], list[Write]] = {}
    side_writes: list[Write] = []
    for write in pipeline.writes:
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
        read = _read(_path(_side_node(write).input))
        if not any(r is read for r, _ in groups):
            groups[(read, None)] = []
    return tuple(_queries(pipeline, groups, side_writes))


def _queries(
    pipeline: Pipeline, groups: dict[tuple[Read, Node | None], list[Write]], side_writes: list[Write]
) -> Iterator[QueryPlan]:
    unclaimed = list(side_writes)
    reads = list(dict.fromkeys(read for read, _ in groups))
    single = len(groups) == 1
    for read in reads:
        anchors = [anchor for r, anchor in groups if r is read]
        primary = next((a for a in anchors if not _has_apply(a)), None)
        needs_intake = all(_has_apply(a) for a in anchors)
        if needs_intake:
            # A user's function may drop or change rows, so rows that never became data do not pass through it.
            claimed = [w for w in unclaimed if _belongs(w, read, None, takes_side_rows=True)]
            unclaimed = [w for w in unclaimed if w not in claimed]
            before = _until_event_time(_path(anchors[0]) if anchors[0] is not None else [read])
            name = f"{pipeline.name}-intake-{read.topic}"
            yield _query(pipeline, name, read, before, [], claimed, takes_side_rows=True)
        for anchor in anchors:
            takes = not needs_intake and anchor is primary
            claimed = [w for w in unclaimed if _belongs(w, read, anchor, takes)]
            unclaimed = [w for w in unclaimed if w not in claimed]
            name = pipeline.name if single and not needs_intake else f"{pipeline.name}-{_label(read, anchor)}"
            writes = groups[(read, anchor)]
            if anchor is not None:
                before = tuple(_path(anchor)[1:])
            else:
                paths = (_until_event_time(_path(w.input)) for w in (*writes, *claimed))
                before = next((p for p in paths if p), ())
            yield _query(pipeline, name, read, before, writes, claimed, takes_side_rows=takes)


def _query(
    pipeline: Pipeline,
    name: str,
    read: Read,
    before: tuple[Node, ...],
    writes: list[Write],
    side_writes: list[Write],
    *,
    takes_side_rows: bool,
) -> QueryPlan:
    _check_fusion(pipeline, before)
    branches = []
    for w in writes:
        after = tuple(n for n in _path(w.input)[1:] if n not in before and not isinstance(n, EventTime | KeyBy))
        branches.append(Branch(Route.RESULT, after, w.topic, w.key, w))
    for w in side_writes:
        branches.append(Branch(ROUTE_OF[_side_node(w).side], _after_side(w.input), w.topic, w.key, w))
    stateful = [s for s in before if isinstance(s, Stateful)]
    possible = {Route.DEAD_LETTER: "dead-letters"} if takes_side_rows or stateful else {}
    if _quarantines(before, takes_side_rows):
        possible[Route.QUARANTINED] = "quarantined"
    if stateful:
        possible[Route.LATE] = "late"
    for route, label in possible.items():
        # Nothing vanishes: what the user did not route goes to a topic of the pipeline's own.
        if not any(b.route is route for b in branches):
            branches.append(Branch(route, (), f"{pipeline.name}.{label}", None, None))
    return QueryPlan(name, read, before, _key(before), tuple(branches), takes_side_rows)


def _check_fusion(pipeline: Pipeline, before: tuple[Node, ...]) -> None:
    """Steps between fused steps are computed before the operator: what that would change the meaning of is refused."""
    last = max((i for i, s in enumerate(before) if isinstance(s, Stateful)), default=-1)
    results: set[str] = set()
    ids: set[str] = set()
    for step in before[: last + 1]:
        problem = None
        if isinstance(step, Where | WithColumn | Select) and results:
            problem = f"`{_METHOD[type(step)]}` between two rolling steps is not supported yet."
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
        elif isinstance(step, Dedupe):
            ids.update(c.lower() for c in step.columns)


_METHOD: dict[type[Node], str] = {Where: "where", WithColumn: "with_column", Select: "select"}


def _columns_of(step: Dedupe | Rolling) -> set[str]:
    if isinstance(step, Dedupe):
        return set(step.columns)
    used: set[str] = set()
    for _, aggregate in step.aggregates:
        used.update(aggregate.columns if isinstance(aggregate, Latest) else filter(None, (aggregate.column,)))
    return used


def _key(before: tuple[Node, ...]) -> tuple[str, ...]:
    keys = [s.columns for s in before if isinstance(s, KeyBy)]
    if keys:
        return keys[-1]
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


def _quarantines(before: tuple[Node, ...], takes_side_rows: bool) -> bool:
    """Whether rows may leave for quarantine here: not in a query that leaves side rows to another one, unless its own
    `.apply` comes before the event time."""
    time = next((i for i, s in enumerate(before) if isinstance(s, EventTime) and s.max_skew_ms is not None), None)
    applied = next((i for i, s in enumerate(before) if isinstance(s, Apply)), None)
    if time is None:
        return False
    return takes_side_rows or (applied is not None and applied < time)


def _read(path: list[Node]) -> Read:
    read = path[0]
    assert isinstance(read, Read)
    return read


def _anchor(path: list[Node]) -> Node | None:
    return next((n for n in reversed(path) if isinstance(n, (*Stateful, Apply))), None)


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


def _belongs(write: Write, read: Read, anchor: Node | None, takes_side_rows: bool) -> bool:
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
            before_apply = bool(_until_event_time(path))
            return takes_side_rows if before_apply else here
        case _:
            return here


def _label(read: Read, anchor: Node | None) -> str:
    if isinstance(anchor, Stateful):
        return anchor.name
    return read.topic if anchor is None else f"{read.topic}-apply-{anchor.location.line}"
