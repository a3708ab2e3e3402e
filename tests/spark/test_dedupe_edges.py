"""Where `dedupe` is easily wrong: events without an id or that fail after it, ids that are numbers, late copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.testing import Driver, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, shop STRING, a BIGINT, b BIGINT, d DOUBLE, at TIMESTAMP"


def timed() -> tuple[hr.Pipeline, hr.Stream]:
    pipeline = hr.Pipeline("payments")
    return pipeline, pipeline.read("payments", schema=SCHEMA).event_time("at")


def payment(id: str | None, second: float = 0, **more: Any) -> dict[str, Any]:
    return {"id": id, "shop": "s", "at": at(second)} | more


def at(second: float) -> str:
    return f"2024-01-01T10:{int(second) // 60:02}:{second % 60:06.3f}Z"


def reasons(letters: list[Record]) -> list[str]:
    return [letter.headers["headrace-reason"] for letter in letters]


@pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without"])
@pytest.mark.parametrize("columns", [("id",), ("id", "shop"), ("a",), ("computed",)], ids=str)
def test_an_event_without_its_id_is_a_dead_letter(spark: SparkSession, columns: tuple[str, ...], keyed: bool) -> None:
    pipeline, stream = timed()
    stream = stream.with_column("computed", "upper(id)").with_column("bucket", "b")
    once = (stream.key_by("bucket") if keyed else stream).dedupe(*columns)
    once.write("once")
    once.duplicates.write("again")
    with Driver(pipeline, spark=spark) as driver:
        first, second = payment(None, a=None, b=1), payment(None, 1, a=None, b=1)
        driver.send("payments", first, second, payment("x", a=1, b=1), payment("x", a=1, b=1))
        driver.send("payments", first)
        letters = driver.records("payments.dead-letters")
        assert [row["id"] for row in driver.read("once")] == ["x"]
        assert [row["id"] for row in driver.read("again")] == ["x"]
        assert len(letters) == 3
        if keyed or columns == ("computed",):
            (reason,) = set(reasons(letters))
            names = " or ".join(f"`{name}`" for name in columns)
            assert reason == f"step `dedupe-{'-'.join(columns)}` knows an event by its id, and {names} is null"
            assert [letter.row["at"] for letter in letters] == [at(0), at(1), at(0)]


def failing(step: str) -> hr.Pipeline:
    """Something with state after a `dedupe`, that fails where b is zero."""
    pipeline, stream = timed()
    once = stream.key_by("shop").dedupe("id", within="10s")
    if step == "window":
        counted = once.window("sums", hr.tumbling("1h"), trigger=hr.each(), total="sum(a div b)")
    elif step == "session":
        counted = once.window("sums", hr.session("10m"), trigger=hr.each(), total="sum(a div b)")
    else:
        counted = once.window("sums", hr.sliding("1h"), total="sum(a div b)")
    counted.write("sums")
    counted.duplicates.write("again")
    return pipeline


@pytest.mark.parametrize("step", ["window", "session", "sliding"])
def test_what_failed_after_it_may_come_again(spark: SparkSession, step: str) -> None:
    with Driver(failing(step), spark=spark) as driver:
        bad, good = payment("x", a=6, b=0), payment("x", a=6, b=2)
        driver.send("payments", bad, bad)
        assert len(driver.records("payments.dead-letters")) == 2, "a second copy fails as the first one did"
        driver.send("payments", good, good)
        assert [row["total"] for row in driver.read("sums")] == [3]
        assert [row["b"] for row in driver.read("again")] == [2]
        driver.send("payments", bad)
        assert [row["b"] for row in driver.read("again")] == [0], "the one that came through is remembered"
        driver.advance_watermark("2024-01-02T10:00:00Z")
        driver.advance_watermark("2024-01-02T10:00:01Z")
        assert driver.state_rows == 0


def test_what_failed_in_a_rolling_step_may_come_again(spark: SparkSession) -> None:
    pipeline, stream = timed()
    summed = stream.key_by("shop").dedupe("id").rolling("sums", total=hr.last("1h").sum("a"))
    summed.write("sums")
    summed.duplicates.write("again")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("payments", payment("w", a=2**63 - 1), payment("x", 1, a=1))
        (letter,) = driver.records("payments.dead-letters")
        assert letter.row["id"] == "x"
        driver.send("payments", payment("x", 1, a=-5), payment("w", a=1))
        assert [row["id"] for row in driver.read("sums")] == ["w", "x"]
        assert [row["id"] for row in driver.read("again")] == ["w"]


@pytest.mark.parametrize("size", [1, 4])
def test_an_event_that_failed_leaves_the_time_of_the_one_before_it(spark: SparkSession, size: int) -> None:
    with Driver(failing("window"), spark=spark) as driver:
        first, new = payment("x", 0, a=6, b=2), payment("x", 20, a=6, b=0)
        near_the_first, repaired = payment("x", 9, a=8, b=2), payment("x", 20, a=10, b=2)
        sent = [first, new, near_the_first, repaired]
        for start in range(0, len(sent), size):
            driver.send("payments", *sent[start : start + size])
        assert driver.read("sums")[-1]["total"] == 8
        assert [row["a"] for row in driver.read("again")] == [8]
        assert len(driver.records("payments.dead-letters")) == 1


def test_many_ids_and_each_fails_first(spark: SparkSession) -> None:
    """More than one part of the state holds them, and each is taken back where it was put."""
    with Driver(failing("window"), spark=spark) as driver:
        ids = [f"id-{number}" for number in range(300)]
        driver.send("payments", *(payment(id, a=1, b=1) for id in ids[::2]))
        driver.send("payments", *(payment(id, a=1, b=0) for id in ids))
        assert len(driver.read("again")) == 150
        assert len(driver.records("payments.dead-letters")) == 150
        driver.send("payments", *(payment(id, a=1, b=1) for id in ids))
        assert driver.read("sums")[-1]["total"] == 300
        assert len(driver.read("again")) == 150


def test_an_event_that_a_second_dedupe_refuses_is_forgotten_by_the_first(spark: SparkSession) -> None:
    pipeline, stream = timed()
    once = stream.key_by("shop").dedupe("id").dedupe("a")
    once.write("once")
    once.duplicates.write("again")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("payments", payment("x"), payment("x", a=1), payment("x", a=2), payment("y", a=1))
        assert [(row["id"], row["a"]) for row in driver.read("once")] == [("x", 1)]
        assert [(row["id"], row["a"]) for row in driver.read("again")] == [("x", 2), ("y", 1)]
        (reason,) = reasons(driver.records("payments.dead-letters"))
        assert reason == "step `dedupe-a` knows an event by its id, and `a` is null"


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "STRUCT<x: DOUBLE>", "ARRAY<DOUBLE>"])
def test_zeros_of_either_sign_are_one_id_and_one_key(spark: SparkSession, kind: str) -> None:
    pipeline = hr.Pipeline("zeros")
    read = pipeline.read("events", schema=f"n INT, v {kind}, at TIMESTAMP").event_time("at")
    read.with_column("all", F.lit(1)).key_by("all").dedupe("v").select("n").write("once")
    read.key_by("v").window("counts", hr.tumbling("1h"), n="count(*)").write("counts")

    def event(number: int, zero: str) -> str:
        value = {"STRUCT<x: DOUBLE>": f'{{"x": {zero}}}', "ARRAY<DOUBLE>": f"[{zero}]"}.get(kind, zero)
        return f'{{"n": {number}, "v": {value}, "at": "{at(0)}"}}'

    with Driver(pipeline, spark=spark) as driver:
        driver.send("events", *(event(number, zero) for number, zero in enumerate(["-0.0", "0.0", "1.5", '"NaN"'])))
        driver.send("events", *(event(4 + number, zero) for number, zero in enumerate(["0.0", "-0.0", '"NaN"'])))
        driver.advance_watermark("2024-01-02T10:00:00Z")
        assert [row["n"] for row in driver.read("once")] == [0, 2, 3]
        assert sorted(row["n"] for row in driver.read("counts")) == [1, 2, 4]


@pytest.mark.parametrize(
    ("watermark", "forgotten"), [(109.999, False), (110, True), (110.3, True), (115, True)], ids=str
)
def test_what_is_forgotten_goes_by_the_watermark_and_not_by_when_it_is_cleared_away(
    spark: SparkSession, watermark: float, forgotten: bool
) -> None:
    pipeline, stream = timed()
    once = stream.key_by("shop").dedupe("id", within="10s")
    once.write("once")
    once.duplicates.write("again")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("payments", payment("x", 100))
        driver.advance_watermark(at(watermark))
        driver.send("payments", payment("x", 106), payment("x", 107))
        passed = [row["at"] for row in driver.read("once")]
        again = [row["at"] for row in driver.read("again")]
        new, copies = ([106], [107]) if forgotten else ([], [106, 107])
        assert passed == [at(second) for second in (100, *new)]
        assert again == [at(second) for second in copies]
