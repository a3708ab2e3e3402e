"""Everything that can be told wrong about a pipeline before a JVM starts: names, and the order of steps.

Each check says what is wrong, why it matters and how to fix it. What concerns columns is in `column_checks`, topics in
`topic_checks`, steps that run fused in `fusion_checks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.errors import (
    DuplicateStepError,
    Location,
    MissingEventTimeError,
    MissingKeyError,
    PipelineError,
    UnboundedStateError,
    UnsupportedStepError,
)
from headrace.pipeline.column_checks import check_columns
from headrace.pipeline.delivery import check_deliveries
from headrace.pipeline.fusion_checks import check_fusion
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    LateRows,
    Latest,
    Node,
    Panes,
    Rolling,
    Select,
    Side,
    SideOutput,
    SinkWrite,
    Where,
    Window,
    WithColumn,
    Write,
)
from headrace.pipeline.plan import Plan, Problem, Stateful, label, method_of, nearest, schema_of, upstream
from headrace.pipeline.topic_checks import check_topics, is_topic
from headrace.pipeline.triggers import each
from headrace.pipeline.watermarks import Perfect
from headrace.pipeline.windows import Moment, WindowKind

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SECOND_PIPELINE = "write to a topic and read it back in a second pipeline."


def problems_of(plan: Plan) -> list[Problem]:
    """All that is wrong with a plan, in the order of the user's lines (files in the order of first use)."""
    problems = [
        *plan.problems,
        *_check_names(plan),
        *check_topics(plan),
        *_check_sinks(plan),
        *check_deliveries([write for write in plan.all(Write) if is_topic(write.topic)]),
        *check_fusion(plan),
    ]
    for node in plan.nodes:
        problems.extend(_check_order(node))
        problems.extend(check_columns(node))
    places = [plan.location, *(node.location for node in plan.nodes), *(problem.location for problem in problems)]
    files = list(dict.fromkeys(place.file for place in places))
    return sorted(problems, key=lambda problem: (files.index(problem.location.file), problem.location.line))


def _check_names(plan: Plan) -> Iterator[Problem]:
    if not _is_name(plan.name):
        yield _bad_name(f"pipeline name {plan.name!r}", "It becomes part of topic and folder names.", plan.location)
    places: dict[str, list[Location]] = {}
    for step in plan.stateful:
        if not _is_name(step.name):
            why = "It names the state of the step, and becomes part of folder names."
            fix = " Pass it as name=..." if isinstance(step, Dedupe) else ""
            yield _bad_name(f"step name {step.name!r}", why, step.location, fix)
        else:
            places.setdefault(step.name, []).append(step.location)
    for name, locations in places.items():
        if len(locations) > 1:
            yield Problem(
                DuplicateStepError,
                f"{len(locations)} steps are called `{name}`.",
                locations[1],
                "A step's name is the identity of its state: they would share one. "
                f"They are at {', '.join(str(location) for location in locations)}.",
                "give each step its own name (for .dedupe, pass name=...).",
            )


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name not in (".", "..")


def _bad_name(what: str, why: str, location: Location, more: str = "") -> Problem:
    fix = 'use 1 to 100 letters, digits, ".", "_" and "-", like "card-activity".'
    return Problem(PipelineError, f"{what} can't be used.", location, why, fix + more)


def _check_sinks(plan: Plan) -> Iterator[Problem]:
    places: dict[str, list[Location]] = {}
    for write in plan.all(SinkWrite):
        if not _is_name(write.sink.name):
            why = "It names the sink's query, and becomes part of topic and folder names."
            yield _bad_name(f"sink name {write.sink.name!r}", why, write.location, " Pass it as name=...")
        else:
            places.setdefault(write.sink.name, []).append(write.location)
    for name, locations in places.items():
        if len(locations) > 1:
            yield Problem(
                DuplicateStepError,
                f"{len(locations)} sinks are called `{name}`.",
                locations[1],
                "A sink's name is the identity of its query: they would share one checkpoint. "
                f"They are at {', '.join(str(location) for location in locations)}.",
                "give each its own: hr.sinks...(..., name=...).",
            )


