"""Running a pipeline: the checks before, the queries in their mode, the switch to real time, the end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.engine import live_jvm
from headrace.engine.catching_up import CatchingUp
from headrace.engine.checkpoint import Checkpoint, default_checkpoint
from headrace.engine.contracts import Contracts
from headrace.engine.control import needs_claims
from headrace.engine.delivery import check_mode, stays_in_microbatch
from headrace.engine.failures import explain_failure, explained, may_pass
from headrace.engine.kafka_sink import kafka_sink
from headrace.engine.pacing import Pacing
from headrace.engine.plan import QueryPlan, plan_queries
from headrace.engine.positions import PositionReport
from headrace.engine.progress import Listener, Record, Telling, event
from headrace.engine.publishing import Publisher, open_publisher
from headrace.engine.query_start import start_query, works
from headrace.engine.rehearsal import Rehearsal
from headrace.engine.retries import Retries
from headrace.engine.session import check_session, open_session, session_jars
from headrace.engine.settings import Mode, RunSettings
from headrace.engine.sink_plan import plan_sinks
from headrace.engine.sink_queries import SinkQueries
from headrace.engine.slots import task_slots
from headrace.engine.timekeeper import Timekeepers
from headrace.engine.topics import make_outputs, source_partitions
from headrace.errors import BrokerUnavailableError
from headrace.jvm.java import find_java
from headrace.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.engine.lowering import Lowered

Report = Callable[[str], None]
_POLL_SECONDS = 0.1


class Run:
    """One run of one pipeline in this process.

    `start` checks everything, starts Spark and the queries; `wait` blocks until they end (replay) or `stop` is called
    from another thread or a signal handler; both raise what went wrong as a HeadraceError.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        bootstrap: str,
        mode: Mode = Mode.AUTO,
        checkpoint: Path | None = None,
        settings: RunSettings | None = None,
        on_progress: Listener | None = None,
        report: Report | None = None,
        verbose: bool = False,
        spark: SparkSession | None = None,
        registry: str | None = None,
        publish: bool = True,
    ) -> None:
        self._contracts = Contracts(registry)
        self.pipeline = self._contracts.resolved(pipeline)
        self.mode = mode
        self.phase = Mode.MICROBATCH if mode is Mode.AUTO else mode
        """What runs now: in auto mode first micro-batch, then real time."""
        self.preparing = False
        """Whether it waits for jars or the compiler: that may be broken off, and `stop` would come after it."""
        self.has_ended = False
        """Whether a replay has come to the end of the log: it may also be stopped before."""
        self._bootstrap = bootstrap
        self._folder = checkpoint or default_checkpoint(pipeline.name)
        self._settings = settings or RunSettings()
        self._listener: Listener = on_progress or (lambda record: None)
        self._report: Report = report or (lambda message: None)
        self._verbose = verbose
        self._given = spark
        self._spark: SparkSession | None = None
        self._telling: Telling | None = None
        self._queries: list[tuple[QueryPlan, StreamingQuery]] = []
        self._stopping = threading.Event()
        self._checkpoint: Checkpoint | None = None
        self._timekeepers = Timekeepers(bootstrap)
        self._rehearsal: Rehearsal | None = None
        self._streams: list[DataFrame] = []
        self._pacing = Pacing(self._settings)
        self._catching_up = CatchingUp(bootstrap, self._settings)
        self._retries = Retries(self._settings.retry_for_ms / 1000)
        self._publish = publish
        self._publisher: Publisher | None = None
        self.plans = plan_queries(self.pipeline)
        check_mode(pipeline.name, self.plans, mode, self._settings)
        stays = stays_in_microbatch(self.plans, self._settings)
        if mode is Mode.AUTO and stays is not None:
            self.mode = Mode.MICROBATCH
            self._report(f"stays in micro-batch: {stays}")
        self._positions = PositionReport(bootstrap, self._report)
        self._sinks = SinkQueries(
            plan_sinks(self.pipeline),
            self.plans,
            pipeline.name,
            bootstrap,
            self._settings,
            lambda record: self._listener(record),  # the one of the time, which a publisher may stand beside
            self._report,
            self._contracts,
        )

    @property
    def log_file(self) -> Path:
        """Where the JVM logs."""
        return self._folder / "spark.log"

    def start(self) -> None:
        """Check Java, the log and the checkpoint, then start Spark and the queries."""
        if self._given is None:
            find_java()
        check_session(self._given)
        self._sinks.check(self._folder)
        partitions = source_partitions(self._bootstrap, self.plans, self._sinks)
        self._checkpoint = Checkpoint.on(
            self._bootstrap, self._folder, self.pipeline.name, self.plans, self._settings.state_partitions
        )
        try:
            if self._stopping.is_set():
                return
            # Not before all that can be refused has been: a run that never was leaves no topics behind.
            make_outputs(self._bootstrap, self.plans, self._sinks, partitions, self._report)
            self._tell_the_log()
            state_partitions = self._checkpoint.state_partitions
            slots = task_slots(self.plans, (plan.topic for plan in self._sinks.plans), partitions, state_partitions)
            self._spark = self._given or self._open_session(slots, state_partitions)
            if self._stopping.is_set():
                return
            self._spark.conf.set("spark.sql.shuffle.partitions", str(state_partitions))
            queries = {plan.name for plan in self.plans} | {plan.name for plan in self._sinks.plans}
            self._telling = Telling(
                self._spark, queries, lambda: self.phase, self._on_record, self._on_raw, self._report
            )
            with self._explained():
                self._sinks.check_expressions(self._spark)
                self._start_queries()
                if self.mode is not Mode.REPLAY:
                    self._sinks.start(self._spark, self._folder, ends=False)
        except BaseException:
            self.close()
            raise

    def wait(self) -> None:
        """Block until the run ends; in auto mode this is also where it switches to real time."""
        with self._explained():
            while self._spark is not None and not self._stopping.is_set():
                if not self._all_active():
                    self._timekeepers.close()
                    if self.mode is Mode.REPLAY:
                        self._sinks.drain(self._spark, self._folder, self._stopping)
                        self._raise_failure()
                        self.has_ended = not self._stopping.is_set()
                        return
                    if self.mode is Mode.AUTO and self.phase is Mode.MICROBATCH:
                        self._caught_up()
                        continue
                self._stopping.wait(_POLL_SECONDS)
        if self.mode is Mode.REPLAY:
            self._report("stopped before the end of the log; run it again, and it goes on from here")

    def stop(self) -> None:
        """Ask the run to end; safe from a signal handler and from any thread."""
        self._stopping.set()
        self._sinks.let_go()

    def close(self) -> None:
        """Stop the queries and Spark, let go of the checkpoint. Safe to call twice."""
        self._stopping.set()
        self._timekeepers.close()
        if self._rehearsal is not None:
            self._rehearsal.close()
        with live_jvm.unless_it_ends(self._spark):
            self._sinks.stop()
            self._stop_queries()
        self._queries = []
        if self._spark is not None:
            with live_jvm.unless_it_ends(self._spark):
                self._end_telling()
                if self._given is None:
                    self._spark.stop()
            self._spark = None
        if self._publisher is not None:
            self._publisher.close()
        if self._checkpoint is not None:
            self._checkpoint.close()
            self._checkpoint = None

    def __enter__(self) -> Run:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _tell_the_log(self) -> None:
        """From here on a dashboard sees this run."""
        if not self._publish:
            return
        publisher = Publisher(
            self._bootstrap, self.pipeline, self.plans, mode=self.mode, checkpoint=self._folder, heap=self._heap
        )
        self._publisher = open_publisher(publisher, self._report)
        if self._publisher is not None:
            self._listener = self._publisher.beside(self._listener)

    def _open_session(self, slots: int, state_partitions: int) -> SparkSession:
        self.preparing = True
        session_jars(self._report)
        self.preparing = False
        self._report("starting Spark")
        return open_session(
            self.pipeline.name,
            slots=slots,
            state_partitions=state_partitions,
            log_file=self.log_file,
            report=self._report,
            verbose=self._verbose,
        )

    def _start_queries(self) -> None:
        assert self._spark is not None
        assert self._checkpoint is not None
        self._streams = []
        self._catching_up.begin()
        # All of them before the first one starts: what Spark does not take of an expression it says here.
        lowered = [self._lower(plan) for plan in self.plans]
        python = next((found.python for found in lowered if found.python is not None), None)
        if self.mode is Mode.AUTO and python is not None:
            self.mode = Mode.MICROBATCH
            self._report(f"stays in micro-batch: {python.what}")
            self._timekeepers.close()
            lowered = [self._lower(plan) for plan in self.plans]
        if self.phase is Mode.REALTIME:
            self._checkpoint.begin_realtime()
        for plan, found in zip(self.plans, lowered, strict=True):
            self._queries.append((plan, self._start_query(plan, found)))
        for plan, query in self._queries:
            if not works(self._spark, query, self.phase, self._stopping.is_set):
                self._raise_failure()
            self._listener(event("started", plan.name, self.phase))
            self._report(f"running {plan.name} in {self.phase.value} mode")
        if self.phase is Mode.REALTIME:
            self._rehearsal = Rehearsal(self._streams)
            self._rehearsal.start()

    def _lower(self, plan: QueryPlan) -> Lowered:
        from headrace.engine.lowering import lower
        from headrace.engine.source import read_records

        assert self._spark is not None
        assert self._checkpoint is not None
        control = self._timekeepers.begin(plan, self._checkpoint, live=not self._ends())
        max_rows, intake = None, None
        if self.phase is not Mode.REALTIME:
            max_rows = self._settings.max_rows_per_batch
            intake = self._pacing.begin(self._spark, plan.name, self._checkpoint.writer(plan))
        topic = None if control is None else control.topic
        records = read_records(self._spark, plan.read, self._bootstrap, max_rows, topic, intake)
        realtime = self.phase is Mode.REALTIME
        lowered = lower(records, plan, control, self._contracts, realtime=realtime)
        if realtime and lowered.python is not None:
            raise lowered.python.refusal(self.pipeline.name)
        self._checkpoint.check_types(plan, lowered.state_types)
        return lowered

    def _start_query(self, plan: QueryPlan, lowered: Lowered) -> StreamingQuery:
        assert self._spark is not None
        assert self._checkpoint is not None
        self._sinks.learn(lowered.outputs)
        self._streams.append(lowered.records)
        writer = kafka_sink(
            lowered.records,
            plan,
            self._checkpoint,
            bootstrap=self._bootstrap,
            settings=self._settings,
            realtime=self.phase is Mode.REALTIME,
        )
        return start_query(self._spark, writer, plan, self._settings, self.phase, ends=self._ends())

    def _stop_queries(self) -> None:
        for _, query in self._queries:
            query.stop()
        if self._spark is not None and (self._queries or self._sinks.plans):
            # Spark tells of a batch some time after it is done; "stopped" is the last that is told.
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
            self._end_telling()
        for plan, _ in self._queries:
            self._listener(event("stopped", plan.name, self.phase))
            self._close_producers(plan)

    def _end_telling(self) -> None:
        if self._telling is not None:
            self._telling.close()
            self._telling = None

    def _ends(self) -> bool:
        """Whether what runs now ends by itself, at the end of what is in the log."""
        return self.phase is Mode.REPLAY or (self.mode is Mode.AUTO and self.phase is Mode.MICROBATCH)

    def _on_raw(self, progress: dict[str, Any]) -> None:
        self._retries.succeeded(progress.get("name") or "")
        self._timekeepers.on_progress(progress)
        if self.phase is not Mode.REALTIME and self._spark is not None:
            self._pacing.on_progress(self._spark, progress)
        topics = {plan.name: plan.topic for plan in self._sinks.plans}
        if self.phase is Mode.REALTIME:
            topics |= {plan.name: plan.read.topic for plan in self.plans}
        self._positions.on_progress(topics, progress)

    def _all_active(self) -> bool:
        self._raise_failure()
        if self._ends():
            for plan, query in self._queries:
                if query.isActive and needs_claims(plan) and self._timekeepers.finished(plan.name):
                    query.stop()
        # One that failed, and could not be started again yet, has not come to its end.
        return any(query.isActive or query.exception() is not None for _, query in self._queries)

    def _raise_failure(self) -> None:
        for number, (plan, query) in enumerate(self._queries):
            problem = query.exception()
            if problem is None:
                continue
            error = explain_failure(problem, self.pipeline.name, self.log_file)
            pause = self._retries.pause(plan.name) if may_pass(problem) else None
            if pause is None:
                self._listener(event("failed", plan.name, self.phase, str(problem)))
                raise error
            # Only this query waits; the others of the run go on.
            self._listener(event("retrying", plan.name, self.phase, f"{error.what} Again in {pause:g} s."))
            self._close_producers(plan)
            self._timekeepers.end(plan.name)
            if not self._stopping.wait(pause):
                with contextlib.suppress(BrokerUnavailableError):  # then it has failed once more
                    self._queries[number] = (plan, self._start_query(plan, self._lower(plan)))
        self._sinks.raise_failure(self.log_file)

    def _caught_up(self) -> None:
        """All of what was there is done. If little came in meanwhile, real time takes over from the same checkpoint."""
        try:
            lag = self._catching_up.lag(self._queries)
        except BrokerUnavailableError:
            pause = self._retries.pause(self.pipeline.name)
            if pause is None:
                raise
            self._stopping.wait(pause)
            return
        self._retries.succeeded(self.pipeline.name)
        if self._catching_up.is_done(lag):
            for plan, _ in self._queries:
                self._close_producers(plan)
                self._listener(event("switching", plan.name, Mode.REALTIME, f"lag is {lag} rows"))
            self.phase = Mode.REALTIME
        else:
            self._report(f"{lag:,} records came in meanwhile: catching up further")
        self._queries = []
        self._start_queries()

    def _close_producers(self, plan: QueryPlan) -> None:
        if self._spark is None or self._checkpoint is None:
            return
        from headrace.kernel import doorway

        doorway.close_producers(self._spark, self._checkpoint.writer(plan))

    def _tell_failure(self, what: str) -> None:
        """To whom watches: no query tells that it has failed, where none runs or the JVM is gone."""
        if self._publisher is not None:
            self._publisher.take(event("failed", self.pipeline.name, self.phase, what[:500]))

    def _on_record(self, record: Record) -> None:
        # A sink's query runs in micro-batches, whatever the pipeline's own do.
        self._listener(replace(record, mode=Mode.MICROBATCH.value) if record.query in self._sinks.names else record)

    def _heap(self) -> tuple[int, int] | None:
        return None if self._spark is None else live_jvm.heap(self._spark)

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.pipeline.name, self.log_file, self._tell_failure, self._ends_with_its_jvm)

    def _ends_with_its_jvm(self) -> bool:
        return self._stopping.is_set() and self._spark is not None and live_jvm.ends(self._spark)
