"""Alarms at work: each is ok, pending (its condition holds, not long enough yet) or firing, for each pipeline."""

from __future__ import annotations

import json
import queue
import threading
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.error import URLError

from confluent_kafka import KafkaException, Producer

from headrace.engine.publishing import BROKERS_CHOICE
from headrace.errors import DashboardError, HeadraceError, InvalidAlarmError
from headrace.log.producer import producer_config
from headrace.log.topics import Topics
from headrace.metrics import METRICS, shown
from headrace.ops.measuring import Values
from headrace.ops.runs import Pipeline
from headrace.pipeline.alarms import DEFAULTS, Alarm, parse_alarm

TOPIC = "headrace.alarms"
TOPIC_CONFIG = {"retention.ms": "-1", "retention.bytes": str(16 * 1024 * 1024), "segment.bytes": str(4 * 1024 * 1024)}
_WEBHOOK_SECONDS = 5.0
_WEBHOOK_TRIES = 3
_MOST_CHANGES = 200

Change = dict[str, Any]


@dataclass
class State:
    """One alarm of one pipeline."""

    alarm: Alarm
    state: str = "ok"
    since: float = 0.0
    value: float | None = None

    def evaluate(self, value: float | None, now: float) -> bool:
        """The next state; True if it changed."""
        before, self.value = self.state, value
        if not self.alarm.holds(value):
            self.state = "ok"
        elif before == "ok":
            self.state = "firing" if self.alarm.hold_ms == 0 else "pending"
        elif before == "pending" and now - self.since >= self.alarm.hold_ms / 1000:
            self.state = "firing"
        if self.state != before:
            self.since = now
        return self.state != before


class Alarms:
    """The alarms of all pipelines: the defaults or those of a file, and what a pipeline declares itself.

    An alarm of a pipeline takes the place of a default on the same metric: it knows better.
    """

    def __init__(self, conditions: Iterable[str] = DEFAULTS, *, only: dict[str, list[str]] | None = None) -> None:
        self._common = tuple(parse_alarm(text) for text in conditions)
        self._only = {name: tuple(parse_alarm(text) for text in texts) for name, texts in (only or {}).items()}
        self._states: dict[str, dict[str, State]] = {}
        self._declared: dict[str, tuple[str, ...]] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self._closers: list[Callable[[], None]] = []
        self.changes: deque[Change] = deque(maxlen=_MOST_CHANGES)

    def on_change(self, listener: Callable[[Change], None], close: Callable[[], None] | None = None) -> None:
        """Told whenever an alarm begins to fire or clears."""
        self._listeners.append(listener)
        if close is not None:
            self._closers.append(close)

    def close(self) -> None:
        """Let go of whoever is told."""
        for close in self._closers:
            close()

    def evaluate(self, pipeline: Pipeline, values: Values, now: float) -> None:
        """Takes the numbers of a pipeline at a time."""
        states = self._states.get(pipeline.name)
        if states is None or self._declared.get(pipeline.name) != pipeline.alarms:
            states = self._refresh(pipeline)
        for state in states.values():
            was = state.state
            if state.evaluate(values.get(state.alarm.metric), now) and "firing" in (was, state.state):
                self._tell(pipeline.name, state, now)

    def of(self, pipeline: str) -> list[dict[str, Any]]:
        """The alarms of a pipeline with their states, the worst first."""
        rank = {"firing": 0, "pending": 1, "ok": 2}
        states = sorted(self._states.get(pipeline, {}).values(), key=lambda s: rank[s.state])
        return [
            {
                "alarm": s.alarm.text,
                "metric": s.alarm.metric,
                "state": s.state,
                "since": s.since or None,
                "value": s.value,
                "shown": shown(s.value, METRICS[s.alarm.metric].unit),
            }
            for s in states
        ]

    def counts(self) -> Counter[str]:
        """How many are in each state."""
        return Counter(s.state for states in self._states.values() for s in states.values())

    def _refresh(self, pipeline: Pipeline) -> dict[str, State]:
        own = [*self._only.get(pipeline.name, ())]
        for text in pipeline.alarms:
            try:
                own.append(parse_alarm(text))
            except InvalidAlarmError:
                continue  # announced by another version, which knows more metrics
        named = {alarm.metric for alarm in own}
        wanted = [*own, *(a for a in self._common if a.metric not in named)]
        before = self._states.get(pipeline.name, {})
        states = {a.text: before.get(a.text) or State(a) for a in wanted}
        self._states[pipeline.name] = states
        self._declared[pipeline.name] = pipeline.alarms
        return states

    def _tell(self, pipeline: str, state: State, now: float) -> None:
        change = {
            "event": "firing" if state.state == "firing" else "cleared",
            "pipeline": pipeline,
            "alarm": state.alarm.text,
            "metric": state.alarm.metric,
            "value": state.value,
            "shown": shown(state.value, METRICS[state.alarm.metric].unit),
            "at": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
        }
        self.changes.append(change)
        for listener in self._listeners:
            listener(change)


