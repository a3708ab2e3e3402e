"""Delta tables beside the stream: reading a version with Spark, compacting small files, removing old ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import SinkError
from headrace.pipeline.durations import Duration, parse_duration
from headrace.sinks.protocol import client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What this reader would get wrong: rows marked as deleted, columns under other names.
_UNREADABLE = ("deletionVectors", "columnMapping")


@dataclass(frozen=True)
class Commit:
    """One version of a table."""

    version: int
    at: str
    operation: str
    files_added: int | None
    rows: int | None


@dataclass(frozen=True)
class Compaction:
    """What compacting did: so many small files became so many larger ones."""

    removed: int
    added: int


def read(spark: SparkSession, path: str | Path, version: int | None = None) -> DataFrame:
    """A version of a Delta table as a DataFrame, the newest by default: its files are what Spark is given."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    table = _open(path, version)
    features = table.protocol().reader_features or ()
    wrong = [name for name in _UNREADABLE if name in features]
    if wrong:
        raise SinkError(
            f"the table at {path} uses {wrong[0]}.",
            why="This reader gives Spark the files as they are, and would read them wrongly.",
            fix="read it with a Delta reader that knows it, or rewrite the table without.",
        )
    schema = StructType.fromJson(_json(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    partitions = table.metadata().partition_columns
    inside = StructType([field for field in schema.fields if field.name not in partitions])
    rows = spark.read.schema(inside).parquet(*files)
    if partitions:
        # The values are in the table's log. Names of folders have them too, but not all writers escape them alike.
        name = "__hr_file"
        outside = StructType([StructField(name, StringType()), *(schema[column] for column in partitions)])
        values = spark.createDataFrame(_partition_values(table, partitions), outside)
        named = rows.withColumn(name, F.col("_metadata.file_name"))
        rows = named.join(F.broadcast(values), name)
    return rows.select(*(F.col("`" + field.name.replace("`", "``") + "`") for field in schema.fields))


def _partition_values(table: Any, partitions: list[str]) -> list[tuple[Any, ...]]:
    """Of each file its name and the values of the columns that the table is partitioned by."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    names = [str(path).rsplit("/", 1)[-1] for path in actions.column("path").to_pylist()]
    values = [actions.column(f"partition.{column}").to_pylist() for column in partitions]
    return list(zip(names, *values, strict=True))


def history(path: str | Path, limit: int = 20) -> list[Commit]:
    """The newest versions of a table, newest first."""
    commits = []
    for entry in _open(path).history(limit):
        metrics = entry.get("operationMetrics") or {}
        at = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC).isoformat(timespec="milliseconds")
        added = metrics.get("num_added_files", metrics.get("num_target_files_added", metrics.get("numFilesAdded")))
        rows = metrics.get("num_added_rows", metrics.get("num_output_rows"))
        commits.append(Commit(entry["version"], at, entry["operation"], added, rows))
    return commits


def compact(path: str | Path, target_mb: int | None = None) -> Compaction:
    """Write small files together into larger ones, in one commit. Readers of older versions are not disturbed."""
    size = None if target_mb is None else target_mb * 1024 * 1024
    metrics = _open(path).optimize.compact(target_size=size)
    return Compaction(metrics["numFilesRemoved"], metrics["numFilesAdded"])


def vacuum(path: str | Path, older_than: Duration = "7d", *, dry_run: bool = False) -> list[str]:
    """Remove files that no version needs: replaced ones, and those that failed attempts left behind.

    Only files older than `older_than` go: a younger one may belong to a batch that is about to be committed, or to a
    version that somebody reads. Gives back their names; with `dry_run` nothing is removed.
    """
    hours = parse_duration(older_than, zero=True) // 3_600_000
    removed: list[str] = _open(path).vacuum(hours, dry_run, enforce_retention_duration=False, full=True)
    return removed


def _open(path: str | Path, version: int | None = None) -> Any:
    deltalake = client("deltalake", "delta")
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        raise SinkError(f"there is no Delta table at {path}.", fix="check the path.")
    try:
        return deltalake.DeltaTable(str(path), version=version)
    except client("deltalake.exceptions", "delta").DeltaError as problem:
        raise SinkError(
            f"version {version} of the table at {path} can't be read.", why=str(problem), fix="choose another version."
        ) from problem


def _json(text: str) -> Any:
    import json

    return json.loads(text)
