"""Card readers report 10 to 15 minutes late: event time agrees with the nightly batch, arrival time does not."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from examples.retail import nightly
from examples.retail.generator import OPENS, Sale, Trade, day
from examples.retail.pipeline import SALES, by_arrival, retail
from headrace.testing import Driver
from tests.spark.playing import cut, play, standing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Takings = dict[tuple[str, str], int]
FLUSH = timedelta(minutes=16)
CLOSED = OPENS + timedelta(days=1)


def events(sales: list[Sale]) -> list[dict[str, Any]]:
    return [sale._asdict() for sale in sales]


def hour_of(moment: datetime) -> str:
    return moment.replace(minute=0, second=0, microsecond=0).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def batch_takings(spark: SparkSession, sales: list[Sale]) -> Takings:
    frame = nightly.takings(spark.createDataFrame(sales, SALES))
    rows = frame.selectExpr("store", "unix_millis(window_start) AS start", "cents").collect()
    return {(row.store, hour_of(datetime.fromtimestamp(row.start / 1000, UTC))): row.cents for row in rows}


def stream_takings(rows: list[dict[str, Any]]) -> Takings:
    table = standing(rows, "store", "window_start")
    return {(store, start): row["cents"] for (store, start), row in table.items()}


def test_readers_report_ten_to_fifteen_minutes_late() -> None:
    delays = [sale.received_at - sale.occurred_at for sale in day(Trade(seed=1))]
    assert timedelta(minutes=10) < min(delays)
    assert max(delays) <= timedelta(minutes=15)
    assert day(Trade(seed=1)) == day(Trade(seed=1)) != day(Trade(seed=2))


def test_windows_of_arrival_have_all_the_money_in_the_wrong_hours(spark: SparkSession) -> None:
    sales = day(Trade(seed=1))
    with Driver(by_arrival, spark=spark, start=CLOSED) as driver:
        play(driver, "sales", cut(events(sales), 3), time="received_at", out_of_order=timedelta(minutes=1))
        driver.advance_watermark(CLOSED)
        found = stream_takings(driver.read("takings-by-arrival"))

    truth = batch_takings(spark, sales)
    assert sum(found.values()) == sum(truth.values())
    assert all(found.get(hour) != cents for hour, cents in truth.items())


@pytest.mark.parametrize(
    ("pieces", "seed"), [(1, 1), (4, 2), pytest.param(9, 3, marks=pytest.mark.soak)], ids=["at-once", "in-4", "in-9"]
)
def test_event_time_agrees_with_the_nightly_batch_however_the_batches_fall(
    spark: SparkSession, pieces: int, seed: int
) -> None:
    sales = day(Trade(seed=1))
    with Driver(retail, spark=spark, start=CLOSED) as driver:
        play(driver, "sales", cut(events(sales), pieces, seed), time="occurred_at", out_of_order=FLUSH)
        driver.advance_watermark(CLOSED)
        rows = driver.read("takings")
        assert driver.read("sales-too-late") == []
        assert driver.state_rows == 0

    assert stream_takings(rows) == batch_takings(spark, sales)
    # The tolerance covers the flush: one result per hour, on time, never restated.
    assert {(row["pane_index"], row["pane_timing"], row["row_kind"]) for row in rows} == {(0, "on_time", "+I")}


def test_an_upload_within_the_allowed_lateness_restates_its_hours(spark: SparkSession) -> None:
    sales = day(Trade(seed=4, retried=0.1))
    with Driver(retail, spark=spark, start=CLOSED) as driver:
        play(driver, "sales", cut(events(sales), 8, seed=4), time="occurred_at", out_of_order=FLUSH)
        driver.advance_watermark(CLOSED)
        rows = driver.read("takings")
        assert driver.read("sales-too-late") == []

    assert stream_takings(rows) == batch_takings(spark, sales)
    assert {row["row_kind"] for row in rows if row["pane_timing"] == "late"} == {"+U"}


@pytest.mark.parametrize("pieces", [5, pytest.param(10, marks=pytest.mark.soak)])
def test_what_is_later_than_allowed_leaves_by_the_side_and_nothing_is_lost(spark: SparkSession, pieces: int) -> None:
    sales = day(Trade(seed=5, retried=0.05, stuck=0.05))
    with Driver(retail, spark=spark, start=CLOSED) as driver:
        play(driver, "sales", cut(events(sales), pieces, seed=5), time="occurred_at", out_of_order=FLUSH)
        driver.advance_watermark(CLOSED)
        in_time = stream_takings(driver.read("takings"))
        late = driver.read("sales-too-late")

    too_late = {sale.sale_id for sale in sales if sale.received_at - sale.occurred_at > timedelta(hours=2.5)}
    assert late
    assert {row["sale_id"] for row in late} <= too_late
    assert sum(in_time.values()) + sum(row["cents"] for row in late) == sum(sale.cents for sale in sales)

    together = Counter(in_time)
    for row in late:
        together[row["store"], hour_of(datetime.fromisoformat(row["occurred_at"]))] += row["cents"]
    assert dict(together) == batch_takings(spark, sales)
