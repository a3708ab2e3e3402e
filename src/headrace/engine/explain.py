"""What will run and what it guarantees, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headrace.engine.contracts import Contracts
from headrace.engine.delivery import Guarantee, guarantee_of, guarantee_words, stays_in_microbatch
from headrace.engine.plan import Branch, QueryPlan, Route, plan_queries
from headrace.engine.settings import Mode, RunSettings
from headrace.engine.sink_explain import sink_dicts, sink_lines
from headrace.pipeline import Pipeline
from headrace.pipeline.draw import describe, draw
from headrace.pipeline.durations import format_duration
from headrace.pipeline.explanations import results_of, retention_ms, state_of, watermark_of
from headrace.pipeline.nodes import Dedupe, LateRows, Latest, Rolling, Window
from headrace.pipeline.watermarks import Perfect


def explain_dict(pipeline: Pipeline, registry: str | None = None) -> dict[str, Any]:
    """The plan for machines. The registry is asked only for contracts that have no schema file."""
    pipeline = Contracts(registry).resolved(pipeline, offline=True)
    return {
        **describe(pipeline),
        "queries": [
            {
                "name": q.name,
                "reads": q.read.topic,
                "key": list(q.key),
                "operator": [s.name for s in q.stateful],
                "state": [_retention(s) for s in q.stateful],
                "group": q.name,
                "outputs": [_output(q, b) for b in q.branches],
            }
            for q in plan_queries(pipeline)
        ],
        "sinks": sink_dicts(pipeline),
    }


def explain_text(pipeline: Pipeline, registry: str | None = None) -> str:
    """The plan for people: the steps as written, then the queries that run them."""
    pipeline = Contracts(registry).resolved(pipeline, offline=True)
    queries = plan_queries(pipeline)
    lines = [draw(pipeline), ""]
    for query in queries:
        lines += _query(query)
        lines.append("")
    lines += sink_lines(pipeline)
    if not queries:
        return "\n".join(lines[:-1])
    for guarantee in _used(queries):
        lines += [
            f"{guarantee.name} ({guarantee.modes})",
            f"  why: {guarantee.mechanism}",
            f"  reader: {guarantee.reader}",
            f"  breaks: {guarantee.breaks}",
        ]
    return "\n".join(lines)


def _output(query: QueryPlan, branch: Branch) -> dict[str, Any]:
    held = {m: guarantee_of(query, branch, m) for m in (Mode.REPLAY, Mode.MICROBATCH, Mode.REALTIME)}
    return {
        "topic": branch.topic,
        "route": branch.route.name.lower(),
        "default": branch.write is None,
        # None where the mode can't give it: such a run is refused.
        "guarantees": {m.value: None if g is None else g.name for m, g in held.items()},
        "why": {m.value: None if g is None else asdict(g) for m, g in held.items()},
    }


def _used(queries: Sequence[QueryPlan]) -> list[Guarantee]:
    """Every guarantee that an output has in some mode, once."""
    found = (guarantee_of(q, b, m) for m in (Mode.MICROBATCH, Mode.REALTIME) for q in queries for b in q.branches)
    return list(dict.fromkeys(g for g in found if g is not None))


def _query(query: QueryPlan) -> list[str]:
    lines = [f"query {query.name}", f"  reads {query.read.topic}"]
    if query.stateful:
        names = " + ".join(f"`{s.name}`" for s in query.stateful)
        fused = " fused into one operator: one shuffle, one state store" if len(query.stateful) > 1 else ""
        by = f"keyed by {', '.join(query.key)}" if query.key else "over the whole stream"
        lines.append(f"  {by}: {names}{fused}")
        lines += [line for step in query.stateful for line in _state(step)]
        assert query.event_time is not None
        # A window's rows are late by the end of their window: `state` says when.
        title = "watermark" if any(isinstance(s, Window) for s in query.stateful) else "late after the watermark"
        lines.append(f"  {title}: {watermark_of(query.event_time)}")
    by_route = {route: [b for b in query.branches if b.route is route] for route in Route}
    for route, branches in by_route.items():
        for branch in branches:
            note = " (default; nothing vanishes)" if branch.write is None else ""
            name = route.name.lower().replace("_", " ")
            lines.append(f"  {name} -> {branch.topic}{note}: {guarantee_words(query, branch)}")
    if any(isinstance(s, Dedupe) for s in query.stateful) and not by_route[Route.DUPLICATE]:
        lines.append("  duplicate -> dropped and counted")
    for step in query.stateful:
        if isinstance(step, Window) and step.late is LateRows.DROP:
            lines.append(f"  late in `{step.name}` -> dropped and counted")
    interval = format_duration(RunSettings().checkpoint_interval_ms)
    lines.append(f"  position: committed to the consumer group `{query.name}`")
    if query.event_time is not None and isinstance(query.event_time.watermark, Perfect) and query.stateful:
        lines.append("  modes: replay")
    elif stays_in_microbatch((query,)) is None:
        lines.append(f"  modes: replay, microbatch, realtime (checkpoint every {interval}), auto")
    else:
        lines.append("  modes: replay, microbatch; auto stays in microbatch")
    return lines


def _state(step: Dedupe | Rolling | Window) -> list[str]:
    retention = _retention(step)
    lines = [f"  state of `{step.name}`: {retention['keeps']}"]
    return [*lines, f"  results of `{step.name}`: {retention['results']}"] if "results" in retention else lines


def _retention(step: Dedupe | Rolling | Window) -> dict[str, Any]:
    if isinstance(step, Window):
        return {
            "step": step.name,
            "retention_ms": retention_ms(step),
            "keeps": state_of(step),
            "results": results_of(step),
        }
    if isinstance(step, Dedupe):
        keeps = f"ids of the last {format_duration(step.within_ms)} of event time, per key"
        return {"step": step.name, "retention_ms": step.within_ms, "keeps": keeps}
    windows = [a.window_ms for _, a in step.aggregates if not isinstance(a, Latest)]
    spans = [a.within_ms or max(windows, default=0) for _, a in step.aggregates if isinstance(a, Latest)]
    longest = max((*windows, *spans))
    window = max(windows, default=0)
    if longest > window:
        # A look-back beyond the windows keeps only as many events as it counts back.
        back = max(a.back for _, a in step.aggregates if isinstance(a, Latest) and (a.within_ms or 0) > window)
        before = f"events of the last {format_duration(window)} before the watermark and " if window else ""
        keeps = f"{before}the last {max(back, 1)} of {format_duration(longest)}, per key"
    else:
        keeps = f"events of the last {format_duration(longest)} before the watermark, per key"
    return {"step": step.name, "retention_ms": longest, "keeps": keeps}
