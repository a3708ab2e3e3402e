"""What the last look found, as plain data for the API, the page and the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.metrics import METRICS
from headrace.ops.flows import RATE_SECONDS
from headrace.ops.measuring import Measured, PartitionLag
from headrace.ops.runs import Pipeline

if TYPE_CHECKING:
    from headrace.ops.watch import Watch

MOST_PARTITIONS = 200
"""Of one pipeline, those that are furthest behind; the totals count all."""


def summary_of(watch: Watch, now: float) -> dict[str, Any]:
    """All pipelines, each on one line."""
    return {
        "at": round(now, 3),
        "problem": watch.problem,
        "looks": watch.looks,
        "look_ms": round(watch.took_ms, 1),
        "pipelines": [_line(watch, p) for p in sorted(watch.runs.pipelines.values(), key=lambda p: p.name)],
        "firing": watch.alarms.counts().get("firing", 0),
        "pending": watch.alarms.counts().get("pending", 0),
    }


def _line(watch: Watch, pipeline: Pipeline) -> dict[str, Any]:
    values = watch.values.get(pipeline.name, {})
    return {
        "name": pipeline.name,
        "status": pipeline.status,
        "mode": next((q.mode for q in pipeline.queries.values() if q.mode), pipeline.mode),
        "run": pipeline.run,
        "started_at": pipeline.started_at,
        "values": {name: _rounded(values.get(name)) for name in METRICS},
        "alarms": watch.alarms.of(pipeline.name),
    }


def detail_of(watch: Watch, pipeline: Pipeline, measured: Measured, now: float) -> dict[str, Any]:
    """One pipeline with its topics, partitions, keys, graph, runs and newest results."""
    behind = watch.behind.get(pipeline.name, [])
    worst = sorted(behind, key=lambda b: -(b.lag or 0))[:MOST_PARTITIONS]
    return {
        **_line(watch, pipeline),
        "at": round(now, 3),
        "host": pipeline.host,
        "pid": pipeline.pid,
        "topics": [_topic(watch, name, role, behind) for name, role in _roles(pipeline).items()],
        "partitions": [_partition(b) for b in sorted(worst, key=lambda b: (b.topic, b.partition))],
        "partition_count": len(behind),
        "hot_keys": [{"key": k.key, "share": round(measured.keys.share(k.key), 4)} for k in measured.keys.top(10)]
        if measured.keys.total >= 20
        else [],
        "watermark": _watermark(pipeline),
        "graph": _graph(watch, pipeline),
        "runs": list(reversed(pipeline.events)),
        "results": {topic: watch.results(topic)[:10] for topic, route in pipeline.outputs.items() if route == "result"},
        "sides": {topic: watch.results(topic)[:3] for topic, route in pipeline.outputs.items() if route != "result"},
    }


def _roles(pipeline: Pipeline) -> dict[str, str]:
    return {**dict.fromkeys(pipeline.sources, "source"), **pipeline.outputs}


def _topic(watch: Watch, name: str, role: str, behind: list[PartitionLag]) -> dict[str, Any]:
    flow = watch.flows.get(name)
    mine = [b for b in behind if b.topic == name]
    lag = [b.lag for b in mine if b.lag is not None]
    return {
        "topic": name,
        "role": role,
        "partitions": 0 if flow is None else len(flow.partitions),
        "end": None if flow is None else flow.end,
        "per_second": None if flow is None else _rounded(flow.rate(RATE_SECONDS)),
        "counted": None if flow is None else round(flow.counted),
        "lag_events": sum(lag) if lag else None,
        "lag_seconds": _rounded(max((b.seconds for b in mine if b.seconds is not None), default=None)),
    }


def _partition(behind: PartitionLag) -> dict[str, Any]:
    return {
        "topic": behind.topic,
        "partition": behind.partition,
        "query": behind.query,
        "position": behind.position,
        "end": behind.end,
        "lag_events": behind.lag,
        "lag_seconds": _rounded(behind.seconds),
        "per_second": _rounded(behind.per_second),
    }


def _watermark(pipeline: Pipeline) -> str | None:
    marks = [str(q.last["watermark"]) for q in pipeline.queries.values() if q.last.get("watermark")]
    return min(marks, default=None)


def _graph(watch: Watch, pipeline: Pipeline) -> dict[str, Any]:
    """Topics and operators as nodes, with the rate of records on each edge."""
    nodes: dict[str, dict[str, Any]] = {}
    edges = []

    def topic(name: str, role: str) -> str:
        nodes.setdefault(f"topic:{name}", {"id": f"topic:{name}", "kind": "topic", "label": name, "role": role})
        return f"topic:{name}"

    def rate(name: str) -> float | None:
        flow = watch.flows.get(name)
        return None if flow is None else _rounded(flow.rate())

    for query in pipeline.queries.values():
        operator = f"query:{query.name}"
        nodes[operator] = {
            "id": operator,
            "kind": "query",
            "label": query.name,
            "role": query.mode,
            "steps": _steps(pipeline, query.source),
        }
        edges.append(
            {"from": topic(query.source, "source"), "to": operator, "route": "in", "per_second": rate(query.source)}
        )
        for name, route in query.outputs:
            edges.append({"from": operator, "to": topic(name, route), "route": route, "per_second": rate(name)})
    return {"nodes": list(nodes.values()), "edges": edges}


def _steps(pipeline: Pipeline, source: str) -> list[str]:
    """What the pipeline does to the rows of a topic, a word or two for each step, in the order of its declaration."""
    reached = {
        n.get("id")
        for n in pipeline.graph
        if n.get("kind") == "read" and (n.get("details") or {}).get("topic") == source
    }
    steps = []
    for node in pipeline.graph:
        if reached.intersection(node.get("inputs") or ()):
            reached.add(node.get("id"))
            kind = str(node.get("kind"))
            if kind not in ("write", "read", "late", "duplicates", "quarantined", "dead_letters"):
                steps.append(f"{kind} {node['name']}" if node.get("name") else kind)
    return steps[:12]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
