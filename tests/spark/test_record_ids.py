"""The ids of records: parts of a path as bytes, the same from generated code and without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.engine.session import started_with
from headrace.engine.settings import REALTIME
from headrace.kernel import doorway
from headrace.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [
    ("clicks", 3, 17, b"clicks/3/17/step", b"17"),
    ("smörgås", -1, -(2**63), "smörgås/-1/-9223372036854775808/step".encode(), b"-9223372036854775808"),
    ("", 0, None, b"/0/step", None),
    (None, None, 2**63 - 1, b"9223372036854775807/step", b"9223372036854775807"),
]


@pytest.mark.parametrize("settings", [{}, REALTIME], ids=["generated", "interpreted"])
def test_parts_become_a_path_and_nulls_are_left_out(spark: SparkSession, settings: dict[str, str]) -> None:
    with started_with(spark, settings):
        df = spark.createDataFrame([row[:3] for row in ROWS], "topic STRING, partition INT, offset BIGINT")
        # Apart from the scan, and both in one row: each has bytes of its own.
        placed = doorway.select(
            df.repartition(1),
            [
                f"{doorway.PLACE}(topic, partition, offset, 'step') AS id",
                f"{doorway.PLACE}(offset) AS alone",
                f"{doorway.PLACE}(offset) IS NULL AS missing",
            ],
        )
        found = {(bytes(r["id"]), None if r["alone"] is None else bytes(r["alone"])) for r in placed.collect()}
        missing = sum(r["missing"] for r in placed.collect())
    assert found == {(id, alone) for *_, id, alone in ROWS}
    assert missing == 1


AT = "2024-01-01T10:00:00Z"


def test_two_writes_to_one_topic_give_records_of_two_ids(spark: SparkSession) -> None:
    """A reader that keeps one record for each id would lose one of them."""
    pipeline = hr.Pipeline("sides")
    clicks = pipeline.read("clicks", schema="n BIGINT")
    clicks.where("n > 0").write("alerts")
    clicks.where("n > 1").select(high="n").write("alerts")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("clicks", {"n": 1}, {"n": 2})
        records = driver.records("alerts")
    ids = sorted((record.headers["headrace-id"], sorted(record.row)) for record in records)
    assert ids == [
        ("clicks/0/0/sides", ["n"]),
        ("clicks/0/1/sides", ["n"]),
        ("clicks/0/1/sides/write-2", ["high"]),
    ]


def test_the_first_result_of_a_window_is_another_if_it_says_something_else(spark: SparkSession) -> None:
    """Real time fires after each event, a batch once for all of its events: they are no repetitions of each other."""

    def first(*batches: int) -> str:
        pipeline = hr.Pipeline("sums")
        clicks = pipeline.read("clicks", schema="n BIGINT, at TIMESTAMP").event_time("at")
        clicks.window("sums", hr.tumbling("1h"), trigger=hr.each(), total="sum(n)").write("out")
        with Driver(pipeline, spark=spark) as driver:
            for size in batches:
                driver.send("clicks", *({"n": i, "at": AT} for i in range(1, size + 1)))
            record = driver.records("out")[0]
            assert record.row["pane_index"] == 0
            return record.headers["headrace-id"]

    assert first(1, 2) == first(1) == first(1, 1, 1)
    assert first(2) != first(1)
