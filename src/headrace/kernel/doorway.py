"""The one place where Python calls the kernel."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PACKAGE = "org.apache.spark.sql.headrace"


def keyed(df: DataFrame, spec: Mapping[str, Any], windowed: Mapping[str, Column]) -> DataFrame:
    """Run a fused keyed operator over `df`; `Kernel.scala` says what the spec holds, and what `windowed`."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = df.sparkSession
    assert spark._jvm is not None
    columns = spark._jvm.java.util.HashMap()
    for name, column in windowed.items():
        columns.put(name, column._jc)
    jdf = _package(spark).Kernel.keyed(df._jdf, json.dumps(spec), columns)
    return ClassicDataFrame(jdf, spark)


def column(spark: SparkSession, value: Any) -> Column:
    """A Column of this session from what a user wrote: a Column (made before or after the session), or a SQL string.

    A Column made before the session is a Spark Connect expression, in pure Python (see `headrace.deferred`).
    """
    from pyspark.sql import functions as F
    from pyspark.sql.classic.column import Column as ClassicColumn

    if isinstance(value, str):
        return F.expr(value)
    if isinstance(value, ClassicColumn):
        return value
    plan = value._expr.to_plan(None).SerializeToString()
    return ClassicColumn(_package(spark).ConnectColumns.toColumn(spark._jsparkSession, bytearray(plan)))


def is_there(spark: SparkSession) -> bool:
    """Whether the session has the kernel."""
    from py4j.java_gateway import JavaPackage

    return not isinstance(_package(spark).Kernel, JavaPackage)


def _package(spark: SparkSession) -> Any:
    return _package_of(spark._jvm)


@lru_cache(maxsize=1)
def _package_of(jvm: Any) -> Any:
    """Kept, since each part of the name is a question to the JVM."""
    package = jvm
    for part in _PACKAGE.split("."):
        package = getattr(package, part)
    return package


def from_json(spark: SparkSession, value: Column, ddl: str, reason: str) -> Column:
    """JSON bytes as a struct of the schema, with one more field that says why a payload does not fit it."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(_package(spark).Records.fromJson(value._jc, ddl, reason))


def from_contract(
    spark: SparkSession,
    value: Column,
    contract: Mapping[str, Any],
    columns: str,
    reason: str,
    registry: Mapping[str, Any],
) -> Column:
    """Payloads in Confluent's wire format as a struct of the columns, with one more field that says what is wrong."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    contracts = _package(spark).Contracts
    access = contracts.registry(json.dumps(registry))
    return ClassicColumn(contracts.decode(value._jc, json.dumps(contract), columns, reason, access))


def to_contract(df: DataFrame, struct: Column, contract: Mapping[str, Any], id: int) -> Column:
    """A struct of columns of `df` as a struct of `value`, bytes in Confluent's wire format, and `reason`, if there are
    none.
    """
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(_package(df.sparkSession).Contracts.encode(df._jdf, struct._jc, json.dumps(contract), id))


def attempt(spark: SparkSession, value: Column, step: str) -> Column:
    """A struct of `value`, what a column gives, and `failure`: if it fails on a row, why, with the step to blame."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(_package(spark).Records.attempt(value._jc, step))


TO_JSON = "__hr_to_json"
"""In SQL that is given to `select` or `expand`: a struct as JSON bytes."""
PLACE = "__hr_place"
"""Likewise: texts and whole numbers as the bytes of a path."""


def select(df: DataFrame, expressions: Sequence[str], columns: Sequence[Column] = ()) -> DataFrame:
    """SQL expressions and then columns of `df`: one call into the JVM for all expressions, where Spark's has several
    for each.
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = df.sparkSession
    listed = _java_list(spark, [c._jc for c in columns])
    return ClassicDataFrame(_package(spark).Records.select(df._jdf, json.dumps(expressions), listed), spark)


def expand(df: DataFrame, slots: Sequence[Sequence[str]]) -> DataFrame:
    """Each row as up to one record per slot; a slot is (topic, key, value, headers), none where the topic is null."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = df.sparkSession
    return ClassicDataFrame(_package(spark).Records.expand(df._jdf, json.dumps(slots)), spark)


def keeps_state(df: DataFrame) -> str | None:
    """What in a stream's plan keeps state or sets a watermark, in the words of the DataFrame API."""
    found: str | None = _package(df.sparkSession).Statefulness.of(df._jdf)
    return found


def python_work(df: DataFrame) -> str | None:
    """What in a stream's plan runs in Python workers."""
    found: str | None = _package(df.sparkSession).PythonWork.of(df._jdf)
    return found


def _java_list(spark: SparkSession, items: Sequence[Any]) -> Any:
    assert spark._jvm is not None
    made = spark._jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return made


class ProgressFeed:
    """The progress of some queries as Spark's JSON."""

    def __init__(self, spark: SparkSession, queries: Sequence[str]) -> None:
        names = _java_list(spark, queries)
        self._feed = _package(spark).ProgressFeed(spark._jsparkSession, names)

    def next(self, age_ms: int) -> dict[str, Any] | None:
        """Wait for the next one until it is so old; None after the last one."""
        told: str | None = self._feed.next(age_ms)
        return None if told is None else json.loads(told)

    def end(self) -> None:
        """No more after those that Spark has told already."""
        self._feed.end()


class MemoryLog:
    """Topics in memory, in place of a broker."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        self._log = _package(spark).MemoryLog(spark._jsparkSession)
        self.records: DataFrame = ClassicDataFrame(self._log.records(), spark)

    def add(
        self, topic: str, partition: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
    ) -> None:
        """Add a record to the next batch."""
        keyed = None if key is None else bytearray(key)
        self._log.add(topic, partition, offset, timestamp_ms, keyed, None if value is None else bytearray(value))

    def flush(self) -> None:
        """Let the batch in."""
        self._log.flush()


def written(spark: SparkSession, query: StreamingQuery, start: int) -> list[list[bytes | None]]:
    """What a query wrote to a memory sink, from record number `start` on: topic, key, value, then its headers."""
    data: bytes = _package(spark).MemoryLog.written(query._jsq, start)
    records: list[list[bytes | None]] = []
    at = 0
    while at < len(data):
        (fields,) = struct.unpack_from(">i", data, at)
        at += 4
        record: list[bytes | None] = []
        for _ in range(fields):
            (length,) = struct.unpack_from(">i", data, at)
            at += 4
            record.append(None if length < 0 else bytes(data[at : at + length]))
            at += max(length, 0)
        records.append(record)
    return records


def rehearsal(df: DataFrame, settings: dict[str, str]) -> Callable[[], None]:
    """A function that plans a stream as at the start of a batch with these settings, and runs nothing."""
    plan: Callable[[], None] = _package(df.sparkSession).Rehearsal(df._jdf, settings).plan
    return plan


def limit_batches(spark: SparkSession, reader: str, max_rows: int) -> None:
    """From its next batch on, a query reads so many rows at once at most."""
    _package(spark).Intake.of(reader).setMaxRows(max_rows)


def limit_rate(spark: SparkSession, reader: str, rows_per_second: float | None) -> None:
    """A query reads so many rows a second at most; None for no limit."""
    _package(spark).Intake.of(reader).setMaxRate(float(rows_per_second or 0))


def close_producers(spark: SparkSession, writer: str) -> None:
    """Close the transactional producers that a stopped query left open for its next batch."""
    _package(spark).TransactionalProducers.closeAll(writer)
