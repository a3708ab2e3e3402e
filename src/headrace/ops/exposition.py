"""The same numbers for Prometheus, and a Grafana dashboard made from the same list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.metrics import GOLDEN, METRICS, Unit
from headrace.ops.watch import Watch

_PER_TOPIC = {
    "headrace_topic_lag_events": ("lag_events", "Records of a source topic that the pipeline has not read."),
    "headrace_topic_lag_seconds": ("lag_seconds", "How long the oldest record that is not read has been waiting."),
    "headrace_topic_events_per_second": ("per_second", "Records per second that come into a topic."),
}


class _Collector(Collector):
    """Reads the watch whenever Prometheus asks."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """All families, in the order of the list."""
        lines = self._watch.summary()["pipelines"]
        for metric in METRICS.values():
            family = GaugeMetricFamily(metric.exposed, metric.help, labels=["pipeline"])
            for line in lines:
                value = line["values"][metric.name]
                if value is not None:
                    family.add_metric([line["name"]], value * metric.scale)
            yield family
        alarms = GaugeMetricFamily("headrace_alarm_firing", "1 while an alarm fires.", labels=["pipeline", "alarm"])
        for line in lines:
            for alarm in line["alarms"]:
                alarms.add_metric([line["name"], alarm["alarm"]], float(alarm["state"] == "firing"))
        yield alarms
        yield from self._topics([line["name"] for line in lines])
        yield GaugeMetricFamily(
            "headrace_look_seconds", "How long the dashboard's last look took.", value=self._watch.took_ms / 1000
        )

    def _topics(self, pipelines: list[str]) -> Iterator[Metric]:
        labels = ["pipeline", "topic", "role"]
        families = {name: GaugeMetricFamily(name, text, labels=labels) for name, (_, text) in _PER_TOPIC.items()}
        counted = CounterMetricFamily(
            "headrace_topic_events", "Records that came into a topic since the dashboard began to watch.", labels=labels
        )
        lag = GaugeMetricFamily(
            "headrace_partition_lag_events",
            "Records of a source partition that a query has not read.",
            labels=["pipeline", "topic", "partition", "query"],
        )
        for name in pipelines:
            detail = self._watch.detail(name) or {}
            for topic in detail.get("topics", ()):
                place = [name, topic["topic"], topic["role"]]
                for family, (field, _) in _PER_TOPIC.items():
                    if topic[field] is not None:
                        families[family].add_metric(place, topic[field])
                if topic["counted"] is not None:
                    counted.add_metric(place, topic["counted"])
            for partition in detail.get("partitions", ()):
                if partition["lag_events"] is not None:
                    place = [name, partition["topic"], str(partition["partition"]), partition["query"]]
                    lag.add_metric(place, partition["lag_events"])
        yield from families.values()
        yield counted
        yield lag


def registry(watch: Watch) -> CollectorRegistry:
    """A registry of this watch alone, without what the Python process could tell about itself."""
    found = CollectorRegistry(auto_describe=False)
    found.register(_Collector(watch))
    return found


def expose(found: CollectorRegistry) -> bytes:
    """The text that Prometheus reads."""
    return bytes(generate_latest(found))


_GRAFANA_UNITS = {
    Unit.EVENTS: "short",
    Unit.PER_SECOND: "cps",
    Unit.SECONDS: "s",
    Unit.MILLISECONDS: "s",  # Prometheus has them in seconds
    Unit.ROWS: "short",
    Unit.BYTES: "bytes",
    Unit.SHARE: "percentunit",
    Unit.RATIO: "short",
    Unit.FLAG: "bool",
}


def grafana_dashboard() -> dict[str, Any]:
    """A dashboard to import: the golden numbers first, one panel each, then the rest.

    >>> [panel["title"] for panel in grafana_dashboard()["panels"]][:2]
    ['Consumer lag: lag', 'Consumer lag: lag in time']
    """
    source = {"type": "prometheus", "uid": "${source}"}
    golden = [m for tile in GOLDEN for m in METRICS.values() if m.golden == tile]
    panels = []
    for place, metric in enumerate([*golden, *(m for m in METRICS.values() if not m.golden)]):
        title = f"{GOLDEN[metric.golden]}: {metric.title}" if metric.golden else metric.title
        panels.append(
            {
                "id": place + 1,
                "type": "timeseries",
                "title": title,
                "description": metric.help,
                "datasource": source,
                "gridPos": {"h": 7, "w": 8, "x": place % 3 * 8, "y": place // 3 * 7},
                "fieldConfig": {"defaults": {"unit": _GRAFANA_UNITS[metric.unit], "min": 0}, "overrides": []},
                "targets": [
                    {
                        "refId": "A",
                        "datasource": source,
                        "expr": f'{metric.exposed}{{pipeline=~"$pipeline"}}',
                        "legendFormat": "{{pipeline}}",
                    }
                ],
            }
        )
    return {
        "title": "Headrace: the golden numbers",
        "uid": "headrace-golden",
        "tags": ["headrace"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "data source"},
                {
                    "name": "pipeline",
                    "type": "query",
                    "datasource": source,
                    "query": {"query": "label_values(headrace_up, pipeline)", "refId": "pipelines"},
                    "includeAll": True,
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                    "refresh": 2,
                },
            ]
        },
        "panels": panels,
    }
