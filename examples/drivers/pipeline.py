"""Average speed per driver and five minutes. A phone in a tunnel keeps its pings and sends them when it comes out."""

from __future__ import annotations

from pyspark.sql import functions as F

import headrace as hr

drivers = hr.Pipeline("driver-speed")

speeds = (
    drivers.read(
        "pings",
        schema="""
            driver_id STRING NOT NULL, metres BIGINT NOT NULL, seconds BIGINT NOT NULL, occurred_at TIMESTAMP NOT NULL
        """,
    )
    .event_time("occurred_at", out_of_order="30s", max_skew="5m")
    .key_by("driver_id")
    .window(
        "speed-per-5m",
        hr.tumbling("5m"),
        # Way by time, not the mean of the pings' speeds: pings are not evenly spaced.
        kmh=F.try_divide(F.sum("metres"), F.sum("seconds")) * 3.6,
        pings=F.count("*"),
        # On time without the pings of those in tunnels; then one restatement per flush, not one per ping.
        trigger=hr.after_watermark(late=hr.after_processing_time("10s")),
        allowed_lateness="20m",
        panes="retracting",
    )
)
speeds.write("driver-speeds")
speeds.late.write("pings-too-late")
