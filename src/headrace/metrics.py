"""What is measured of a running pipeline: every number once, with its name, unit and meaning.

The page, the terminal view, the API, Prometheus, the Grafana dashboard and the alarms all read this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What a number counts."""

    EVENTS = "events"
    PER_SECOND = "events/s"
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    ROWS = "rows"
    BYTES = "bytes"
    SHARE = "share"
    RATIO = "ratio"
    FLAG = "flag"


@dataclass(frozen=True)
class Metric:
    """One number of a pipeline. `golden` ones are those by which most incidents are caught first."""

    name: str
    unit: Unit
    title: str
    help: str
    golden: str = ""
    """The tile that it belongs to: one of GOLDEN, or none."""
    per_topic: bool = False
    """Whether it is also told for each topic."""

    @property
    def exposed(self) -> str:
        """Its name in Prometheus, in base units.

        >>> METRICS["p99"].exposed
        'headrace_latency_p99_seconds'
        """
        return _EXPOSED.get(self.name, f"headrace_{self.name}")

    @property
    def scale(self) -> float:
        """What a value is multiplied by to be in Prometheus' base units."""
        return 0.001 if self.unit is Unit.MILLISECONDS else 1.0


GOLDEN = {
    "lag": "Consumer lag",
    "throughput": "Events per second",
    "latency": "End-to-end latency",
    "commit": "Commit time",
    "state": "State size",
}
"""The five golden numbers, in the order in which they are shown."""

_EXPOSED = {
    "events_in": "headrace_events_in_per_second",
    "events_out": "headrace_events_out_per_second",
    "p50": "headrace_latency_p50_seconds",
    "p95": "headrace_latency_p95_seconds",
    "p99": "headrace_latency_p99_seconds",
    "commit_ms": "headrace_commit_seconds",
    "batch_ms": "headrace_batch_seconds",
    "late_rate": "headrace_late_ratio",
    "duplicate_rate": "headrace_duplicate_ratio",
    "quarantined_rate": "headrace_quarantined_ratio",
    "dead_letter_rate": "headrace_dead_letter_ratio",
    "hot_key_share": "headrace_hot_key_ratio",
    "skew": "headrace_partition_skew_ratio",
    "heap_share": "headrace_driver_heap_ratio",
}

_LIST = (
    Metric(
        "lag_events",
        Unit.EVENTS,
        "lag",
        "Records in the source topics that the pipeline has not read.",
        golden="lag",
        per_topic=True,
    ),
    Metric(
        "lag_seconds",
        Unit.SECONDS,
        "lag in time",
        "How long the oldest record that is not read has been waiting; of all partitions the longest.",
        golden="lag",
        per_topic=True,
    ),
    Metric(
        "events_in",
        Unit.PER_SECOND,
        "in",
        "Records per second that come into the source topics.",
        golden="throughput",
        per_topic=True,
    ),
    Metric(
        "events_out",
        Unit.PER_SECOND,
        "out",
        "Records per second that come into the output topics.",
        golden="throughput",
        per_topic=True,
    ),
    Metric(
        "p50",
        Unit.MILLISECONDS,
        "p50",
        "Half of the results are written within this time, counted from the producer's timestamp.",
        golden="latency",
    ),
    Metric("p95", Unit.MILLISECONDS, "p95", "95 of 100 results are written within this time.", golden="latency"),
    Metric("p99", Unit.MILLISECONDS, "p99", "99 of 100 results are written within this time.", golden="latency"),
    Metric(
        "commit_ms",
        Unit.MILLISECONDS,
        "commit",
        "How long the last batch took to commit its state and offsets.",
        golden="commit",
    ),
    Metric("batch_ms", Unit.MILLISECONDS, "batch", "How long the last batch took in all.", golden="commit"),
    Metric("state_rows", Unit.ROWS, "rows", "Rows in the state stores.", golden="state"),
    Metric("state_bytes", Unit.BYTES, "bytes", "Bytes of the files of the state stores.", golden="state"),
    Metric(
        "state_memory_bytes",
        Unit.BYTES,
        "state in memory",
        "Bytes that the state stores take in memory: what is not flushed to files yet, and caches.",
    ),
    Metric(
        "watermark_seconds",
        Unit.SECONDS,
        "watermark age",
        "How far the watermark is behind the clock on the wall.",
    ),
    Metric("late_rate", Unit.SHARE, "late", "Share of the events of the last minute that came too late."),
    Metric("duplicate_rate", Unit.SHARE, "duplicates", "Share of the events of the last minute that were repeats."),
    Metric(
        "quarantined_rate",
        Unit.SHARE,
        "quarantined",
        "Share of the events of the last minute with a time too far in the future.",
    ),
    Metric(
        "dead_letter_rate",
        Unit.SHARE,
        "dead letters",
        "Share of the events of the last minute that could not be read.",
    ),
    Metric("hot_key_share", Unit.SHARE, "hottest key", "Share of the sampled input that has the most frequent key."),
    Metric(
        "skew", Unit.RATIO, "skew", "Records of the fullest source partition, over the mean of all, in the last minute."
    ),
    Metric("idle_seconds", Unit.SECONDS, "without events", "How long no record has come into the source topics."),
    Metric("heap_share", Unit.SHARE, "driver heap", "Share of the heap of the pipeline's JVM that is in use."),
    Metric("up", Unit.FLAG, "running", "1 while a run of the pipeline is alive, else 0."),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _LIST}
"""All metrics by name."""


def shown(value: float | None, unit: Unit) -> str:
    """A value as people read it.

    >>> shown(1234.5, Unit.EVENTS), shown(0.034, Unit.SHARE), shown(2_500_000, Unit.BYTES), shown(None, Unit.ROWS)
    ('1,234', '3.4%', '2.5 MB', '-')
    """
    if value is None:
        return "-"
    match unit:
        case Unit.SHARE:
            return f"{value:.1%}"
        case Unit.BYTES:
            return _bytes(value)
        case Unit.SECONDS:
            return (
                f"{value:.1f} s"
                if value < 120
                else f"{value / 60:.0f} min"
                if value < 7200
                else f"{value / 3600:.1f} h"
            )
        case Unit.MILLISECONDS:
            return f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.1f} s"
        case Unit.RATIO:
            return f"{value:.1f}x"
        case Unit.PER_SECOND:
            return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
        case Unit.FLAG:
            return "yes" if value else "no"
    return f"{int(value):,}"


def _bytes(value: float) -> str:
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value:.0f} B"
