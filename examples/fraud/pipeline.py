"""Card fraud: every transaction gets a decision, the flagged ones an alert with its reasons."""

from __future__ import annotations

from pyspark.sql import functions as F

import headrace as hr

fraud = hr.Pipeline("card-fraud")

transactions = (
    fraud.read(
        "transactions",
        schema="""
            txn_id STRING NOT NULL, card_id STRING NOT NULL, amount DOUBLE, merchant STRING,
            lat DOUBLE, lon DOUBLE, occurred_at TIMESTAMP NOT NULL
        """,
    )
    .event_time("occurred_at", out_of_order="30s", max_skew="5m")
    .dedupe("txn_id", within="24h")
)

activity = transactions.key_by("card_id").rolling(
    "card-activity",
    count_1m=hr.last("1m").count(),
    spend_10m=hr.last("10m").sum("amount"),
    here=hr.latest("lat", "lon", "occurred_at", back=1, within="24h"),
)

decisions = (
    activity.with_column(
        "reasons",
        F.array_compact(
            F.array(
                F.when(F.col("count_1m") > 5, F.lit("card_testing")),
                F.when(F.col("spend_10m") > 5000, F.lit("spending_spree")),
                F.when(hr.speed_kmh("here") > 500, F.lit("impossible_travel")),
            )
        ),
    )
    .with_column("decision", F.when(F.size("reasons") > 0, F.lit("flag")).otherwise(F.lit("approve")))
    .select("txn_id", "card_id", "amount", "merchant", "occurred_at", "count_1m", "spend_10m", "decision", "reasons")
)

decisions.write("decisions")
decisions.where(F.col("decision") == "flag").write("fraud-alerts")
decisions.late.write("transactions-late")
decisions.duplicates.write("transactions-duplicates")
decisions.quarantined.write("transactions-quarantined")
decisions.dead_letters.write("transactions-dead-letters")
