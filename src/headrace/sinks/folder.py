"""What sinks that write Parquet into a folder share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SinkUnavailableError
from headrace.pipeline.schema import Column, Schema
from headrace.sinks.protocol import StoreSink

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class FolderSink(StoreSink):
    """A sink whose rows end up in files below a folder."""

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

    def check(self, columns: Schema | None) -> None:
        """Whether the folder can be written to."""
        make_folder(Path(self.path), self.name)

    def prepare(self, columns: tuple[Column, ...]) -> None:
        """Make the folder."""
        make_folder(Path(self.path), self.name)


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