def read_alarms(text: str, file: str) -> Alarms:
    """Alarms from YAML: `alarms` for all pipelines (instead of the defaults), `pipelines` for one each.

    >>> alarms = read_alarms("pipelines: {card-fraud: ['p99 > 50ms for 1m']}", "alarms.yaml")
    """
    import yaml

    try:
        found = yaml.safe_load(text) or {}
        if not isinstance(found, dict) or set(found) - {"alarms", "pipelines"}:
            raise ValueError("it may have `alarms` (a list) and `pipelines` (a list for each name), and nothing else")
        common = found.get("alarms", list(DEFAULTS))
        only = found.get("pipelines") or {}
        if not isinstance(common, list) or not all(isinstance(v, list) for v in only.values()):
            raise ValueError("alarms are lists of texts")
        return Alarms(map(str, common), only={str(k): [str(t) for t in v] for k, v in only.items()})
    except (yaml.YAMLError, ValueError, AttributeError) as problem:
        fix = 'alarms:\n  - "lag_seconds > 60 for 5m"\npipelines:\n  card-fraud:\n    - "p99 > 500ms for 1m"'
        raise DashboardError(f"{file} is not a file of alarms.", why=str(problem), fix=fix) from problem
    except InvalidAlarmError as problem:
        raise DashboardError(f"{file}: {problem.what}", why=problem.why, fix=problem.fix) from problem


def to_topic(alarms: Alarms, bootstrap: str) -> None:
    """Write every change to the topic `headrace.alarms`."""
    Topics(bootstrap, timeout=15).create(
        TOPIC, partitions=1, replication=BROKERS_CHOICE, config=TOPIC_CONFIG, exist_ok=True
    )
    producer = Producer(producer_config(bootstrap, **{"queue.buffering.max.messages": 1000}))

    def write(change: Change) -> None:
        try:
            producer.produce(TOPIC, json.dumps(change).encode(), str(change["pipeline"]).encode())
            producer.poll(0)
        except (BufferError, KafkaException):
            return  # the log is down, which the page shows by itself

    def close() -> None:
        producer.flush(5)

    alarms.on_change(write, close)


def to_webhook(alarms: Alarms, url: str, report: Callable[[str], None]) -> None:
    """POST every change as JSON, on a thread of its own; a receiver that does not answer is tried three times."""
    if not url.startswith(("http://", "https://")):
        raise HeadraceError("the webhook is no web address.", fix="give one that begins with https:// or http://")
    waiting: queue.Queue[Change | None] = queue.Queue(maxsize=1000)

    def send() -> None:
        while (change := waiting.get()) is not None:
            body = json.dumps(change).encode()
            for attempt in range(_WEBHOOK_TRIES):
                request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
                try:
                    with urllib.request.urlopen(request, timeout=_WEBHOOK_SECONDS):
                        break
                except (URLError, OSError, ValueError) as problem:
                    if attempt == _WEBHOOK_TRIES - 1:
                        # Not the address: it may carry a secret.
                        report(f"the webhook did not take an alarm: {type(problem).__name__}")

    thread = threading.Thread(target=send, name="headrace-webhook", daemon=True)
    thread.start()

    def offer(change: Change) -> None:
        try:
            waiting.put_nowait(change)
        except queue.Full:
            report("the webhook is too slow: an alarm was not sent")

    def close() -> None:
        waiting.put(None)
        thread.join(10)

    alarms.on_change(offer, close)
