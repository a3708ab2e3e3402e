"""Phones in tunnels: a speed on time from what is known, one restatement per flush, and the truth in the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from examples.drivers.generator import START, Ping, Traffic, pings
from examples.drivers.pipeline import drivers
from headrace.testing import Driver
from tests.spark.playing import cut, play, standing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUT_OF_ORDER = timedelta(seconds=30)
ARRIVED = START + timedelta(hours=12)
FIVE_MINUTES = timedelta(minutes=5)


def events(made: list[Ping]) -> list[dict[str, Any]]:
    return [ping._asdict() for ping in made]


def ping(at: str, metres: int, seconds: int = 60) -> dict[str, Any]:
    return {"driver_id": "ada", "metres": metres, "seconds": seconds, "occurred_at": f"2024-03-01T{at}Z"}


def window_of(moment: datetime) -> str:
    return (moment - (moment - START) % FIVE_MINUTES).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def truth(made: list[Ping]) -> dict[tuple[str, str], tuple[float, int]]:
    """The batch: speed and number of pings per driver and window, over everything that was ever sent."""
    groups: dict[tuple[str, str], list[Ping]] = defaultdict(list)
    for one in made:
        groups[one.driver_id, window_of(one.occurred_at)].append(one)
    return {
        group: (sum(p.metres for p in found) / sum(p.seconds for p in found) * 3.6, len(found))
        for group, found in groups.items()
    }


def test_a_flush_after_a_tunnel_restates_its_windows_once(spark: SparkSession) -> None:
    with Driver(drivers, spark=spark, start=ARRIVED) as driver:
        driver.send("pings", ping("08:01:00", 600), ping("08:02:00", 600))
        driver.advance_watermark("2024-03-01T08:05:00Z")
        (on_time,) = driver.read("driver-speeds")
        assert (on_time["kmh"], on_time["pings"], on_time["pane_timing"]) == (36.0, 2, "on_time")

        driver.send("pings", ping("08:03:00", 1200), ping("08:04:00", 1200), ping("08:05:30", 900, seconds=90))
        assert driver.read("driver-speeds") == []
        driver.advance_clock("10s")
        taken_back, restated = driver.read("driver-speeds")
        assert taken_back == {**on_time, "row_kind": "-U"}
        assert (restated["kmh"], restated["pings"], restated["pane_timing"]) == (54.0, 4, "late")

        driver.advance_watermark("2024-03-01T08:10:00Z")
        (after,) = driver.read("driver-speeds")
        assert (after["window_start"], after["kmh"]) == ("2024-03-01T08:05:00.000Z", 36.0)

        driver.advance_watermark("2024-03-01T08:30:00Z")
        assert driver.read("driver-speeds") == []
        driver.send("pings", ping("08:04:30", 600))
        driver.advance_clock("10s")
        assert driver.read("driver-speeds") == []
        assert [row["metres"] for row in driver.read("pings-too-late")] == [600]


def test_the_speeds_that_stand_are_those_of_the_batch(spark: SparkSession) -> None:
    made = pings(Traffic(seed=2))
    with Driver(drivers, spark=spark, start=ARRIVED) as driver:
        for half in (made[: len(made) // 2], made[len(made) // 2 :]):
            play(driver, "pings", cut(events(half), 5), time="occurred_at", out_of_order=OUT_OF_ORDER)
            driver.advance_clock("10s")
        driver.advance_watermark(ARRIVED)
        rows = driver.read("driver-speeds")
        assert driver.read("pings-too-late") == []

    assert any(row["row_kind"] == "-U" for row in rows)
    table = standing(rows, "driver_id", "window_start")
    assert {group: (row["kmh"], row["pings"]) for group, row in table.items()} == truth(made)


def test_a_tunnel_longer_than_allowed_costs_pings_that_are_all_in_the_side_output(spark: SparkSession) -> None:
    made = pings(Traffic(seed=3, minutes=60, tunnels=0.003, tunnel_minutes=(35, 45)))
    with Driver(drivers, spark=spark, start=ARRIVED) as driver:
        play(driver, "pings", cut(events(made), 8), time="occurred_at", out_of_order=OUT_OF_ORDER)
        driver.advance_watermark(ARRIVED)
        table = standing(driver.read("driver-speeds"), "driver_id", "window_start")
        late = driver.read("pings-too-late")

    assert late
    counted = Counter({group: row["pings"] for group, row in table.items()})
    counted.update((row["driver_id"], window_of(datetime.fromisoformat(row["occurred_at"]))) for row in late)
    assert counted == {group: number for group, (_, number) in truth(made).items()}
