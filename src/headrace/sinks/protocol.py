"""What a store implements to be a sink. It is small, and holds no Spark: rows come as Arrow record batches.

The engine calls, for each batch of a sink's query:

    driver    begin(batch)                    the store may say that it has this batch already
    workers   write(batch, partition, rows)   each partition once, side by side; gives back a small result
    driver    commit(batch, results)          what makes the batch visible, in stores that decide it there

A batch that fails on the way is repeated from `begin`, after a crash too, with the same number, the same rows in the
same partitions and the same order. A store makes exactly-once of that in one of three ways: a marker written together
with the data (Postgres, Redis, Delta), names that follow from the batch (files), or keys by which repeats collapse.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import MissingExtraError
from headrace.pipeline.schema import Column, Schema
from headrace.pipeline.sink import Guarantee, Sink

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ID", "OFFSET", "PARTITION", "Batch", "Guarantee", "NeedsCare", "Refuse", "StoreSink", "client"]

ID = "__hr_id"
"""The row's id, the same whenever it comes again: the `headrace-id` of its record, else topic/partition/offset."""
PARTITION = "__hr_partition"
OFFSET = "__hr_offset"
CARRIED = (ID, PARTITION, OFFSET)
"""What each row has beside its own columns: after them, in this order."""

ROW_KIND = "row_kind"
"""The column that makes a changelog of a stream: +I and +U put a row, -U and -D take it away."""
TAKES_AWAY = ("-U", "-D")

Refuse = Callable[["pa.RecordBatch", str], None]
"""Hands rows that the store will never take to the dead letters, with the reason."""


class NeedsCare(Exception):
    """Raised by `write` when the store refused some of many rows: the batch comes again with `careful` set."""


@dataclass(frozen=True)
class Batch:
    """One batch of one sink's query."""

    writer: str
    """Who writes: a name that no other query and no other checkpoint has."""
    number: int
    columns: tuple[Column, ...]
    """The stream's columns. A nested one comes as JSON text, unless the sink takes nested values."""
    careful: bool = False
    """Row by row, or nearly: to find those that the store refuses."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def changes(self) -> str | None:
        """The name of the column that says what kind of change a row is, if there is one."""
        return next((name for name in self.names if name.lower() == ROW_KIND), None)


class StoreSink(Sink):
    """A sink that can be written to. Declarations are pickled to the workers: they hold no connections."""

    takes_nested: ClassVar[bool] = False
    """Whether structs, arrays and maps come as they are; else as JSON text."""
    latest_only: ClassVar[bool] = False
    """Whether only the last row of each key in a batch is wanted, and each key in one partition."""

    applies_changes: ClassVar[bool] = False
    """Whether, with a key, a row that takes away is applied and not kept: deletes delete."""

    @property
    def needs_ids(self) -> bool:
        """Whether rows must have their ids; they are null otherwise."""
        return True

    def check(self, columns: Schema | None) -> None:
        """Before anything starts: whether the store answers, and fits what is known of the columns."""

    def prepare(self, columns: tuple[Column, ...]) -> None:
        """Once per run, before the first batch: make or widen what rows are written to."""

    def begin(self, batch: Batch) -> bool:
        """Whether the batch is still to be written."""
        return True

    @abstractmethod
    def write(
        self, batch: Batch, partition: int, rows: Iterator[pa.RecordBatch], refuse: Refuse
    ) -> dict[str, Any] | None:
        """Write a partition's rows, which are in the order of the log. The result goes to `commit`, as JSON."""

    def commit(self, batch: Batch, results: list[dict[str, Any]]) -> None:
        """Make the batch visible."""

    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return ()

    def mask(self, text: str) -> str:
        """The text without secrets."""
        for secret in self.secrets():
            text = text.replace(secret, "***") if secret else text
        return text


def client(module: str, sink: str) -> Any:
    """The client library of a store, or an error that says how to get it."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise MissingExtraError(
            f"the {sink} sink needs `{module.split('.')[0]}`, which is not installed.",
            why=str(problem),
            fix=f"pip install 'headrace[{sink}]'",
        ) from problem
