"""Rows into a folder of Parquet files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.pipeline.sink import Guarantee
from headrace.sinks.folder import FolderSink, flush_folder, write_parquet
from headrace.sinks.protocol import Batch, Refuse

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class FilesSink(FolderSink):
    """See `hr.sinks.files`.

    A task writes under a hidden name; the driver renames when all tasks are done. The name follows from the batch and
    the partition, so a batch that is repeated after a crash puts the same files in the same places.
    """

    kind: ClassVar[str] = "files"

    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """Exactly once into the folder; what the topic repeats is repeated."""
        return Guarantee(
            "at least once" if repeats else "exactly once",
            "a file is named after its batch and partition and appears by an atomic rename: a repeated batch replaces"
            " its own files" + ("; the topic may have a row twice, with the same headrace-id" if repeats else ""),
            "files moved away while their batch is still repeated; a folder on storage without atomic rename",
        )

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
