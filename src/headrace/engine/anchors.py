"""The way from a read to an output, and the step on it that a query is built around: its anchor."""

from __future__ import annotations

from headrace.pipeline.nodes import Apply, EventTime, Node, Read, Side, SideOutput, Write
from headrace.pipeline.plan import Stateful, upstream


def path_to(node: Node) -> list[Node]:
    """From the read to the node, following inputs; a side output counts as its input's place."""
    return [node, *upstream(node)][::-1]


def read_of(path: list[Node]) -> Read:
    """The read that a path begins with."""
    read = path[0]
    assert isinstance(read, Read)
    return read


def anchor_of(path: list[Node]) -> Node | None:
    """What a query is built around: the last stateful step, function or event time on the way, if any."""
    return next((n for n in reversed(path) if isinstance(n, Stateful | Apply | EventTime)), None)


def on_the_way(step: Node, anchor: Node | None) -> bool:
    """Whether the query of that anchor runs the step too, fused: its side rows come out there."""
    return anchor is not None and step in path_to(anchor)


def has_apply(anchor: Node | None) -> bool:
    """Whether rows come through a function of the user's on the way to the anchor."""
    return anchor is not None and any(isinstance(n, Apply) for n in path_to(anchor))


def until_event_time(path: list[Node]) -> tuple[Node, ...]:
    """The steps that decide what is quarantined, as far as they lie before any `.apply`."""
    for i, node in enumerate(path):
        if isinstance(node, Apply):
            return ()
        if isinstance(node, EventTime):
            return tuple(path[1 : i + 1])
    return ()


def side_node(write: Write) -> SideOutput:
    """The side output that a write is of."""
    return next(n for n in upstream(write) if isinstance(n, SideOutput))


def side_of(write: Write) -> Side | None:
    """The side that a write is of; None for results."""
    return next((n.side for n in upstream(write) if isinstance(n, SideOutput)), None)


def after_side(node: Node) -> tuple[Node, ...]:
    """The steps from a side output to the node."""
    path = path_to(node)
    last = max(i for i, n in enumerate(path) if isinstance(n, SideOutput))
    return tuple(path[last + 1 :])
