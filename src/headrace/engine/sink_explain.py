"""What a pipeline's sinks guarantee, why, and what would break it: for `headrace explain`."""

from __future__ import annotations

from typing import Any

from headrace.engine.settings import Mode
from headrace.engine.sink_plan import SinkPlan, plan_sinks
from headrace.pipeline import Pipeline


def sink_lines(pipeline: Pipeline) -> list[str]:
    """For people."""
    return [line for plan in plan_sinks(pipeline) for line in (*_lines(plan), "")]


def sink_dicts(pipeline: Pipeline) -> list[dict[str, Any]]:
    """For machines."""
    return [_dict(plan) for plan in plan_sinks(pipeline)]


def _lines(plan: SinkPlan) -> list[str]:
    lines = [f"sink query {plan.name}", f"  reads {plan.topic}, {_origin(plan)}; micro-batches in every mode"]
    lines.append(f"  writes {plan.sink}" + (f" by {', '.join(plan.sink.key)}" if plan.sink.key else ""))
    usual, realtime = plan.guarantee(realtime=False), plan.guarantee(realtime=True)
    same = usual.name == realtime.name
    lines.append(f"  {usual.name}" + ("" if same else f"; when the pipeline runs in real time {realtime.name}"))
    lines += [f"    why: {usual.why}", f"    broken by: {usual.breaks}"]
    if not same:
        lines.append(f"    in real time: {realtime.why}")
    lines.append("  if it is down: only this query pauses, tries again with back-off, and goes on where it stopped")
    return lines


def _origin(plan: SinkPlan) -> str:
    if plan.read is not None:
        return "the source"
    return "an internal topic for it" if plan.internal else "which this pipeline writes"


def _dict(plan: SinkPlan) -> dict[str, Any]:
    usual, realtime = plan.guarantee(realtime=False), plan.guarantee(realtime=True)
    return {
        "name": plan.name,
        "reads": plan.topic,
        "internal": plan.internal,
        "sink": plan.sink.kind,
        "target": plan.sink.target,
        "key": list(plan.sink.key),
        "guarantees": {
            m.value: (realtime if m is Mode.REALTIME else usual).name
            for m in (Mode.REPLAY, Mode.MICROBATCH, Mode.REALTIME)
        },
        "why": usual.why,
        "breaks": usual.breaks,
    }
