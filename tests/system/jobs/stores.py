"""A job that writes to stores, for tests that kill it and start it again as a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import headrace as hr

SOURCE = os.environ.get("TEST_SOURCE", "payments")
DATABASE = os.environ.get("TEST_DATABASE", "postgresql://nowhere/none")
FOLDER = Path(os.environ.get("TEST_FOLDER", "."))

stores = hr.Pipeline(f"stores-{SOURCE}")
payments = stores.read(SOURCE, schema="id BIGINT, card STRING, amount BIGINT, at TIMESTAMP")
payments.write(hr.sinks.postgres(DATABASE, f"{SOURCE}-all", every="0s", name="all"))
payments.write(hr.sinks.delta(FOLDER / "all", every="0s", name="lake"))
totals = (
    payments.event_time("at", out_of_order="1h").key_by("card").rolling("total", total=hr.last("24h").sum("amount"))
)
totals.select("card", "total").write(
    hr.sinks.postgres(DATABASE, f"{SOURCE}-totals", key="card", every="0s", name="totals")
)
