"""How many rows a micro-batch reads: as many as it may, or so many that a latency target holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEWEST = 100
"""Below this a batch is all fixed cost: fewer rows would not make it shorter."""
_GROWTH = 4.0
"""From one batch to the next at most: one quick batch says little about one ten times its size."""


class Pacer:
    """The size of a query's next batch, from how long the last ones took.

    A record that arrives while a batch runs waits for its end, and is then part of the next: two batches at most. So a
    batch has half of the target.

    >>> pacer = Pacer(RunSettings(latency_target_ms=2000, max_rows_per_batch=10_000))
    >>> pacer.on_batch(rows=10_000, milliseconds=4000), pacer.rows
    (True, 2500)
    """

    def __init__(self, settings: RunSettings) -> None:
        self._most = settings.max_rows_per_batch
        self._budget_ms = None if settings.latency_target_ms is None else settings.latency_target_ms / 2
        # With a target the first batch, which also warms up, is small: nobody knows yet how long a row takes.
        self.rows = self._most if self._budget_ms is None else min(self._most, 10_000)

    def on_batch(self, rows: int, milliseconds: int) -> bool:
        """Take in a batch; whether `rows` is another number now."""
        if self._budget_ms is None or rows <= 0 or milliseconds <= 0:
            return False
        full = rows >= 0.9 * self.rows
        if not full and milliseconds <= self._budget_ms:
            return False  # it took all there was, in time: nothing learnt about larger ones
        wanted = rows * self._budget_ms / milliseconds
        if full:
            wanted = min(wanted, self.rows * _GROWTH)
        fitting = max(min(FEWEST, self._most), min(self._most, int(wanted)))
        changed = fitting != self.rows
        self.rows = fitting
        return changed


class Pacing:
    """Holds the intake of a run's queries to their rate and their batch size."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._readers: dict[str, tuple[str, Pacer]] = {}

    def begin(self, spark: SparkSession, query: str, reader: str) -> str:
        """A query is about to start, whose source asks under the name `reader`."""
        from headrace.kernel import doorway

        pacer = Pacer(self._settings)
        self._readers[query] = reader, pacer
        doorway.limit_rate(spark, reader, self._settings.max_rate)
        doorway.limit_batches(spark, reader, pacer.rows)
        return reader

    def on_progress(self, spark: SparkSession, progress: dict[str, Any]) -> None:
        """Take in a batch (Spark's own JSON)."""
        from headrace.kernel import doorway

        reader, pacer = self._readers.get(progress.get("name") or "", (None, None))
        if reader is None or pacer is None:
            return
        took = (progress.get("durationMs") or {}).get("triggerExecution") or 0
        if pacer.on_batch(progress.get("numInputRows") or 0, took):
            doorway.limit_batches(spark, reader, pacer.rows)
