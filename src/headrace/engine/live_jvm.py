"""What a run asks of the JVM that it works in, which may end at any moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def heap(spark: SparkSession) -> tuple[int, int] | None:
    """Memory in use and the most that there may be, in bytes; None from a JVM that ends."""
    from py4j.protocol import Py4JError

    try:
        jvm: Any = spark._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory()), int(runtime.maxMemory())
    except (Py4JError, OSError, AttributeError, TypeError):
        return None


def ends(spark: SparkSession) -> bool:
    """Whether the JVM is about to end, or has ended."""
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm
    try:
        return bool(jvm.org.apache.spark.util.ShutdownHookManager.inShutdown())
    except (Py4JError, OSError):
        return True


@contextlib.contextmanager
def unless_it_ends(spark: SparkSession | None) -> Iterator[None]:
    """A signal to the whole process group ends the JVM too; its own hooks then stop the queries before we do."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, OSError):
        if spark is None or not ends(spark):
            raise
