"""What a run tells about itself: small records made from Spark's progress events, for views, files and alarms."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from headrace.engine.control import is_control
from headrace.engine.outputs import OBSERVED, OBSERVED_LETTERS
from headrace.engine.settings import Mode
from headrace.kernel import doorway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Progress:
    """One batch of one query."""

    at: str
    query: str
    mode: str
    batch: int
    input_rows: int
    rows_per_second: float
    lag: int | None
    """Records in the log that are not read yet; None where the source does not say."""
    watermark: str | None
    state_rows: int
    state_bytes: int
    """Of the state stores' files. What is not flushed yet is in memory, in all its versions, and says little of it."""
    batch_ms: int
    commit_ms: int
    late: int
    duplicates: int
    quarantined: int
    dead_letters: int
    state_memory_bytes: int = 0
    """What the state stores take in memory: what is not flushed yet, and caches."""
    positions: dict[str, dict[str, int]] = field(default_factory=dict)
    """By topic and partition, the offset of the record that it reads next."""
    event: str = "progress"


@dataclass(frozen=True)
class Event:
    """Something else that happened to a query: started, switched, stopped, failed."""

    event: str
    query: str
    mode: str
    at: str
    message: str = ""


Record = Progress | Event
Listener = Callable[[Record], None]


def event(name: str, query: str, mode: str, message: str = "") -> Event:
    """An event now."""
    return Event(name, query, mode, datetime.now(UTC).isoformat(timespec="milliseconds"), message)


def to_file(path: Path) -> Listener:
    """A listener that appends JSON lines to a file, each whole at once, so that another process may read along."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(record: Record) -> None:
        with path.open("a") as lines:
            lines.write(json.dumps(asdict(record)) + "\n")

    return write


def from_spark(progress: dict[str, Any], mode: str) -> Progress:
    """Spark's own JSON of a StreamingQueryProgress as a record."""
    operators = progress.get("stateOperators") or []
    durations = progress.get("durationMs") or {}
    metrics = progress.get("observedMetrics") or {}
    observed = (metrics.get(OBSERVED) or {}) | (metrics.get(OBSERVED_LETTERS) or {})
    watermark = (progress.get("eventTime") or {}).get("watermark")
    return Progress(
        at=progress["timestamp"],
        query=progress.get("name") or "",
        mode=mode,
        batch=progress["batchId"],
        input_rows=(progress.get("numInputRows") or 0) - _control_rows(progress.get("sources") or []),
        rows_per_second=round(progress.get("processedRowsPerSecond") or 0.0, 1),
        lag=_lag(progress.get("sources") or []),
        # Spark says 1970 where there is no watermark yet.
        watermark=None if watermark is None or watermark.startswith("1970-01-01") else watermark,
        state_rows=sum(o.get("numRowsTotal") or 0 for o in operators),
        state_bytes=sum(_state_bytes(o) for o in operators),
        batch_ms=durations.get("triggerExecution") or 0,
        commit_ms=sum(durations.get(k) or 0 for k in ("walCommit", "commitOffsets"))
        + max((o.get("commitTimeMs") or 0 for o in operators), default=0),
        late=observed.get("late") or 0,
        duplicates=observed.get("duplicates") or 0,
        quarantined=observed.get("quarantined") or 0,
        dead_letters=observed.get("dead_letters") or 0,
        state_memory_bytes=sum(o.get("memoryUsedBytes") or 0 for o in operators),
        positions=_positions(progress.get("sources") or []),
    )


def _state_bytes(operator: dict[str, Any]) -> int:
    files = (operator.get("customMetrics") or {}).get("rocksdbSstFileSize")
    return int(files if files is not None else operator.get("memoryUsedBytes") or 0)


def _positions(sources: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    read: dict[str, dict[str, int]] = {}
    for source in sources:
        end = source.get("endOffset")
        for topic, partitions in (end if isinstance(end, dict) else {}).items():
            if not is_control(topic):
                read[topic] = dict(partitions)
    return read


def _control_rows(sources: list[dict[str, Any]]) -> int:
    rows = 0
    for source in sources:
        start, end = source.get("startOffset"), source.get("endOffset")
        for topic, partitions in (end if isinstance(end, dict) else {}).items():
            if is_control(topic):
                before = (start if isinstance(start, dict) else {}).get(topic, {})
                rows += sum(offset - before.get(partition, 0) for partition, offset in partitions.items())
    return rows


def _lag(sources: list[dict[str, Any]]) -> int | None:
    behind: list[int] = []
    for source in sources:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict):
            return None
        for topic, partitions in latest.items():
            if is_control(topic):
                continue
            for partition, offset in partitions.items():
                behind.append(max(0, offset - end.get(topic, {}).get(partition, 0)))
    return sum(behind)


_REALTIME_AGE_MS = 1_000
"""In real time a batch is told of when the next one is under way: nothing stands in the way of its start."""


class Telling:
    """Tells of every batch of these queries, in a thread of its own: `raw` as Spark does, `listener` as a record."""

    def __init__(
        self,
        spark: SparkSession,
        queries: Collection[str],
        mode: Callable[[], Mode],
        listener: Listener,
        raw: Callable[[dict[str, Any]], None],
        report: Callable[[str], None],
    ) -> None:
        self._feed = doorway.ProgressFeed(spark, sorted(queries))
        self._mode = mode
        self._listener = listener
        self._raw = raw
        self._report = report
        self._thread = threading.Thread(target=self._tell, name="headrace-progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell of what Spark has told, and end."""
        self._feed.end()
        self._thread.join()

    def _tell(self) -> None:
        with suppress(Py4JError, OSError):  # the JVM ends
            while (progress := self._feed.next(self._age())) is not None:
                try:
                    self._raw(progress)
                    self._listener(from_spark(progress, self._mode().value))
                except Exception as problem:  # noqa: BLE001 - whatever a listener does, the next batch is told of
                    self._report(f"a listener failed at batch {progress['batchId']}: {problem}")

    def _age(self) -> int:
        return _REALTIME_AGE_MS if self._mode() is Mode.REALTIME else 0
