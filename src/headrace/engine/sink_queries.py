"""The queries that feed stores: one per sink, in micro-batches, beside the pipeline's own queries.

A store that is down pauses its query: the batch is tried again with back-off until it succeeds, the log keeps what
comes meanwhile, and nothing else waits. So a sink never ends a run and never loses a row.
"""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.engine import hidden, sql
from headrace.engine.contracts import Contracts
from headrace.engine.dead_letter_box import DeadLetterBox
from headrace.engine.failures import explain_failure
from headrace.engine.plan import QueryPlan, Route
from headrace.engine.progress import Listener, event
from headrace.engine.settings import Mode, RunSettings
from headrace.engine.sink_plan import SinkPlan
from headrace.engine.sink_task import RESULT, SinkTask, in_words
from headrace.errors import HeadraceError, SinkUnavailableError
from headrace.kernel import doorway
from headrace.pipeline.nodes import Read
from headrace.pipeline.schema import Column, Schema
from headrace.sinks.protocol import Batch, StoreSink
from headrace.sinks.text import is_nested

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

Report = Callable[[str], None]

_POLL_SECONDS = 0.1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class _Stopped(Exception):
    """The run ends while a sink waits for its store."""


class SinkQueries:
    """All sink queries of a run."""

    def __init__(
        self,
        plans: tuple[SinkPlan, ...],
        main: tuple[QueryPlan, ...],
        pipeline: str,
        bootstrap: str,
        settings: RunSettings,
        listener: Listener,
        report: Report,
        contracts: Contracts,
    ) -> None:
        self.plans = plans
        self._contracts = contracts
        self.names = frozenset(plan.name for plan in plans)
        # What is no row becomes a dead letter once, whoever reads it: the pipeline's own query, or the first sink.
        taken = {query.read for query in main if query.takes_side_rows}
        first = {plan.read or plan.topic: plan.name for plan in reversed(plans)}
        self._takers = {name for read, name in first.items() if read not in taken}
        letters = [b.topic for query in main for b in query.branches if b.route is Route.DEAD_LETTER]
        self._letters = tuple(letters[:1]) or (f"{pipeline}.dead-letters",)
        self._pipeline = pipeline
        self._bootstrap = bootstrap
        self._settings = settings
        self._listener = listener
        self._report = report
        self._outputs: dict[str, StructType] = {}
        self._stopping = threading.Event()
        self._running: list[tuple[SinkPlan, StreamingQuery]] = []

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that sinks read from the world, not from the pipeline."""
        return tuple(dict.fromkeys(plan.topic for plan in self.plans if plan.read is not None))

    @property
    def dead_letters(self) -> tuple[str, ...]:
        """The topic of the sinks' dead letters, if there are sinks: the one that the pipeline's own go to."""
        return self._letters if self.plans else ()

    def check(self, folder: Path) -> None:
        """Whether the stores answer and fit, before a JVM starts.

        A sink that has run before is not held up: if its store is down, it pauses, and the rest of the pipeline runs.
        """
        for plan in self.plans:
            try:
                _store(plan, () if plan.columns is None else plan.columns.columns).check(plan.columns)
            except HeadraceError as problem:
                if isinstance(problem, SinkUnavailableError) and self._folder(folder, plan).exists():
                    self._report(f"{plan.name}: {problem.what} The query will wait for it.")
                    continue
                place = plan.write.location
                raise type(problem)(
                    problem.what, why=problem.why, fix=problem.fix, location=place, pipeline=self._pipeline
                ) from None

    def learn(self, outputs: dict[str, StructType]) -> None:
        """Take note of the columns of topics that the pipeline writes: only Spark knows all their types."""
        self._outputs |= outputs

    def check_expressions(self, spark: SparkSession) -> None:
        """Whether Spark takes the steps of those that read their source themselves: before any query has written."""
        for plan in self.plans:
            if plan.read is not None:
                self._rows(spark, plan, f"check of {plan.name}")

    def start(self, spark: SparkSession, folder: Path, *, ends: bool) -> None:
        """Start the queries; with `ends` they end when they have written what is in the log now."""
        for plan in self.plans:
            self._running.append((plan, self._start(spark, plan, self._folder(folder, plan), ends)))
            self._listener(event("started", plan.name, Mode.MICROBATCH, str(plan.sink)))
            self._report(f"feeding {plan.sink} from {plan.topic}")

    def drain(self, spark: SparkSession, folder: Path, stopping: threading.Event) -> None:
        """What was replayed is in its topics: write it, until all is written."""
        self.start(spark, folder, ends=True)
        while self.active() and not stopping.wait(_POLL_SECONDS):
            pass

    def stop(self) -> None:
        """Stop the queries."""
        self._stopping.set()
        running, self._running = self._running, []
        for plan, query in running:
            query.stop()
            self._listener(event("stopped", plan.name, Mode.MICROBATCH))

    def let_go(self) -> None:
        """No more waiting for stores: the run ends. Safe from any thread."""
        self._stopping.set()

    def active(self) -> bool:
        """Whether any query still runs."""
        return any(query.isActive for _, query in self._running)

    def raise_failure(self, log_file: Path) -> None:
        """Raise why Spark stopped one of the queries, if it did."""
        for plan, query in self._running:
            problem = query.exception()
            if problem is not None and not self._stopping.is_set():
                self._listener(event("failed", plan.name, Mode.MICROBATCH, str(problem)))
                raise explain_failure(problem, self._pipeline, log_file)

    def _folder(self, folder: Path, plan: SinkPlan) -> Path:
        # Of its topic: positions in one topic are none in another.
        return folder / "sinks" / plan.name / plan.topic

    def _start(self, spark: SparkSession, plan: SinkPlan, folder: Path, ends: bool) -> StreamingQuery:
        identity = _identity(folder, plan)
        rows, columns = self._rows(spark, plan, identity)
        store = _store(plan, columns)
        box = DeadLetterBox(self._bootstrap, plan.topic, self.dead_letters[0], plan.name)
        feed = _Feed(plan, store, columns, identity, box, self._listener, self._report, self._stopping)
        writer = (
            rows.writeStream.queryName(plan.name)
            .foreachBatch(feed)
            .outputMode("append")
            .option("checkpointLocation", str(folder / "spark"))
        )
        if ends:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{plan.sink.every_ms} milliseconds").start()

    def _rows(self, spark: SparkSession, plan: SinkPlan, identity: str) -> tuple[DataFrame, tuple[Column, ...]]:
        from pyspark.sql import functions as F

        from headrace.engine.lowering import lower_rows
        from headrace.engine.source import read_records, with_ids
        from headrace.engine.tombstones import with_deletes

        read = plan.read or Read(plan.topic, _schema(self._outputs[plan.topic]))
        limits = [n for n in (plan.sink.max_rows, self._settings.max_rows_per_batch) if n is not None]
        doorway.limit_batches(spark, identity, min(limits))
        records = read_records(
            spark,
            read,
            self._bootstrap,
            min(limits),
            None,
            # Its tasks are in the order of the log, also when a batch is repeated: a store's marker is that of a task.
            intake=identity,
            includeHeaders=str(plan.ids_from_headers).lower(),
        )
        query = QueryPlan(plan.name, read, plan.steps, (), (), plan.name in self._takers, False)
        store = _store(plan)
        deletes = bool(store.key) and store.applies_changes and plan.read is not None
        identified = with_ids(records, from_headers=plan.ids_from_headers)
        rows = lower_rows(identified, query, self._contracts, tombstones=deletes)
        if deletes:
            rows = with_deletes(rows, _store(plan, tuple(Column(name, None) for name in rows.columns)).key)
            if plan.name not in self._takers:
                # Another query sends on what is no row; a tombstone whose key can't be read is none.
                rows = rows.where(~F.equal_null(hidden.INTAKE_REASON, F.lit(hidden.NO_PAYLOAD)))
        rows = rows.where(F.col(hidden.ROUTE).isin(Route.RESULT.value, Route.DEAD_LETTER.value))
        own = [name for name in rows.columns if not name.startswith("__hr_")]
        columns = tuple(Column(name, rows.schema[name].dataType.simpleString()) for name in own)
        nested = [] if store.takes_nested else [c.name for c in columns if is_nested(c)]
        values = [F.to_json(sql.name(n)).alias(n) if n in nested else F.col(sql.name(n)) for n in own]
        # What few need, few get: each value is copied to the worker and through it.
        dead = F.col(hidden.INTAKE_REASON).isNotNull()
        id = F.col(hidden.ID) if store.needs_ids else F.lit(None).cast("string")
        carried = (
            id.alias(hidden.ID),
            hidden.PARTITION,
            hidden.OFFSET,
            hidden.INTAKE_REASON,
            hidden.RAW,
            F.when(dead, F.col(hidden.RECORD_KEY)).alias(hidden.RECORD_KEY),
        )
        return rows.select(*values, *carried), columns


@dataclass
class _Feed:
    """What each batch of a sink's query runs through, on the driver."""

    plan: SinkPlan
    store: StoreSink
    columns: tuple[Column, ...]
    writer: str
    box: DeadLetterBox
    listener: Listener
    report: Report
    stopping: threading.Event
    prepared: bool = field(default=False)

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Write the batch, however long the store is away."""
        batch = Batch(self.writer, number, self.columns)
        pause, failures = _FIRST_PAUSE, 0
        while not self.stopping.is_set():
            try:
                self._attempt(rows, batch)
            except _StoreFailure as problem:
                failures += 1
                self._tell("paused", f"{problem}; trying again in {pause:.1f} s")
                if self.stopping.wait(pause * random.uniform(0.8, 1.2)):
                    break
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if failures:
                    self._tell("resumed", f"after {failures} failed attempts")
                return
        raise _Stopped(self.plan.name)

    def _attempt(self, rows: DataFrame, batch: Batch) -> None:
        try:
            if not self.prepared:
                self.store.prepare(self.columns)
                self.prepared = True
            if not self.store.begin(batch):
                return
            results = self._run(rows, batch)
            if any("needs_care" in result for result in results):
                results = self._run(rows, replace(batch, careful=True))
            for result in results:
                if "failed" in result or "needs_care" in result:
                    raise _StoreFailure(result.get("failed") or result["needs_care"])
            self.store.commit(batch, [result["written"] or {} for result in results])
        except _StoreFailure:
            raise
        except Exception as problem:
            if self.stopping.is_set():
                raise _Stopped(self.plan.name) from problem
            raise _StoreFailure(self.store.mask(in_words(problem))) from problem

    def _run(self, rows: DataFrame, batch: Batch) -> list[dict[str, Any]]:
        given = _latest(rows, self.store) if self.store.latest_only and self.store.key else rows
        task = SinkTask(self.store, batch, self.box)
        return [json.loads(row["result"]) for row in given.mapInArrow(task, RESULT).collect()]

    def _tell(self, name: str, message: str) -> None:
        self.listener(event(name, self.plan.name, Mode.MICROBATCH, message))
        self.report(f"{self.plan.name}: {name}, {message}")


class _StoreFailure(Exception):
    """The store did not take the batch."""


def _store(plan: SinkPlan, columns: tuple[Column, ...] = ()) -> StoreSink:
    """The sink, with its key written as the stream writes its columns."""
    sink = plan.sink
    assert isinstance(sink, StoreSink)
    known = {c.name.lower(): c.name for c in columns}
    return replace(sink, key=tuple(known.get(name.lower(), name) for name in sink.key))


def _latest(rows: DataFrame, store: StoreSink) -> DataFrame:
    """Of each key the last row, in the order of the log; what is no row stays."""
    from pyspark.sql import functions as F

    dead = rows.where(F.col(hidden.INTAKE_REASON).isNotNull())
    order = F.struct(hidden.OFFSET, hidden.PARTITION)
    last = (
        rows.where(F.col(hidden.INTAKE_REASON).isNull())
        .groupBy(*(F.col(sql.name(name)).alias(f"__hr_k{i}") for i, name in enumerate(store.key)))
        .agg(F.max_by(F.struct(*map(sql.name, rows.columns)), order).alias("row"))
        .select("row.*")
    )
    return last.unionByName(dead)


def _schema(struct: StructType) -> Schema:
    return Schema(tuple(Column(f.name, f.dataType.simpleString()) for f in struct.fields))


def _identity(folder: Path, plan: SinkPlan) -> str:
    """The name under which a checkpoint's query writes; another checkpoint, counting batches anew, has another."""
    file = folder / "writer"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.write_text(f"{plan.name}.{uuid.uuid4().hex[:12]}")
        fresh.replace(file)
    return file.read_text().strip()
