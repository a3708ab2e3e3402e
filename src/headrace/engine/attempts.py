"""Expressions of the user, tried on each row: where one fails the row becomes a dead letter, and the job goes on.

What a step gives is one struct beside the row, until it is known whether the step failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.engine import sql
from headrace.kernel import doorway
from headrace.pipeline.nodes import Node, WithColumn
from headrace.pipeline.plan import method_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def attempt(rows: DataFrame, step: Node, values: Mapping[str, object], alive: Column, *, caught: bool = True) -> Column:
    """The values of a step by name, computed for rows that are alive: on others they might fail, as 1 / x does.

    Not `caught`, a failure is one of the query.
    """
    spark = rows.sparkSession
    made = F.struct(*(doorway.column(spark, value).alias(name) for name, value in values.items()))
    if caught:
        return doorway.attempt(spark, F.when(alive, made), _blame(step))
    return F.struct(F.when(alive, made).alias("value"), F.lit(None).cast("string").alias("failure"))


def value(tried: str, name: str) -> sql.Path:
    """Where what was made under a name is, in the column that holds the attempt."""
    return (tried, "value", name)


def failure(tried: str) -> str:
    """Why it failed, as SQL; null if it did not.

    >>> failure("__hr_t0")
    '`__hr_t0`.`failure`'
    """
    return sql.path((tried, "failure"))


def _blame(step: Node) -> str:
    """The step as a dead letter names it: without a line, so that a letter's reason outlives an edit of the file."""
    return f"{method_of(step)} `{step.name}`" if isinstance(step, WithColumn) else method_of(step)
