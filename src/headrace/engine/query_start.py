"""A query of a run: how it is started in each mode, and when it has begun to work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.engine.control import needs_claims
from headrace.engine.plan import QueryPlan
from headrace.engine.session import started_with
from headrace.engine.settings import NO_RESULTS_WAIT, REALTIME, Mode, RunSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_POLL_SECONDS = 0.1


def start_query(
    spark: SparkSession, writer: DataStreamWriter, plan: QueryPlan, settings: RunSettings, phase: Mode, *, ends: bool
) -> StreamingQuery:
    """Start what a writer describes. With `ends` it stops by itself, at the end of what is in the log."""
    if phase is Mode.REALTIME:
        interval = f"{settings.checkpoint_interval_ms} milliseconds"
        # PySpark's type hints do not know the real-time trigger yet.
        with started_with(spark, REALTIME):
            started: StreamingQuery = writer.trigger(realTime=interval).start()  # type: ignore[call-overload]
        return started
    # Available-now fixes its input when it starts: claims that are made on the way would never be read.
    if ends and not needs_claims(plan):
        with started_with(spark, {} if plan.results_wait else NO_RESULTS_WAIT):
            return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.batch_interval_ms} milliseconds").start()


def works(spark: SparkSession, query: StreamingQuery, phase: Mode, is_stopping: Callable[[], bool]) -> bool:
    """Wait until it is ready, in real time until its first batch runs, for only then does it read: whether it came to
    that, or ended before.
    """
    tracker = spark.sparkContext.statusTracker()
    while query.isActive and not is_stopping():
        if phase is not Mode.REALTIME and not query.status["message"].startswith("Initializing"):
            return True
        stages = (tracker.getStageInfo(i) for i in tracker.getActiveStageIds())
        if any(s is not None and s.numActiveTasks > 0 for s in stages) or query.lastProgress is not None:
            return True
        time.sleep(_POLL_SECONDS)
    return False
