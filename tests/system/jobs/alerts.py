"""A small job that the tests start, kill and start again as a process of its own."""

from __future__ import annotations

import os

import headrace as hr

SOURCE = os.environ.get("TEST_SOURCE", "payments")
LIMIT = 60

alerts = hr.Pipeline(f"alerts-{SOURCE}")
spending = (
    alerts.read(SOURCE, schema="id STRING NOT NULL, card STRING NOT NULL, amount BIGINT, at TIMESTAMP NOT NULL")
    .event_time("at", out_of_order="1h")
    .key_by("card")
    .dedupe("id", within="2h")
    .rolling("spending", spent=hr.last("10s").sum("amount"), count=hr.last("10s").count())
)
spending.where(f"spent > {LIMIT}").select("id", "card", "spent", "count").write(f"{SOURCE}-alerts")
