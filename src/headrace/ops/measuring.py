"""From what is known of a pipeline at one moment to its numbers: every metric of `headrace.metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.ops.flows import MINUTE_SECONDS, TopicFlow
from headrace.ops.runs import SIDES, Pipeline, Query
from headrace.ops.sketches import HotKeys, LatencyWindow

_ROUTES = {"late": "late", "duplicates": "duplicate", "quarantined": "quarantined", "dead_letters": "dead_letter"}
_RATES = {
    "late": "late_rate",
    "duplicates": "duplicate_rate",
    "quarantined": "quarantined_rate",
    "dead_letters": "dead_letter_rate",
}
Values = dict[str, float | None]


@dataclass
class PartitionLag:
    """One source partition of one query."""

    topic: str
    partition: int
    query: str
    position: int | None
    end: int
    lag: int | None
    seconds: float | None
    per_second: float


@dataclass
class Measured:
    """What the samples of a pipeline's topics have shown so far."""

    latency: LatencyWindow = field(default_factory=LatencyWindow)
    keys: HotKeys = field(default_factory=HotKeys)


Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


def lags(
    pipeline: Pipeline, flows: Mapping[str, TopicFlow], now: float, stamps: Mapping[Place, float] | None = None
) -> list[PartitionLag]:
    """How far each query is behind, partition by partition.

    A record that was there before the first look has waited since its own timestamp, if that is known (`stamps`),
    and since the first look at least.
    """
    found = []
    for query in pipeline.queries.values():
        flow = flows.get(query.source)
        if flow is None:
            continue
        for number, partition in sorted(flow.partitions.items()):
            position = query.positions.get(number)
            lag = None if position is None else max(0, partition.end - position)
            seconds: float | None = None
            if position is not None:
                came = partition.reached(position) if lag else now
                if came is None:
                    stamp = (stamps or {}).get((query.source, number, position), partition.first)
                    came = min(stamp, partition.first)
                seconds = max(0.0, now - came)
            found.append(
                PartitionLag(
                    query.source,
                    number,
                    query.name,
                    position,
                    partition.end,
                    lag,
                    seconds,
                    partition.per_second(now, MINUTE_SECONDS),
                )
            )
    return found


def measure(
    pipeline: Pipeline,
    flows: Mapping[str, TopicFlow],
    behind: list[PartitionLag],
    measured: Measured,
    now: float,
) -> Values:
    """All metrics of a pipeline; None for what is not known."""
    values: Values = {}
    known = [b.lag for b in behind if b.lag is not None]
    values["lag_events"] = sum(known) if known else None
    values["lag_seconds"] = max((b.seconds for b in behind if b.seconds is not None), default=None)
    values["events_in"] = _rate(flows, pipeline.sources)
    values["events_out"] = _rate(flows, pipeline.outputs)
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        values[name] = measured.latency.quantile(share)
    last = [q.last for q in pipeline.queries.values() if q.last]
    for name in ("commit_ms", "batch_ms"):
        values[name] = max((float(r.get(name) or 0) for r in last), default=None)
    for name in ("state_rows", "state_bytes", "state_memory_bytes"):
        values[name] = sum(float(r.get(name) or 0) for r in last) if last else None
    marks = [at for r in last if (at := _instant(r.get("watermark"))) is not None]
    values["watermark_seconds"] = max(0.0, now - min(marks)) if marks else None
    values.update(_side_rates(pipeline, flows, now))
    top = measured.keys.top(1)
    values["hot_key_share"] = measured.keys.share(top[0].key) if top and measured.keys.total >= 50 else None
    values["skew"] = skew(behind)
    growth = [f.last_growth for t in pipeline.sources if (f := flows.get(t)) is not None and f.last_growth is not None]
    values["idle_seconds"] = now - max(growth) if growth else None
    values["heap_share"] = pipeline.heap[0] / pipeline.heap[1] if pipeline.heap is not None and pipeline.alive else None
    # A run that was stopped on purpose is no incident; one that failed or fell silent is.
    values["up"] = 1.0 if pipeline.alive else None if pipeline.status == "stopped" else 0.0
    return values


def skew(behind: list[PartitionLag]) -> float | None:
    """Records of the fullest partition over the mean, of the topic where that is worst."""
    worst: float | None = None
    for topic in {b.topic for b in behind}:
        rates = list({b.partition: b.per_second for b in behind if b.topic == topic}.values())
        mean = sum(rates) / len(rates)
        # A handful of records is spread unevenly by chance.
        if len(rates) > 1 and mean * MINUTE_SECONDS * len(rates) >= 100:
            worst = max(worst or 0.0, max(rates) / mean)
    return worst


def _rate(flows: Mapping[str, TopicFlow], topics: Any) -> float | None:
    rates = [rate for t in topics if (flow := flows.get(t)) is not None and (rate := flow.rate()) is not None]
    return sum(rates) if rates else None


def _side_rates(pipeline: Pipeline, flows: Mapping[str, TopicFlow], now: float) -> Values:
    """Of the last minute. In real time a batch tells only at its end, so there the topics are asked."""
    rows = dict.fromkeys(("input_rows", *SIDES), 0.0)
    for query in pipeline.queries.values():
        counted = _from_topics(query, flows) if query.mode == "realtime" else _from_batches(query, now)
        for name, count in counted.items():
            rows[name] += count
    total = rows["input_rows"]
    return {_RATES[side]: min(1.0, rows[side] / total) if total >= 1 else None for side in SIDES}


def _from_batches(query: Query, now: float) -> dict[str, float]:
    rows: dict[str, float] = dict.fromkeys(("input_rows", *SIDES), 0.0)
    for at, counted in query.counted:
        if at < now - MINUTE_SECONDS:
            continue
        for name, count in counted.items():
            rows[name] += count
    return rows


def _from_topics(query: Query, flows: Mapping[str, TopicFlow]) -> dict[str, float]:
    def came(topic: str) -> float:
        return flows[topic].recent(MINUTE_SECONDS)[0] if topic in flows else 0.0

    rows = {side: sum(came(t) for t in query.topics(_ROUTES[side])) for side in SIDES}
    return {"input_rows": came(query.source), **rows}


def _instant(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
