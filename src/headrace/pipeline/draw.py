"""A pipeline for people (`draw`) and for programs (`describe`): what `headrace explain` shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.pipeline.columns import expression_text
from headrace.pipeline.durations import format_duration
from headrace.pipeline.explanations import results_of, state_of
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
    SinkWrite,
    Where,
    Window,
    WindowAggregate,
    WithColumn,
    Write,
)
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.plan import Stateful, input_of, method_of
from headrace.pipeline.watermarks import Bounded
from headrace.pipeline.windows import WindowKind, at_end

_WIDEST = 80


def describe(pipeline: Pipeline) -> dict[str, Any]:
    """The plan as plain data, ready for JSON: each node with its id, kind, name, location, inputs and details.

    >>> import headrace as hr
    >>> pipeline = hr.Pipeline("copy")
    >>> pipeline.read("clicks", schema="user STRING").write("copy")
    >>> describe(pipeline)["nodes"][1]["inputs"]
    ['1']
    """
    ids = {node: str(number) for number, node in enumerate(pipeline.nodes, start=1)}
    return {
        "pipeline": pipeline.name,
        "nodes": [
            {
                "id": ids[node],
                "kind": method_of(node),
                "name": node.name if isinstance(node, Stateful) else None,
                "location": str(node.location),
                "inputs": [ids[source] for source in [input_of(node)] if source is not None],
                "details": _details(node),
            }
            for node in pipeline.nodes
        ],
    }


def draw(pipeline: Pipeline) -> str:
    """The plan as a tree in plain text: reads at the top, side outputs and writes as branches.

    >>> import headrace as hr
    >>> pipeline = hr.Pipeline("clicks")
    >>> clicks = pipeline.read("clicks", schema="user STRING, at TIMESTAMP")
    >>> clicks.where("user is not null").write("known-users")
    >>> clicks.dead_letters.write("bad-clicks")
    >>> print(draw(pipeline))
    pipeline clicks
    read clicks
    +- where user is not null
    |  write known-users
    +- dead_letters
       write bad-clicks
    """
    children: dict[Node | None, list[Node]] = {}
    for node in pipeline.nodes:
        children.setdefault(input_of(node), []).append(node)
    lines = [f"pipeline {pipeline.name}"]
    for read in pipeline.reads:
        lines.extend(_chain(read, children))
    return "\n".join(lines)


def _chain(node: Node, children: dict[Node | None, list[Node]]) -> Iterator[str]:
    """A node and all after it; a step on its own stays in line, branches are set in."""
    yield _line(node)
    following = children.get(node, [])
    while len(following) == 1:
        yield _line(following[0])
        following = children.get(following[0], [])
    for number, child in enumerate(following, start=1):
        first, *rest = _chain(child, children)
        yield f"+- {first}"
        yield from (("|  " if number < len(following) else "   ") + line for line in rest)


def _line(node: Node) -> str:
    return " ".join(part for part in (method_of(node), _summary(node)) if part)


def _details(node: Node) -> dict[str, Any]:
    match node:
        case Read():
            return {
                "topic": node.topic,
                "schema": dict(node.schema),
                "contract": _contract(node),
                "max_bytes": node.max_bytes,
            }
        case EventTime():
            return {
                "column": node.column,
                "out_of_order": _bound(node),
                "max_skew": _optional(node.max_skew_ms),
                "watermark": str(node.watermark),
                "close_idle": _optional(node.close_idle_ms),
            }
        case KeyBy():
            return {"columns": list(node.columns)}
        case Dedupe():
            return {"columns": list(node.columns), "within": format_duration(node.within_ms)}
        case Rolling():
            return {"aggregates": {name: _aggregate(aggregate) for name, aggregate in node.aggregates}}
        case Window():
            return {
                "windows": str(node.windowing),
                "aggregates": {name: expression_text(aggregate) for name, aggregate in node.aggregates},
                "trigger": str(node.trigger),
                "allowed_lateness": format_duration(node.allowed_lateness_ms),
                "panes": str(node.panes),
                "late": str(node.late),
                "result_time": str(node.result_time),
                "state": state_of(node),
                "results": results_of(node),
            }
        case Where():
            return {"condition": expression_text(node.condition)}
        case Select():
            return {
                "columns": {name: name if value is None else expression_text(value) for name, value in node.columns}
            }
        case WithColumn():
            return {"column": node.name, "value": expression_text(node.value)}
        case Apply():
            schema = None if node.schema is None else dict(node.schema)
            return {"function": _function_name(node), "schema": schema}
        case Write():
            return {
                "topic": node.topic,
                "key": None if node.key is None else list(node.key),
                "contract": _contract(node),
                "delivery": node.delivery,
            }
        case SinkWrite():
            sink = node.sink
            return {"sink": sink.kind, "name": sink.name, "target": sink.target, "key": list(sink.key)}
    return {}


def _contract(node: Read | Write) -> dict[str, Any] | None:
    agreed = node.contract
    if agreed is None:
        return None
    schema = agreed.schema
    version = agreed.version if schema is None else schema.version
    return {
        "subject": agreed.subject,
        "version": version,
        "file": agreed.file,
        "type": None if schema is None else schema.kind.lower(),
    }


def _under(node: Read | Write) -> str:
    """` under contract clicks-value version 3`, or nothing."""
    found = _contract(node)
    if found is None:
        return ""
    version = "" if found["version"] is None else f" version {found['version']}"
    file = "" if found["file"] is None else f" ({found['file']})"
    return f" under contract {found['subject']}{version}{file}"


def _optional(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_duration(milliseconds)


def _bound(node: EventTime) -> str | None:
    """The fixed bound of a stream that has one."""
    return format_duration(node.out_of_order_ms) if isinstance(node.watermark, Bounded) else None


def _aggregate(aggregate: WindowAggregate | Latest) -> str:
    """As the user would write it."""
    if isinstance(aggregate, WindowAggregate):
        return f"last({format_duration(aggregate.window_ms)}).{aggregate.function}({aggregate.column or ''})"
    within = "" if aggregate.within_ms is None else f", within={format_duration(aggregate.within_ms)}"
    return f"latest({', '.join(aggregate.columns)}, back={aggregate.back}{within})"


def _function_name(node: Apply) -> str:
    # Not its repr, which shows an address in memory: a plan is described the same every time.
    return str(getattr(node.function, "__qualname__", type(node.function).__name__))


def _short(value: object) -> str:
    """An expression that fits on a line; `describe` has it in full."""
    text = expression_text(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _summary(node: Node) -> str:
    """What matters of a node, on one line."""
    match node:
        case Read():
            return node.topic + _under(node)
        case EventTime():
            return ", ".join(_event_time(node))
        case KeyBy():
            return ", ".join(node.columns)
        case Dedupe():
            return f"`{node.name}`: {', '.join(node.columns)} within {format_duration(node.within_ms)}"
        case Rolling():
            return f"`{node.name}`: {', '.join(f'{name}={_aggregate(value)}' for name, value in node.aggregates)}"
        case Window():
            return f"`{node.name}`: {', '.join(_window(node))}"
        case Where():
            return _short(node.condition)
        case Select():
            parts = (name if value is None else f"{name}={_short(value)}" for name, value in node.columns)
            return ", ".join(parts)
        case WithColumn():
            return f"{node.name}={_short(node.value)}"
        case Apply():
            return _function_name(node)
        case Write():
            key = "" if node.key is None else f", key {', '.join(node.key)}"
            delivery = "" if node.delivery is None else f", {node.delivery.replace('_', ' ')}"
            return node.topic + key + delivery + _under(node)
        case SinkWrite():
            return f"{node.sink}" + (f", key {', '.join(node.sink.key)}" if node.sink.key else "")
    return ""


def _event_time(node: EventTime) -> Iterator[str]:
    yield node.column
    bound = _bound(node)
    yield f"watermark {node.watermark}" if bound is None else f"out of order by {bound}"
    if node.max_skew_ms is not None:
        yield f"max skew {format_duration(node.max_skew_ms)}"
    if node.close_idle_ms is not None:
        yield f"close idle after {format_duration(node.close_idle_ms)}"


def _window(node: Window) -> Iterator[str]:
    yield str(node.windowing)
    yield from (f"{name}={_short(value)}" for name, value in node.aggregates)
    if node.windowing.kind is not WindowKind.SLIDING:
        yield f"trigger {node.trigger}"
        yield f"{node.panes} panes"
    if node.allowed_lateness_ms:
        yield f"allowed lateness {format_duration(node.allowed_lateness_ms)}"
    if node.late is LateRows.DROP:
        yield "late rows dropped"
    if node.result_time != at_end():
        yield f"time {node.result_time}"