def _check_order(node: Node) -> Iterator[Problem]:
    """Whether a step may stand where it does."""
    side = nearest(node, SideOutput)
    if side is not None:
        yield from _check_after_side_output(node, side)
        return
    match node:
        case EventTime():
            yield from _check_event_time(node)
        case KeyBy():
            yield from _check_key(node)
        case Apply():
            yield from _check_apply(node)
        case SideOutput():
            yield from _check_side_output(node)
        case Dedupe() | Rolling() | Window():
            yield from _check_stateful(node)


def _check_after_side_output(node: Node, side: SideOutput) -> Iterator[Problem]:
    allowed: tuple[type[Node], ...] = (Write,)
    if side.side is not Side.DEAD_LETTERS:
        allowed = (Write, SinkWrite, Where, Select, WithColumn)
    if isinstance(node, Write) and node.contract is not None and side.side is Side.DEAD_LETTERS:
        yield Problem(
            UnsupportedStepError,
            "dead letters can't have a contract.",
            node.location,
            "They are payloads that fit none, and are written as they are.",
            "leave out contract=...",
        )
    dead_letter_key = isinstance(node, Write) and node.key is not None and side.side is Side.DEAD_LETTERS
    if isinstance(node, allowed) and not dead_letter_key:
        return
    why = "Side outputs leave with the step that they come from; only steps without state can follow."
    if side.side is Side.DEAD_LETTERS:
        why = "Dead letters are payloads that did not parse: they have no columns."
    if dead_letter_key:
        yield Problem(
            UnsupportedStepError, "dead letters can't have another key.", node.location, why, "leave out key=..."
        )
    else:
        what = f"{label(node)} can't follow .{side.side}."
        yield Problem(UnsupportedStepError, what, node.location, why, _SECOND_PIPELINE)


def _check_event_time(node: EventTime) -> Iterator[Problem]:
    earlier = nearest(node, EventTime)
    stateful = _stateful_before(node)
    if earlier is not None:
        yield Problem(
            UnsupportedStepError,
            f"event time is declared twice: `{node.column}` here, `{earlier.column}` at {earlier.location}.",
            node.location,
            "A stream has one event time.",
            "keep one of the two.",
        )
    elif stateful:
        yield Problem(
            UnsupportedStepError,
            f"event time is declared after step `{stateful[-1].name}`.",
            node.location,
            "The step has ordered its events by then.",
            "call .event_time(...) before the first step with state.",
        )


def _check_key(node: KeyBy) -> Iterator[Problem]:
    for step in _stateful_before(node):
        key = nearest(step, KeyBy)
        if key is not None and _folded(key.columns) != _folded(node.columns):
            yield Problem(
                UnsupportedStepError,
                f".key_by({', '.join(node.columns)}) changes the key after step `{step.name}`, "
                f"which is keyed by {', '.join(key.columns)}.",
                node.location,
                "Steps on one key run together; this version can't move rows to another key within a pipeline.",
                _SECOND_PIPELINE,
            )
            return


def _check_apply(node: Apply) -> Iterator[Problem]:
    stateful = _stateful_before(node)
    if stateful:
        yield Problem(
            UnsupportedStepError,
            f".apply(...) can't follow step `{stateful[-1].name}`.",
            node.location,
            "What comes out of a step with state carries where each row goes; a function could lose it.",
            f"call .apply(...) before the step, or {_SECOND_PIPELINE}",
        )


def _check_side_output(node: SideOutput) -> Iterator[Problem]:
    event_time = nearest(node, EventTime)
    match node.side:
        case Side.LATE if event_time is None:
            why = "Late is what comes behind the watermark of event time; this stream has no event time."
            fix = f'call .event_time("<column>", out_of_order=...) first. {_time_columns(node)}'
            yield Problem(MissingEventTimeError, ".late needs event time.", node.location, why, fix)
        case Side.LATE if not _stateful_before(node):
            why = "Late events are told apart by a step with state; none has come yet."
            fix = "take .late of the stream after .dedupe(...), .rolling(...) or .window(...)."
            yield Problem(UnsupportedStepError, ".late has no rows here.", node.location, why, fix)
        case Side.LATE if all(isinstance(s, Window) and s.late is LateRows.DROP for s in _stateful_before(node)):
            why = f"Step `{_stateful_before(node)[-1].name}` drops its late rows."
            fix = 'leave out late="drop" in that step, or leave out .late.'
            yield Problem(UnsupportedStepError, ".late has no rows here.", node.location, why, fix)
        case Side.DUPLICATES if nearest(node, Dedupe) is None:
            why = "Duplicates are what .dedupe(...) holds back; this stream has no such step."
            fix = 'call .dedupe("<id column>", within=...) first.'
            yield Problem(UnsupportedStepError, ".duplicates has no rows here.", node.location, why, fix)
        case Side.QUARANTINED if event_time is None or event_time.max_skew_ms is None:
            why = "Quarantine is for events stamped too far in the future; this stream has no limit for that."
            fix = 'call .event_time("<column>", max_skew="5m") first.'
            yield Problem(UnsupportedStepError, ".quarantined has no rows here.", node.location, why, fix)


