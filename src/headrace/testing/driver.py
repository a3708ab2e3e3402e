"""The driver: runs a pipeline step by step, in the test's own process."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headrace.engine.contracts import as_json
from headrace.engine.control import Control, claim
from headrace.engine.failures import explain_failure
from headrace.engine.plan import QueryPlan, plan_queries
from headrace.engine.session import check_session, open_session, started_with
from headrace.engine.sink_plan import sink_topics
from headrace.errors import HeadraceError, PipelineError, RunError, TopicNotFoundError, closest
from headrace.pipeline import Pipeline
from headrace.pipeline.durations import Duration, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.kernel.doorway import MemoryLog

Moment = str | int | datetime
"""A time: ISO text (UTC if it names no zone), milliseconds since 1970, or a datetime."""

_CONTROL = "headrace.control"
_QUICK = {
    # How soon a query sees that something is new: a log in memory costs nothing to look at, and tests wait for it.
    "spark.sql.streaming.pollingDelay": "5ms",
    # Java that is generated for a whole stage pays off after many rows; a test sends a few, and waits for its compiler.
    "spark.sql.codegen.wholeStage": "false",
}
_START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Record:
    """A record that the pipeline wrote."""

    topic: str
    key: str | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def row(self) -> dict[str, Any]:
        """The JSON value as a dict; a column that is null is not there."""
        row: dict[str, Any] = {} if self.value is None else json.loads(self.value)
        return row


@dataclass
class _Query:
    plan: QueryPlan
    log: MemoryLog
    running: StreamingQuery
    read: int = 0


@dataclass
class _Positions:
    """Offsets, as a log gives them out."""

    next: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    def take(self, topic: str, partition: int) -> int:
        offset = self.next[topic, partition]
        self.next[topic, partition] = offset + 1
        return offset


class Driver:
    """Runs a pipeline with no broker: send rows, move the watermark and the clock by hand, read any output.

    It runs the plan that a real run would, on the same kernel; only the log is in memory. Each `send` is a batch. Event
    time moves only by `advance_watermark`, and processing time only by `advance_clock`.

    >>> import headrace as hr
    >>> pipeline = hr.Pipeline("views")
    >>> clicks = pipeline.read("clicks", schema="user STRING, at TIMESTAMP").event_time("at").key_by("user")
    >>> clicks.window("per-minute", hr.tumbling("1m"), clicks="count(*)").write("clicks-per-minute")
    >>> with hr.testing.Driver(pipeline) as driver:
    ...     driver.send("clicks", {"user": "ann", "at": "2024-01-01T10:00:05Z"})
    ...     driver.advance_watermark("2024-01-01T10:01:00Z")
    ...     [(row["user"], row["clicks"]) for row in driver.read("clicks-per-minute")]
    [('ann', 1)]
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        spark: SparkSession | None = None,
        start: Moment = _START,
        state_partitions: int = 1,
        registry: str | None = None,
    ) -> None:
        # A test sends and reads rows, not bytes: under a contract too they are JSON here.
        self.pipeline = as_json(pipeline, registry)
        self._plans = plan_queries(self.pipeline, sinks_from_topics=True)
        self._sinks = sink_topics(self.pipeline)
        self._folder = Path(tempfile.mkdtemp(dir=_scratch()))
        self._slots = state_partitions
        self._clock = _millis(start)
        self._watermark: int | None = None
        self._positions = _Positions()
        self._written: dict[str, list[Record]] = defaultdict(list)
        self._seen: dict[str, int] = defaultdict(int)
        self._queries: list[_Query] = []
        if spark is not None:
            check_session(spark)
        self._spark = spark or session()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def send(
        self,
        topic: str,
        *rows: Mapping[str, Any] | str | bytes | None,
        key: str | None = None,
        partition: int = 0,
    ) -> None:
        """Put rows into a topic as one batch, stamped with the clock, and let the pipeline work them off.

        A dict becomes JSON, with times in ISO form; text and bytes are payloads as they are, None is a null payload.
        """
        self._known(topic)
        for row in rows:
            offset = self._positions.take(topic, partition)
            for query in self._readers(topic):
                keyed = None if key is None else key.encode()
                query.log.add(topic, partition, offset, self._clock, keyed, _payload(row))
        self._work()

    def advance_watermark(self, to: Moment) -> None:
        """Let event time have come so far: windows that end by then close. It never goes back."""
        moment = _millis(to)
        if self._watermark is not None and moment < self._watermark:
            raise RunError(
                f"the watermark is at {self.watermark}, and can't go back to {_iso(moment)}.",
                fix="advance it to a later time, or start another Driver.",
                pipeline=self.pipeline.name,
            )
        self._watermark = moment
        self._control(claim(moment))

    def advance_clock(self, by: Duration) -> None:
        """Let processing time pass: triggers that wait for it fire."""
        self._clock += parse_duration(by)
        self._control(None)

    def read(self, topic: str) -> list[dict[str, Any]]:
        """The rows written to a topic, or to a sink by its name, since it was last read. No store is written to."""
        return [record.row for record in self.records(topic)]

    def records(self, topic: str) -> list[Record]:
        """The records written to a topic since it was last read, with key and headers."""
        outputs = dict.fromkeys(name for query in self._queries for name in query.plan.output_topics)
        topic = self._sinks.get(topic, topic)
        if topic not in outputs:
            raise TopicNotFoundError(
                f"pipeline `{self.pipeline.name}` does not write to `{topic}`.",
                why=f"Its outputs: {', '.join(outputs)}",
                fix=f"did you mean `{near}`?" if (near := closest(topic, outputs)) else "read one of them.",
                pipeline=self.pipeline.name,
            )
        start = self._seen[topic]
        self._seen[topic] = len(self._written[topic])
        return self._written[topic][start:]

    @property
    def watermark(self) -> datetime | None:
        """How far event time has come; None before it was moved."""
        return None if self._watermark is None else datetime.fromtimestamp(self._watermark / 1000, UTC)

    @property
    def clock(self) -> datetime:
        """The processing time."""
        return datetime.fromtimestamp(self._clock / 1000, UTC)

    @property
    def state_rows(self) -> int:
        """How many rows the state of all steps has: zero once everything has expired."""
        rows = 0
        for query in self._queries:
            progress = query.running.lastProgress
            if progress is not None:
                rows += sum(s["numRowsTotal"] for s in json.loads(progress.json)["stateOperators"])
        return rows

    def close(self) -> None:
        """Stop the queries and remove their checkpoints. The Spark session stays for the next Driver."""
        for query in self._queries:
            query.running.stop()
        self._queries = []
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self) -> None:
        from headrace.engine.lowering import lower
        from headrace.kernel.doorway import MemoryLog

        self._spark.conf.set("spark.sql.shuffle.partitions", str(self._slots))
        for number, plan in enumerate(self._plans):
            log = MemoryLog(self._spark)
            try:
                lowered = lower(log.records, plan, Control(_CONTROL, claims=True) if plan.stateful else None)
            except PipelineError as problem:
                raise problem.in_pipeline(self.pipeline.name) from problem.__cause__
            name = f"driver_{id(self):x}_{number}"
            writer = lowered.records.writeStream.format("memory").queryName(name).outputMode("update")
            with started_with(self._spark, _QUICK):
                running = writer.option("checkpointLocation", str(self._folder / str(number))).start()
            self._queries.append(_Query(plan, log, running))

    def _readers(self, topic: str) -> list[_Query]:
        return [query for query in self._queries if query.plan.read.topic == topic]

    def _known(self, topic: str) -> None:
        topics = dict.fromkeys(plan.read.topic for plan in self._plans)
        if topic not in topics:
            raise TopicNotFoundError(
                f"pipeline `{self.pipeline.name}` does not read `{topic}`.",
                why=f"It reads: {', '.join(topics)}",
                fix=f"did you mean `{near}`?" if (near := closest(topic, topics)) else "send to one of them.",
                pipeline=self.pipeline.name,
            )

    def _control(self, value: bytes | None) -> None:
        for slot in range(self._slots):
            offset = self._positions.take(_CONTROL, slot)
            for query in self._queries:
                if query.plan.stateful:
                    query.log.add(_CONTROL, slot, offset, self._clock, None, value)
        self._work()

    def _work(self) -> None:
        from headrace.kernel import doorway

        for query in self._queries:
            query.log.flush()
        for query in self._queries:
            try:
                query.running.processAllAvailable()
            except HeadraceError:
                raise
            except Exception as problem:
                raise explain_failure(problem, self.pipeline.name, _session_log) from problem
            new = doorway.written(self._spark, query.running, query.read)
            query.read += len(new)
            for topic, key, value, *headers in new:
                name = _text(topic) or ""
                self._written[name].append(Record(name, _text(key), value, _headers(headers)))


