"""Rows into a Delta table: workers write Parquet, the driver commits it with the batch's number in the same commit.

Rows without a key are appended: their files go into the table's folder, and one commit adds them all. With a key the
files are staged beside the table, and delta-rs merges them. Either commit carries an app transaction (writer, batch),
so the table itself knows which batch it has: a repeated one is skipped. No row passes through the driver's Python.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from headrace.errors import SinkError, UnknownColumnError
from headrace.pipeline.schema import Column, Schema
from headrace.pipeline.sink import Guarantee
from headrace.sinks.delta_types import delta_schema
from headrace.sinks.folder import FolderSink, flush_folder, write_parquet
from headrace.sinks.protocol import TAKES_AWAY, Batch, Refuse, client

if TYPE_CHECKING:
    import pyarrow as pa

_PARTITION_TYPES = ("string", "date", "boolean", "tinyint", "smallint", "int", "bigint")
_STAGING = "_headrace"
"""Within the table's folder; what begins with _ is no part of a Delta table."""


@dataclass(frozen=True, repr=False)
class DeltaSink(FolderSink):
    """See `hr.sinks.delta`."""

    kind: ClassVar[str] = "delta"
    latest_only: ClassVar[bool] = True
    applies_changes: ClassVar[bool] = True

    partition_by: tuple[str, ...]
    add_columns: bool
    compact_every: int

    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """Exactly once by the app transaction; a repeated record of the topic needs a key to meet its earlier one."""
        doubled = repeats and not self.key
        return Guarantee(
            "at least once" if doubled else "exactly once",
            "one commit adds the batch and sets the app transaction (query, batch) in the table's log; a repeated batch"
            " is skipped" + ("; the topic may have a row twice: pass key=... to have it once" if doubled else ""),
            "a table restored or made anew beside an old checkpoint, or a new checkpoint beside an old table",
        )

    def check(self, columns: Schema | None) -> None:
        """Whether the folder can be written to, and the table, if it is there, has what the stream needs."""
        super().check(columns)
        if columns is not None:
            self._check_partition_columns(columns)
        table = self._open()
        if table is not None and columns is not None:
            self._missing(table, [Column(name, "string") for name in columns.names])
            self._check_partitions(table)

    def prepare(self, columns: tuple[Column, ...]) -> None:
        """Make the table, or add the columns that it does not have yet."""
        deltalake = client("deltalake", "delta")
        super().prepare(columns)
        wanted = [c for c in columns if not self._is_kind(c.name)]
        self._check_partition_columns(Schema(columns))
        table = self._open()
        if table is None:
            schema = deltalake.Schema.from_json(delta_schema(wanted))
            # Another run may make it at the same moment.
            deltalake.DeltaTable.create(self.path, schema, mode="ignore", partition_by=list(self.partition_by) or None)
            return
        self._check_partitions(table)
        missing = self._missing(table, wanted)
        if missing:
            table.alter.add_columns(deltalake.Schema.from_json(delta_schema(missing)).fields)

    def begin(self, batch: Batch) -> bool:
        """Whether the table's log does not have this batch yet; what an earlier attempt staged is removed."""
        shutil.rmtree(self._staging(batch), ignore_errors=True)
        table = self._open()
        last = None if table is None else table.transaction_version(batch.writer)
        if last is not None and last >= batch.number:
            return False
        if self.key:
            self._staging(batch).mkdir(parents=True, exist_ok=True)
        return True

    def write(
        self, batch: Batch, partition: int, rows: Iterator[pa.RecordBatch], refuse: Refuse
    ) -> dict[str, Any] | None:
        """Parquet files, of which the table knows nothing yet."""
        if self.key:
            staged = self._staging(batch) / f"{uuid.uuid4().hex}.parquet"
            count = write_parquet(staged, rows, batch.names)
            return {"staged": [staged.name] if count else []}
        return {"files": list(self._files(batch, rows))}

    def commit(self, batch: Batch, results: list[dict[str, Any]]) -> None:
        """One commit with all files of the batch, or one merge."""
        table = self._open()
        assert table is not None
        deltalake = client("deltalake", "delta")
        marked = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(batch.writer, batch.number)],
            custom_metadata={"headrace": batch.writer},
        )
        if self.key:
            staged = [str(self._staging(batch) / name) for result in results for name in result.get("staged", ())]
            if staged:
                self._merge(table, batch, staged, marked)
            shutil.rmtree(self._staging(batch).parent, ignore_errors=True)
        else:
            added = [file for result in results for file in result.get("files", ())]
            if added:
                actions = [client("deltalake.transaction", "delta").AddAction(**file) for file in added]
                table.create_write_transaction(
                    actions, "append", table.schema(), list(self.partition_by) or None, commit_properties=marked
                )
        self._compact_at_times()

    def _files(self, batch: Batch, rows: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
        """One file for each combination of partition values; of each what the commit says of it."""
        import pyarrow.parquet as pq

        writers: dict[tuple[str | None, ...], tuple[Path, Any]] = {}
        counts: dict[tuple[str | None, ...], int] = {}
        inside = [name for name in batch.names if name not in self.partition_by]
        for chunk in rows:
            for values, part in _by_values(chunk, self.partition_by):
                wanted = part.select(inside)
                if values not in writers:
                    file = Path(self.path) / self._folder(values) / f"headrace-{uuid.uuid4().hex}.zstd.parquet"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    writers[values] = file, pq.ParquetWriter(file, wanted.schema, compression="zstd")
                writers[values][1].write_batch(wanted)
                counts[values] = counts.get(values, 0) + part.num_rows
        for values, (file, writer) in writers.items():
            writer.close()
            with file.open("rb+") as written:
                os.fsync(written.fileno())
            yield {
                "path": file.relative_to(self.path).as_posix(),
                "size": file.stat().st_size,
                "partition_values": dict(zip(self.partition_by, values, strict=True)),
                "modification_time": int(time.time() * 1000),
                "data_change": True,
                "stats": json.dumps({"numRecords": counts[values]}),
            }
            flush_folder(file.parent)

    def _folder(self, values: tuple[str | None, ...]) -> str:
        parts = (
            f"{name}={'__HIVE_DEFAULT_PARTITION__' if value is None else quote(value, safe='')}"
            for name, value in zip(self.partition_by, values, strict=True)
        )
        return "/".join(parts)

    def _merge(self, table: Any, batch: Batch, staged: list[str], marked: Any) -> None:
        import pyarrow.dataset as ds

        names = [name for name in batch.names if not self._is_kind(name)]
        values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
        same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in self.key)
        merger = table.merge(
            ds.dataset(staged).scanner().to_reader(),
            same,
            source_alias="s",
            target_alias="t",
            commit_properties=marked,
        )
        kind = batch.changes
        put = None
        if kind is not None:
            gone = f"s.{_quoted(kind)} IN ({', '.join(repr(word) for word in TAKES_AWAY)})"
            put = f"s.{_quoted(kind)} IS NULL OR NOT ({gone})"
            merger = merger.when_matched_delete(gone)
        merger.when_matched_update(values, put).when_not_matched_insert(values, put).execute()

    def _compact_at_times(self) -> None:
        table = self._open()
        if table is None or not self.compact_every or table.version() % self.compact_every:
            return
        try:
            table.optimize.compact()
        except client("deltalake.exceptions", "delta").DeltaError:
            # Somebody else changed the same files meanwhile; there will be another time.
            return

    def _open(self) -> Any | None:
        deltalake = client("deltalake", "delta")
        # A folder may be there before the table is.
        return deltalake.DeltaTable(self.path) if deltalake.DeltaTable.is_deltatable(self.path) else None

    def _staging(self, batch: Batch) -> Path:
        return Path(self.path) / _STAGING / batch.writer / str(batch.number)

    def _is_kind(self, name: str) -> bool:
        """With a key, what kind of change a row is becomes what is done."""
        return bool(self.key) and name.lower() == "row_kind"

    def _missing(self, table: Any, columns: list[Column]) -> list[Column]:
        found = [field.name for field in table.schema().fields]
        known = {name.lower() for name in found}
        missing = [c for c in columns if c.name.lower() not in known and not self._is_kind(c.name)]
        if missing and not self.add_columns:
            raise UnknownColumnError(
                f"the table of sink `{self.name}` has no column `{missing[0].name}`.",
                why=f"Its columns: {', '.join(found)}",
                fix="leave it out with .select(...), or leave out add_columns=False: the table is widened.",
            )
        return missing

    def _check_partition_columns(self, columns: Schema) -> None:
        for name in self.partition_by:
            if name not in columns:
                raise UnknownColumnError(
                    f"the stream of sink `{self.name}` has no column `{name}` to partition by.",
                    why=f"Its columns: {', '.join(columns.names)}",
                    fix="name one of them in partition_by=...",
                )
            kind = columns[name]
            if kind is not None and kind not in _PARTITION_TYPES:
                raise SinkError(
                    f"sink `{self.name}` can't be partitioned by `{name}`, which is a {kind}.",
                    why="Each value becomes a folder: too many, and none that a reader could name.",
                    fix=f'partition by a day, say: .with_column("day", F.to_date("{name}")).',
                )

    def _check_partitions(self, table: Any) -> None:
        found = tuple(table.metadata().partition_columns)
        if found != self.partition_by:
            raise SinkError(
                f"the table of sink `{self.name}` is partitioned by {', '.join(found) or 'nothing'}.",
                why=f"The sink says {', '.join(self.partition_by) or 'nothing'}; a table keeps what it was made with.",
                fix=f"pass partition_by={found!r}, or write to another path.",
            )


def _by_values(
    rows: pa.RecordBatch, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The rows of each combination of partition values, and the values as a Delta log has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not columns:
        yield (), rows
        return
    texts = [rows.column(name).cast(pa.string()) for name in columns]
    for values in dict.fromkeys(zip(*(text.to_pylist() for text in texts), strict=True)):
        mask = None
        for text, value in zip(texts, values, strict=True):
            here = text.is_null() if value is None else pc.fill_null(pc.equal(text, value), False)
            mask = here if mask is None else pc.and_(mask, here)
        yield values, rows.filter(mask)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
