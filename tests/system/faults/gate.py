"""A job that stops in the middle of a task until a gate is opened: it holds a moment that is else over at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import headrace as hr
from tests.system.records import Sent

BEFORE_GATE = 250
"""Rows before the one that waits: more than Spark hands to Python at a time, so that the first are written before."""


def gated(name: str, source: str, sink: str, gate: str, *, claims: bool = False) -> hr.Pipeline:
    """Copies rows; the row called `gate` waits until there is no file at that path. With `claims`, and counts them."""

    def wait_at_gate(df: Any) -> Any:
        from pyspark.sql import functions as F

        def passing(what: str) -> str:
            while what == "gate" and Path(gate).exists():
                time.sleep(0.02)
            return what

        # Row by row and not through Arrow, which hands over ten thousand at a time.
        return df.withColumn("what", F.udf(passing, "string", useArrow=False)("what"))

    pipeline = hr.Pipeline(name)
    rows = pipeline.read(source, schema="id BIGINT NOT NULL, what STRING NOT NULL")
    copied = rows.apply(wait_at_gate, schema="id BIGINT, what STRING")
    if claims:
        timed = copied.with_column("at", "timestamp_seconds(id)").event_time("at", watermark=hr.perfect())
        copied = timed.key_by("id").rolling("counted", count=hr.last("1m").count())
    copied.write(sink)
    return pipeline


def rows_with_gate() -> list[Sent]:
    """Twenty rows in one partition, which pass; in the other some that pass, and then the one that waits.

    By their keys they are written to two partitions as well: in one, those that are committed could not be read before
    the transaction of the others is decided.
    """
    free = [Sent.row({"id": i, "what": "free"}, key="passing", partition=0) for i in range(20)]
    # Long ones: Python sends nothing back before its buffer is full.
    held = [Sent.row({"id": 100 + i, "what": "held" * 300}, key="waiting", partition=1) for i in range(BEFORE_GATE)]
    return [*free, *held, Sent.row({"id": 999, "what": "gate"}, key="waiting", partition=1)]
