"""What will run and what it guarantees, before anything runs."""

from __future__ import annotations

from typing import Any

from headrace.engine.plan import QueryPlan, Route, plan_queries
from headrace.engine.settings import Mode, RunSettings
from headrace.engine.sink_explain import sink_dicts, sink_lines
from headrace.pipeline import Pipeline
from headrace.pipeline.draw import describe, draw
from headrace.pipeline.durations import format_duration
from headrace.pipeline.explanations import results_of, retention_ms, state_of, watermark_of
from headrace.pipeline.nodes import Dedupe, LateRows, Latest, Rolling, Window

_EXACTLY = (
    "exactly once",
    "each task writes in one Kafka transaction that carries the batch id; a repeated batch is skipped",
    "readers need isolation.level=read_committed",
)
_AT_LEAST = (
    "at least once",
    "after a stop or a crash the records since the last checkpoint are written again, with the same headrace-id",
    "keep one record per headrace-id to get each result once",
)


def guarantee(mode: Mode) -> tuple[str, str, str]:
    """The delivery guarantee of a Kafka output in a mode: its name, why it holds, what it asks of the reader."""
    return _AT_LEAST if mode is Mode.REALTIME else _EXACTLY


def explain_dict(pipeline: Pipeline) -> dict[str, Any]:
    """The plan for machines."""
    return {
        **describe(pipeline),
        "queries": [
            {
                "name": q.name,
                "reads": q.read.topic,
                "key": list(q.key),
                "operator": [s.name for s in q.stateful],
                "state": [_retention(s) for s in q.stateful],
                "outputs": [
                    {
                        "topic": b.topic,
                        "route": b.route.name.lower(),
                        "default": b.write is None,
                        "guarantees": {m.value: guarantee(m)[0] for m in (Mode.REPLAY, Mode.MICROBATCH, Mode.REALTIME)},
                    }
                    for b in q.branches
                ],
            }
            for q in plan_queries(pipeline)
        ],
        "sinks": sink_dicts(pipeline),
    }


def explain_text(pipeline: Pipeline) -> str:
    """The plan for people: the steps as written, then the queries that run them."""
    queries = plan_queries(pipeline)
    lines = [draw(pipeline), ""]
    for query in queries:
        lines += _query(query)
        lines.append("")
    lines += sink_lines(pipeline)
    if not queries:
        return "\n".join(lines[:-1])
    for modes, (name, why, ask) in (("replay, microbatch", _EXACTLY), ("realtime", _AT_LEAST)):
        lines += [f"{name} ({modes})", f"  why: {why}", f"  reader: {ask}"]
    return "\n".join(lines)


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
            lines.append(f"  {name} -> {branch.topic}{note}: exactly once; in real time at least once")
    if any(isinstance(s, Dedupe) for s in query.stateful) and not by_route[Route.DUPLICATE]:
        lines.append("  duplicate -> dropped and counted")
    for step in query.stateful:
        if isinstance(step, Window) and step.late is LateRows.DROP:
            lines.append(f"  late in `{step.name}` -> dropped and counted")
    interval = format_duration(RunSettings().checkpoint_interval_ms)
    lines.append(f"  modes: replay, microbatch, realtime (checkpoint every {interval}), auto")
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
    keeps = f"events of the last {format_duration(longest)} before the watermark, per key"
    return {"step": step.name, "retention_ms": longest, "keeps": keeps}
