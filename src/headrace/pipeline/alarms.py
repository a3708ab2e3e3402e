"""Alarms as a user writes them: `"lag_seconds > 60 for 5m"`. In a pipeline, or in a file for the dashboard."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import InvalidAlarmError, InvalidDurationError, closest
from headrace.metrics import METRICS, Unit, shown
from headrace.pipeline.durations import format_duration, parse_duration

_EXPRESSION = re.compile(
    r"(?P<metric>[a-z][a-z0-9_]*)\s*(?P<sign><=|>=|<|>|==)\s*(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?)\s*(?P<unit>%|[A-Za-z]*)"
    r"(?:\s+for\s+(?P<hold>\S.*))?"
)
_SILENCE = re.compile(r"no\s+events\s+for\s+(?P<span>\S.*)")
_LONGEST = 200
_BYTES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SPANS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FIX = 'write it like "lag_seconds > 60 for 5m", "late_rate > 1% for 1m", "p99 > 500ms" or "no events for 2m".'


@dataclass(frozen=True)
class Alarm:
    """A condition on one metric that has to hold for a time before it fires.

    >>> alarm = parse_alarm("p99 > 500ms for 1m")
    >>> alarm.metric, alarm.holds(612.0), alarm.hold_ms
    ('p99', True, 60000)
    """

    text: str
    metric: str
    sign: str
    threshold: float
    hold_ms: int

    def holds(self, value: float | None) -> bool:
        """Whether the condition holds for a value; what is not known is no reason for an alarm."""
        if value is None:
            return False
        match self.sign:
            case ">":
                return value > self.threshold
            case ">=":
                return value >= self.threshold
            case "<":
                return value < self.threshold
            case "<=":
                return value <= self.threshold
        return value == self.threshold

    def described(self) -> str:
        """In words.

        >>> parse_alarm("state_bytes > 2GB").described()
        'bytes > 2.0 GB'
        """
        metric = METRICS[self.metric]
        wait = f" for {format_duration(self.hold_ms)}" if self.hold_ms else ""
        return f"{metric.title} {self.sign} {shown(self.threshold, metric.unit)}{wait}"


DEFAULTS = (
    "lag_seconds > 60 for 1m",
    "p99 > 5s for 1m",
    "commit_ms > 10s for 1m",
    "late_rate > 5% for 1m",
    "dead_letter_rate > 1% for 1m",
    "quarantined_rate > 5% for 1m",
    "state_bytes > 2GB for 1m",
    "heap_share > 90% for 1m",
    "up < 1 for 15s",
)
"""What is watched unless the user says otherwise: symptoms that hurt whatever the pipeline does."""


def parse_alarm(text: str) -> Alarm:
    """Reads an expression.

    >>> parse_alarm("late_rate > 1% for 1m").threshold
    0.01
    >>> parse_alarm("no events for 2m").metric
    'idle_seconds'
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise InvalidAlarmError(f"{str(text)[:_LONGEST]!r} is not an alarm.", fix=_FIX)
    trimmed = " ".join(text.split())
    silence = _SILENCE.fullmatch(trimmed)
    if silence is not None:
        span = _span(trimmed, silence["span"])
        return Alarm(trimmed, "idle_seconds", ">", span / 1000, 0)
    found = _EXPRESSION.fullmatch(trimmed)
    if found is None:
        raise InvalidAlarmError(
            f"{trimmed!r} is not an alarm.", why="It is: metric, sign, value, for how long.", fix=_FIX
        )
    metric = METRICS.get(found["metric"])
    if metric is None:
        nearest = closest(found["metric"], METRICS)
        raise InvalidAlarmError(
            f"{trimmed!r}: there is no metric `{found['metric']}`.",
            why=f"There are: {', '.join(METRICS)}.",
            fix=f"did you mean `{nearest}`?" if nearest else _FIX,
        )
    threshold = _value(trimmed, found["number"].replace("_", ""), found["unit"], metric.unit)
    hold = 0 if found["hold"] is None else _span(trimmed, found["hold"])
    return Alarm(trimmed, metric.name, found["sign"], threshold, hold)


def _span(text: str, span: str) -> int:
    try:
        return parse_duration(span)
    except InvalidDurationError as problem:
        raise InvalidAlarmError(f"{text!r}: {problem.what}", fix=_FIX) from problem


def _value(text: str, number: str, suffix: str, unit: Unit) -> float:
    """The threshold in the metric's own unit."""
    value = float(number)
    if not suffix:
        return value
    factor: float | None = None
    match unit:
        case Unit.SHARE | Unit.RATIO if suffix == "%":
            factor = 0.01
        case Unit.RATIO if suffix == "x":
            factor = 1.0
        case Unit.BYTES:
            factor = _BYTES.get(suffix.lower())
        case Unit.SECONDS:
            factor = _SPANS.get(suffix)
        case Unit.MILLISECONDS if suffix in _SPANS:
            factor = _SPANS[suffix] * 1000
        case Unit.EVENTS | Unit.ROWS | Unit.PER_SECOND if suffix in ("k", "M"):
            factor = 1e3 if suffix == "k" else 1e6
    if factor is None:
        raise InvalidAlarmError(f"{text!r}: `{suffix}` is no unit of a metric in {unit.value}.", fix=_FIX)
    # One product of two decimals may be off by a hair, which would show: 1% is 0.01.
    return float(f"{value * factor:.12g}")
