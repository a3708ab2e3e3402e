"""When auto mode may go over to real time: how far behind it is, and whether that is little."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.engine.plan import QueryPlan
from headrace.engine.positions import read_offsets
from headrace.engine.settings import RunSettings
from headrace.log.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class CatchingUp:
    """Passes over what is in the log, each over what came in during the one before."""

    def __init__(self, bootstrap: str, settings: RunSettings) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._began = time.monotonic()

    def begin(self) -> None:
        """A pass begins, over all that is in the log now."""
        self._began = time.monotonic()

    def lag(self, queries: Iterable[tuple[QueryPlan, StreamingQuery]]) -> int:
        """The records that came in since."""
        return sum(self._lag(plan, query) for plan, query in queries)

    def is_done(self, lag: int) -> bool:
        """Whether real time may take over: few records are left, or no more than come in within seconds.

        On a busy topic thousands come in during the shortest of passes; the next pass would leave as many.
        """
        passed_ms = (time.monotonic() - self._began) * 1000
        return lag <= self._settings.switch_lag_rows or passed_ms <= self._settings.switch_lag_ms

    def _lag(self, plan: QueryPlan, query: StreamingQuery) -> int:
        progress = query.lastProgress
        read = {} if progress is None else read_offsets(json.loads(progress.json), plan.read.topic)
        ends = Topics(self._bootstrap).end_offsets(plan.read.topic)
        return sum(max(0, end - read.get(partition, 0)) for partition, end in ends.items())
