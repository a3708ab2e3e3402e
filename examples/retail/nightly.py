"""The nightly batch over the same sales: what the stream's takings have to agree with, to the cent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def takings(sales: DataFrame) -> DataFrame:
    """Cents and sales per store and hour."""
    hour = F.window("occurred_at", "1 hour")
    return (
        sales.groupBy("store", hour.alias("hour"))
        .agg(F.sum("cents").alias("cents"), F.count("*").alias("sales"))
        .select("store", F.col("hour.start").alias("window_start"), "cents", "sales")
    )
