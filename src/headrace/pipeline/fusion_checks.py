"""Checks of steps that run fused: steps with state on one key are one operator, and each sees the row as it came in.

What stands between them is computed before the operator. Where that would change what the pipeline means, it is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from headrace.errors import UnsupportedStepError
from headrace.pipeline.nodes import Dedupe, Latest, Node, Rolling, Select, SideOutput, Where, Window, WithColumn
from headrace.pipeline.plan import Plan, Problem, Stateful, input_of, method_of, upstream


@dataclass(frozen=True)
class _Before:
    """What the steps with state before a place add to the row, or go by. Names are folded."""

    results: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    window: str | None = None


def check_fusion(plan: Plan) -> Iterator[Problem]:
    """What stands between steps with state and can't, and the steps that use what the operator has not yet made."""
    fused = {node for step in plan.stateful for node in (step, *upstream(step))}
    after: dict[Node, _Before] = {}
    for node in plan.nodes:
        source = input_of(node)
        before = _Before() if source is None else after.get(source, _Before())
        after[node] = _after(node, before)
        what = _refusal(node, before) if node in fused else None
        if what is not None:
            yield Problem(
                UnsupportedStepError,
                what,
                node.location,
                "Both stateful steps run fused in one operator, on the row as it came in.",
                "do it before the first or after the last of them,\n"
                "or write to a topic and read it in a second pipeline.",
            )


def columns_used(step: Dedupe | Rolling) -> set[str]:
    """The columns of its input that a step uses.

    >>> sorted(columns_used(Dedupe(Node(), "once", ("txn_id", "card_id"), 1000)))
    ['card_id', 'txn_id']
    """
    if isinstance(step, Dedupe):
        return set(step.columns)
    used: set[str] = set()
    for _, aggregate in step.aggregates:
        used.update(aggregate.columns if isinstance(aggregate, Latest) else filter(None, (aggregate.column,)))
    return used


def _after(node: Node, before: _Before) -> _Before:
    match node:
        case Rolling():
            return replace(before, results=before.results | {name.lower() for name, _ in node.aggregates})
        case Dedupe():
            return replace(before, ids=before.ids | _folded(node.columns))
        case Window():
            return replace(before, window=node.name)
        case SideOutput():
            return _Before()  # its rows leave as they came; that no step with state can follow is said elsewhere
    return before


def _refusal(node: Node, before: _Before) -> str | None:
    if isinstance(node, Where | WithColumn | Select) and before.results:
        return f"`{method_of(node)}` between two rolling steps is not supported yet."
    if isinstance(node, Stateful) and before.window is not None:
        return f"step `{node.name}` after the window `{before.window}` is not supported yet."
    match node:
        case Window() if before.results:
            return f"the window `{node.name}` after a rolling step is not supported yet."
        case WithColumn() if node.name.lower() in before.ids:
            return f"`{node.name}` is an id of the dedupe before; another value for it here is not supported yet."
        case Select() if lost := before.ids - _folded(name for name, value in node.columns if value is None):
            return f"this select drops or changes `{min(lost)}`, an id of the dedupe before: not supported yet."
        case Dedupe() | Rolling() if used := before.results & _folded(columns_used(node)):
            return f"step `{node.name}` uses `{min(used)}`, a result of the step before: not supported yet."
    return None


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)
