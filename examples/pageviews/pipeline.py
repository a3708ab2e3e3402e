"""Page views and visitors per URL and minute: every second while the minute runs, then once for good."""

from __future__ import annotations

from pyspark.sql import functions as F

import headrace as hr

pageviews = hr.Pipeline("page-views")

per_minute = (
    pageviews.read("views", schema="url STRING NOT NULL, user_id STRING, occurred_at TIMESTAMP NOT NULL")
    .event_time("occurred_at", out_of_order="10s", max_skew="1m", close_idle="1m")
    .key_by("url")
    .window(
        "views-per-minute",
        hr.tumbling("1m"),
        views=F.count("*"),
        visitors=F.approx_count_distinct("user_id"),
        trigger=hr.after_watermark(early=hr.every("1s"), late=hr.every("1s")),
        allowed_lateness="5m",
    )
)
per_minute.write("views-per-minute")
per_minute.late.write("views-too-late")
