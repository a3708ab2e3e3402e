"""Takings per store and hour, by when a sale was made, though card readers report it a quarter of an hour later."""

from __future__ import annotations

from pyspark.sql import functions as F

import headrace as hr

SALES = """
    sale_id STRING NOT NULL, store STRING NOT NULL, reader STRING NOT NULL, cents BIGINT NOT NULL,
    occurred_at TIMESTAMP NOT NULL, received_at TIMESTAMP NOT NULL
"""

retail = hr.Pipeline("retail")

takings = (
    retail.read("sales", schema=SALES)
    .event_time("occurred_at", out_of_order="16m", max_skew="5m")  # a reader's flush, and a minute for the network
    .key_by("store")
    .window(
        "takings-per-hour",
        hr.tumbling("1h"),
        cents=F.sum("cents"),
        sales=F.count("*"),
        allowed_lateness="1h",  # a reader that lost its network: the hour is restated
    )
)
takings.write("takings")
takings.late.write("sales-too-late")

# The same by the time at which the gateway received a sale: what a job does that knows no other time. It is here to be
# compared with; it puts the sales of one hour into the next.
by_arrival = hr.Pipeline("retail-by-arrival")

(
    by_arrival.read("sales", schema=SALES)
    .event_time("received_at", out_of_order="1m")
    .key_by("store")
    .window("takings-per-hour-of-arrival", hr.tumbling("1h"), cents=F.sum("cents"), sales=F.count("*"))
    .write("takings-by-arrival")
)
