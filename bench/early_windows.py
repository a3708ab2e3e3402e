"""Early results of windows in real time: from the event to the result that it caused."""

from __future__ import annotations

from pyspark.sql import functions as F

import headrace as hr
from bench.latency import measure
from bench.windows import SCHEMA

pipeline = hr.Pipeline("early-windows")
(
    pipeline.read("transactions", schema=SCHEMA)
    .event_time("occurred_at", out_of_order="30s", max_skew="5m")
    .key_by("card_id")
    .window(
        "spend",
        hr.tumbling("1m"),
        n=F.count("*"),
        spend=F.sum("amount"),
        trigger=hr.after_watermark(early=hr.each()),
    )
    .write("spend-per-minute")
)

if __name__ == "__main__":
    # A result on time comes with the watermark, minutes after the events that it is made of.
    measure("early_windows", "bench.early_windows:pipeline", "spend-per-minute", having=b'"pane_timing":"early"')
