"""The ids of records: parts of a path as bytes, the same from generated code and without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.engine.session import started_with
from headrace.engine.settings import REALTIME
from headrace.kernel import doorway

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