_WHY_TIME: dict[type[Node], str] = {
    Dedupe: "Deduplication forgets ids by event time",
    Rolling: "A rolling window orders events by time",
    Window: "A window groups events by time",
}


def _check_stateful(node: Stateful) -> Iterator[Problem]:
    if nearest(node, EventTime) is None:
        fix = f'call .event_time("<column>", out_of_order=...) before .{method_of(node)}(...).'
        yield Problem(
            MissingEventTimeError,
            f"step `{node.name}` needs event time.",
            node.location,
            f"{_WHY_TIME[type(node)]}; its input has no event-time column.",
            f"{fix} {_time_columns(node.input)}",
        )
    match node:
        case Rolling():
            yield from _check_rolling(node)
        case Window():
            yield from _check_window(node)


def _check_rolling(node: Rolling) -> Iterator[Problem]:
    if nearest(node, KeyBy) is None:
        yield Problem(
            MissingKeyError,
            f"step `{node.name}` needs a key.",
            node.location,
            "A rolling step keeps its events per key; its input has none.",
            'call .key_by("<column>") before .rolling(...).',
        )
    aggregates = [aggregate for _, aggregate in node.aggregates]
    if aggregates and all(isinstance(a, Latest) and a.within_ms is None for a in aggregates):
        yield Problem(
            UnboundedStateError,
            f"step `{node.name}` would keep state for ever.",
            node.location,
            "It has only hr.latest(...) without a span, so the last events of every key ever seen would stay.",
            'say how old an event may be: hr.latest(..., within="24h").',
        )


def _check_window(node: Window) -> Iterator[Problem]:
    event_time = nearest(node, EventTime)
    ends = event_time is not None and isinstance(event_time.watermark, Perfect)
    if node.windowing.kind is WindowKind.GLOBAL and not node.trigger.fires_before_end() and not ends:
        yield Problem(
            PipelineError,
            f"step `{node.name}` would give no result before the end of the stream.",
            node.location,
            f"A global window ends with the stream, and its trigger, {node.trigger}, waits for that.",
            'pass another trigger, like hr.every("1m"), hr.each() or hr.repeat(hr.when("total > 100")).',
        )
    if node.windowing.kind is WindowKind.SLIDING:
        given = {
            "a trigger": node.trigger != each(),
            "allowed_lateness": node.allowed_lateness_ms != 0,
            "a result_time": node.result_time.kind is not Moment.END,
            f'panes="{node.panes}"': node.panes is not Panes.ACCUMULATING,
        }
        for option in (option for option, is_given in given.items() if is_given):
            yield Problem(
                PipelineError,
                f"step `{node.name}` has sliding windows and {option}.",
                node.location,
                "A sliding window gives each event one result, when it comes: there is nothing to fire or to restate.",
                'leave it out, or use hr.hopping("10m", every="1m").',
            )


def _stateful_before(node: Node) -> list[Stateful]:
    """The steps with state that a node's rows have come through, first one first."""
    return [step for step in upstream(node) if isinstance(step, Stateful)][::-1]


def _folded(columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(column.lower() for column in columns)


def _time_columns(node: Node) -> str:
    schema = schema_of(node)
    if schema is None:
        return "It is a TIMESTAMP, or a BIGINT of epoch milliseconds."
    names = [name for name, type in schema.items() if type == "timestamp"]
    return f"Timestamp columns here: {', '.join(names) or 'none'}"
