"""The rules of the fraud example, one card at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from examples.fraud import fraud
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AFTERWARDS = datetime(2024, 3, 2, tzinfo=UTC)  # on the clock: none of the events is from the future
PARIS, NEW_YORK = (48.86, 2.35), (40.71, -74.01)


def use(number: int, at: str, amount: float = 20.0, place: tuple[float, float] = PARIS) -> dict[str, Any]:
    lat, lon = place
    return {
        "txn_id": f"t{number}",
        "card_id": "c1",
        "amount": amount,
        "merchant": "m",
        "lat": lat,
        "lon": lon,
        "occurred_at": f"2024-03-01T{at}Z",
    }


def reasons(spark: SparkSession, *uses: dict[str, Any], watermark: str | None = None) -> list[list[str]]:
    """Of each decision, in the order of the uses. The watermark, if given, moves before the last of them."""
    with Driver(fraud, spark=spark, start=AFTERWARDS) as driver:
        driver.send("transactions", *uses[:-1])
        if watermark is not None:
            driver.advance_watermark(f"2024-03-01T{watermark}Z")
        driver.send("transactions", uses[-1])
        return [decision["reasons"] for decision in driver.read("decisions")]


def test_more_than_five_in_a_minute(spark: SparkSession) -> None:
    uses = [use(n, f"10:00:{9 * n:02d}") for n in range(6)]
    assert reasons(spark, *uses) == [[], [], [], [], [], ["card_testing"]]


def test_more_than_five_thousand_in_ten_minutes(spark: SparkSession) -> None:
    assert reasons(spark, use(1, "10:00:00", 2500.0), use(2, "10:09:59", 2500.01)) == [[], ["spending_spree"]]
    assert reasons(spark, use(1, "10:00:00", 2500.0), use(2, "10:10:00", 2500.01)) == [[], []]


def test_faster_than_a_plane_though_the_two_uses_are_hours_apart(spark: SparkSession) -> None:
    """Longer than any window of the rules: the use before is still known."""
    before = [use(n, f"10:00:0{n}") for n in range(3)]
    assert reasons(spark, *before, use(9, "14:00:00", place=NEW_YORK), watermark="13:59:30")[-1] == [
        "impossible_travel"
    ]
    assert reasons(spark, *before, use(9, "23:30:00", place=NEW_YORK), watermark="23:29:30")[-1] == [], (
        "there is such a flight"
    )
