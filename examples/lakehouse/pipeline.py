"""Bronze, silver and gold: a topic of orders in three Delta tables, each row exactly once."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import functions as F

import headrace as hr

ORDERS = "id STRING, customer STRING, country STRING, total DECIMAL(10,2), at TIMESTAMP"


def lakehouse(folder: Path, every: str = "1m") -> hr.Pipeline:
    """The pipeline, with its tables in a folder."""
    pipeline = hr.Pipeline("lake")
    orders = pipeline.read("orders", schema=ORDERS)

    # Bronze: every record, as it came. It is fed from the topic itself.
    by_day = orders.with_column("day", F.to_date("at"))
    by_day.write(hr.sinks.delta(folder / "bronze/orders", partition_by="day", every=every, name="bronze"))

    # Silver: one row for each order that makes sense. Orders that were sent twice are held back.
    sound = orders.where("total > 0 AND customer IS NOT NULL").event_time("at", out_of_order="5m")
    valid = sound.dedupe("id", within="1d")
    valid.write(hr.sinks.delta(folder / "silver/orders", key="id", every=every, name="silver"))

    # Gold: what is asked for. A late order restates its day, and the row of that day is replaced.
    revenue = (
        sound.key_by("country")
        .dedupe("id", within="1d", name="once-per-country")
        .window("revenue", hr.tumbling("1d"), orders=F.count("*"), revenue=F.sum("total"), allowed_lateness="12h")
    )
    totals = revenue.select("country", "window_start", "orders", "revenue", "row_kind")
    totals.write(hr.sinks.delta(folder / "gold/revenue", key=("country", "window_start"), every=every, name="gold"))
    return pipeline


lake = lakehouse(Path(os.environ.get("HEADRACE_LAKE", "lake")))
