"""Page views per minute on a live page: a number that grows while the minute runs, and is right when it is over."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from examples.pageviews.board import Board, Line
from examples.pageviews.generator import START, View, Visits, views
from examples.pageviews.pipeline import pageviews
from headrace.testing import Driver
from tests.spark.playing import cut, play, standing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARRIVED = START + timedelta(hours=1)


def iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def batch(spark: SparkSession, made: list[View]) -> dict[tuple[str, str], tuple[int, int]]:
    frame = spark.createDataFrame(made, "url STRING, user_id STRING, occurred_at TIMESTAMP, received_at TIMESTAMP")
    counted = frame.groupBy("url", F.window("occurred_at", "1 minute").alias("minute")).agg(
        F.unix_millis("minute.start").alias("start"),
        F.count("*").alias("views"),
        F.approx_count_distinct("user_id").alias("visitors"),
    )
    return {
        (row.url, iso(datetime.fromtimestamp(row.start / 1000, UTC))): (row.views, row.visitors)
        for row in counted.collect()
    }


def view(at: str, user: str) -> dict[str, Any]:
    return {"url": "/", "user_id": user, "occurred_at": f"2024-03-01T{at}Z"}


def test_a_minute_is_shown_every_second_while_it_runs_then_once_for_good(spark: SparkSession) -> None:
    def shown() -> list[tuple[int, int, str]]:
        return [(row["views"], row["visitors"], row["pane_timing"]) for row in driver.read("views-per-minute")]

    with Driver(pageviews, spark=spark, start=ARRIVED) as driver:
        driver.send("views", view("10:00:01", "ada"), view("10:00:02", "ada"))
        assert shown() == []
        driver.advance_clock("1s")
        assert shown() == [(2, 1, "early")]
        driver.advance_clock("1s")
        assert shown() == []  # nothing new, nothing to show

        driver.send("views", view("10:00:30", "bob"))
        driver.advance_clock("1s")
        assert shown() == [(3, 2, "early")]

        driver.advance_watermark("2024-03-01T10:01:00Z")
        assert shown() == [(3, 2, "on_time")]
        driver.send("views", view("10:00:59", "eve"))
        driver.advance_clock("1s")
        assert shown() == [(4, 3, "late")]

        driver.advance_watermark("2024-03-01T10:06:00Z")
        driver.send("views", view("10:00:59", "dan"))
        assert [row["user_id"] for row in driver.read("views-too-late")] == ["dan"]
        driver.advance_clock("1s")
        assert shown() == []
        assert driver.state_rows == 0


def test_the_board_agrees_with_the_batch_whatever_it_showed_meanwhile(spark: SparkSession) -> None:
    made = views(Visits(seed=1))
    board, rows = Board(), []
    with Driver(pageviews, spark=spark, start=ARRIVED) as driver:
        for part in cut([one._asdict() for one in made], 4):
            play(driver, "views", cut(part, 2), time="occurred_at", out_of_order=timedelta(seconds=10))
            driver.advance_clock("1s")
            rows += driver.read("views-per-minute")
        driver.advance_watermark(ARRIVED)
        rows += driver.read("views-per-minute")
        assert driver.read("views-too-late") == []

    table = standing(rows, "url", "window_start")
    assert {group: (row["views"], row["visitors"]) for group, row in table.items()} == batch(spark, made)
    assert {row["pane_timing"] for row in rows} == {"early", "on_time", "late"}

    for row in rows:
        board.take(row)
    in_first_minute = Counter(one.url for one in made if one.occurred_at < START + timedelta(minutes=1))
    busiest = sorted(in_first_minute.items(), key=lambda page: (-page[1], page[0]))[:10]
    assert board.top(10, minute=iso(START)) == [Line(*page) for page in busiest]