@cache
def _scratch() -> str:
    """The folder of all checkpoints of this process. It goes at the end: Spark writes to a state for a while longer."""
    folder = tempfile.mkdtemp(prefix="headrace-drivers-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_session: SparkSession | None = None
# It outlives the process, since errors name it; each user has one.
_session_log = Path(tempfile.gettempdir()) / f"headrace-testing-{os.getuid()}" / "spark.log"


def session() -> SparkSession:
    """The Spark session that Drivers share in this process; started by the first."""
    global _session
    if _session is None:
        check_session(None)
        _session = open_session("headrace-testing", slots=2, state_partitions=1, log_file=_session_log)
    return _session


def _payload(row: Mapping[str, Any] | str | bytes | None) -> bytes | None:
    if row is None or isinstance(row, bytes):
        return row
    return row.encode() if isinstance(row, str) else json.dumps(dict(row), default=_json).encode()


def _json(value: object) -> str:
    if isinstance(value, datetime):
        return _iso(_millis(value))
    return str(value)


def _millis(moment: Moment) -> int:
    if isinstance(moment, int):
        return moment
    when = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _headers(flat: list[bytes | None]) -> dict[str, str]:
    pairs = zip(map(_text, flat[::2]), map(_text, flat[1::2]), strict=True)
    return {name: value for name, value in pairs if name is not None and value is not None}
