"""Rows into a folder of Parquet files, and rows shown on the terminal."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SinkUnavailableError
from headrace.pipeline.schema import Column, Schema
from headrace.pipeline.sink import Guarantee
from headrace.sinks.protocol import Batch, Refuse, StoreSink
from headrace.sinks.text import is_nested, to_json

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class FilesSink(StoreSink):
    """See `hr.sinks.files`.

    A task writes under a hidden name; the driver renames when all tasks are done. The name follows from the batch and
    the partition, so a batch that is repeated after a crash puts the same files in the same places.
    """

    kind: ClassVar[str] = "files"
    takes_nested: ClassVar[bool] = True

    path: str

    @property
    def target(self) -> str:
        """The folder."""
        return self.path

    @property
    def needs_ids(self) -> bool:
        """No: batches are told apart, not rows."""
        return False

    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """Exactly once into the folder; what the topic repeats is repeated."""
        return Guarantee(
            "at least once" if repeats else "exactly once",
            "a file is named after its batch and partition and appears by an atomic rename: a repeated batch replaces"
            " its own files" + ("; the topic may have a row twice, with the same headrace-id" if repeats else ""),
            "files moved away while their batch is still repeated; a folder on storage without atomic rename",
        )

    def check(self, columns: Schema | None) -> None:
        """Whether the folder can be written to."""
        make_folder(Path(self.path), self.name)

    def prepare(self, columns: tuple[Column, ...]) -> None:
        """Make the folder."""
        make_folder(Path(self.path), self.name)

    def begin(self, batch: Batch) -> bool:
        """Always; what an attempt that failed left behind is removed."""
        for left in Path(self.path).glob(f".{batch.writer}-*.tmp"):
            left.unlink(missing_ok=True)
        return True

    def write(
        self, batch: Batch, partition: int, rows: Iterator[pa.RecordBatch], refuse: Refuse
    ) -> dict[str, Any] | None:
        """One file."""
        hidden = Path(self.path) / f".{batch.writer}-{uuid.uuid4().hex}.tmp"
        written = write_parquet(hidden, rows, batch.names)
        if not written:
            return {}
        return {"file": hidden.name, "name": f"{batch.writer}-{batch.number:08}-{partition:05}.parquet"}

    def commit(self, batch: Batch, results: list[dict[str, Any]]) -> None:
        """Rename."""
        folder = Path(self.path)
        for result in results:
            if result:
                (folder / result["file"]).replace(folder / result["name"])
        flush_folder(folder)


@dataclass(frozen=True, repr=False)
class ConsoleSink(StoreSink):
    """See `hr.sinks.console`."""

    kind: ClassVar[str] = "console"

    rows: int

    @property
    def target(self) -> str:
        """The terminal."""
        return f"({self.rows} rows of a batch)"

    def __str__(self) -> str:
        return self.kind

    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """For a look only."""
        why = "a batch is shown when it is done, and again if it is repeated; beyond the first rows only their number"
        return Guarantee("at least once", why, "nothing: it is for a look, not for keeping")

    def write(
        self, batch: Batch, partition: int, rows: Iterator[pa.RecordBatch], refuse: Refuse
    ) -> dict[str, Any] | None:
        """The first rows as JSON lines, and how many there are."""
        nested = [c.name for c in batch.columns if is_nested(c)]
        lines: list[str] = []
        count = 0
        for chunk in rows:
            count += chunk.num_rows
            wanted = chunk.slice(0, max(0, self.rows - len(lines))).select(list(batch.names))
            lines += [to_json(row, nested) for row in wanted.to_pylist()]
        return {"lines": lines, "count": count}

    def commit(self, batch: Batch, results: list[dict[str, Any]]) -> None:
        """Show them."""
        lines = [line for result in results for line in result.get("lines", ())]
        count = sum(result.get("count", 0) for result in results)
        shown = lines[: self.rows]
        if count > len(shown):
            shown.append(f"... {count - len(shown)} more rows of batch {batch.number}")
        if shown:
            sys.stdout.write("\n".join(shown) + "\n")
            sys.stdout.flush()


def write_parquet(file: Path, rows: Iterator[pa.RecordBatch], names: tuple[str, ...]) -> int:
    """Write the columns of the rows, and see to it that they are on disk; returns how many there are."""
    import pyarrow.parquet as pq

    count = 0
    writer: Any = None
    try:
        for chunk in rows:
            wanted = chunk.select(list(names))
            writer = writer or pq.ParquetWriter(file, wanted.schema, compression="zstd")
            writer.write_batch(wanted)
            count += chunk.num_rows
    finally:
        if writer is not None:
            writer.close()
    if count:
        with file.open("rb+") as written:
            os.fsync(written.fileno())
    return count


def make_folder(folder: Path, sink: str) -> None:
    """Make a folder that rows can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SinkUnavailableError(
            f"the folder of sink `{sink}` can't be made: {folder}.", why=str(problem), fix="choose another path."
        ) from problem
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SinkUnavailableError(
            f"the folder of sink `{sink}` can't be written to: {folder}.",
            why="This user has no right to.",
            fix="choose another path, or change its rights.",
        )


def flush_folder(folder: Path) -> None:
    """Let the names in a folder survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
