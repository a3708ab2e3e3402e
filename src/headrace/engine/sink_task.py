"""What runs in Spark's Python workers: one partition of a batch into a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.engine import hidden
from headrace.engine.dead_letter_box import DeadLetter, DeadLetterBox
from headrace.errors import HeadraceError
from headrace.sinks.protocol import CARRIED, Batch, NeedsCare, Refuse, StoreSink

if TYPE_CHECKING:
    import pyarrow as pa

RESULT = "result string"
_LETTERS_AT_A_TIME = 1_000


@dataclass(frozen=True)
class SinkTask:
    """For `DataFrame.mapInArrow`. It gives back one row per partition: what happened, as JSON.

    A failure is a result too: Spark would otherwise give up the other partitions, and log a trace for what may be no
    more than a database that restarts.
    """

    sink: StoreSink
    batch: Batch
    box: DeadLetterBox

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the partition."""
        import pyarrow as pa
        from pyspark import TaskContext

        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        context = TaskContext.get()
        assert context is not None
        try:
            result = self._write(context.partitionId(), first, batches)
        except NeedsCare as problem:
            result = {"needs_care": self.sink.mask(str(problem))}
        except Exception as problem:  # noqa: BLE001 - whatever a store's client raises, the batch is tried again
            result = {"failed": self.sink.mask(in_words(problem))}
        # What is left of the input must be read: Spark waits for it.
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"result": [json.dumps(result)]})

    def _write(self, partition: int, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> dict[str, object]:
        letters = _Letters(self.box)

        def refuse(refused: pa.RecordBatch, reason: str) -> None:
            letters.add(_refused(refused, reason))

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in _chain(first, rest):
                good, bad = _parted(batch)
                letters.add(bad)
                good = self._keyed(good, refuse)
                if good.num_rows:
                    yield good
            # Before the store commits: a batch that it has is never read again.
            letters.flush()

        written = self.sink.write(self.batch, partition, rows(), refuse)
        letters.flush()
        return {"written": written, "partition": partition, "dead_letters": letters.written}

    def _keyed(self, batch: pa.RecordBatch, refuse: Refuse) -> pa.RecordBatch:
        """The rows that have a key, if the sink needs one."""
        import pyarrow.compute as pc

        for name in self.sink.key:
            empty = batch.column(batch.schema.get_field_index(name)).is_null()
            if empty.true_count:
                refuse(batch.filter(empty), f"the key `{name}` of sink `{self.sink.name}` is null")
                batch = batch.filter(pc.invert(empty))
        return batch


@dataclass
class _Letters:
    """Dead letters on their way: some at a time, for each trip to the log costs connections."""

    box: DeadLetterBox
    waiting: list[DeadLetter] = field(default_factory=list)
    written: int = 0

    def add(self, letters: list[DeadLetter]) -> None:
        self.waiting += letters
        if len(self.waiting) >= _LETTERS_AT_A_TIME:
            self.flush()

    def flush(self) -> None:
        self.written += self.box.put(self.waiting)
        self.waiting = []


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _parted(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[DeadLetter]]:
    """The rows with what a store gets to see of them, and the payloads that are none."""
    import pyarrow.compute as pc

    own = [name for name in batch.schema.names if not name.startswith("__hr_")]
    reasons = batch.column(batch.schema.get_field_index(hidden.INTAKE_REASON))
    seen = batch.select([*own, *CARRIED])
    if reasons.null_count == batch.num_rows:
        return seen, []
    letters = [
        DeadLetter(
            row[hidden.PARTITION],
            row[hidden.OFFSET],
            row[hidden.INTAKE_REASON],
            row[hidden.RECORD_KEY],
            row[hidden.RAW],
            known=True,
        )
        for row in batch.filter(pc.is_valid(reasons)).to_pylist()
    ]
    return seen.filter(pc.is_null(reasons)), letters


def _refused(rows: pa.RecordBatch, reason: str) -> list[DeadLetter]:
    places = rows.select([hidden.PARTITION, hidden.OFFSET]).to_pylist()
    return [DeadLetter(row[hidden.PARTITION], row[hidden.OFFSET], reason) for row in places]


def in_words(problem: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(problem, HeadraceError):
        fix = f"Fix: {problem.fix}" if problem.fix else ""
        return " ".join(f"{problem.what} {problem.why or ''} {fix}".split())
    return " ".join((str(problem) or type(problem).__name__).split())[:500]
