"""The one place where Python calls the kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PACKAGE = "org.apache.spark.sql.headrace"


def keyed(df: DataFrame, spec: Mapping[str, Any]) -> DataFrame:
    """Run a fused keyed operator over `df`; `Kernel.scala` says what the spec holds."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = df.sparkSession
    jdf = _package(spark).Kernel.keyed(df._jdf, json.dumps(spec))
    return ClassicDataFrame(jdf, spark)


def column(spark: SparkSession, value: Any) -> Column:
    """A Column of this session from what a user wrote: a Column (made before or after the session), or a SQL string.

    A Column made before the session is a Spark Connect expression, in pure Python (see `headrace.deferred`).
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
    from pyspark.sql.classic.column import Column as ClassicColumn

    if isinstance(value, str):
        return F.expr(value)
    if isinstance(value, ClassicColumn):
        return value
    plan = value._expr.to_plan(None).SerializeToString()
    return ClassicColumn(_package(spark).ConnectColumns.toColumn(spark._jsparkSession, bytearray(plan)))


def _package(spark: SparkSession) -> Any:
    package: Any = spark._jvm
    for part in _PACKAGE.split("."):
        package = getattr(package, part)
    return package


def close_producers(spark: SparkSession, writer: str) -> None:
    """Close the transactional producers that a stopped query left open for its next batch."""
    _package(spark).TransactionalProducers.closeAll(writer)
