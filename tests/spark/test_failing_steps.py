"""A step that fails on a row makes a dead letter of it: the job goes on, and the other rows are what they would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.session import started_with
from headrace.errors import QueryFailedError
from headrace.testing import Driver, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, shop STRING, a BIGINT, b BIGINT, at TIMESTAMP"


def orders(*pairs: tuple[int, int]) -> list[dict[str, Any]]:
    """One order for each a and b, a second apart."""
    return [
        {"id": f"o{i}", "shop": "s", "a": a, "b": b, "at": f"2024-01-01T10:00:{i:02}.000Z", "more": 1}
        for i, (a, b) in enumerate(pairs)
    ]


def declared() -> tuple[hr.Pipeline, hr.Stream]:
    pipeline = hr.Pipeline("shops")
    return pipeline, pipeline.read("orders", schema=SCHEMA).event_time("at")


def played(pipeline: hr.Pipeline, spark: SparkSession, *pairs: tuple[int, int]) -> tuple[list[Any], list[Record]]:
    with Driver(pipeline, spark=spark) as driver:
        driver.send("orders", *orders(*pairs))
        return driver.read("out"), driver.records("shops.dead-letters")


def assert_divided_by_zero(letter: Record, step: str, number: int) -> None:
    assert letter.headers["headrace-reason"].startswith(f"{step} failed: SparkArithmeticException: [DIVIDE_BY_ZERO]")
    assert letter.headers["headrace-stack"].startswith("\tat ")
    assert letter.headers["headrace-source-topic"] == "orders"
    assert letter.headers["headrace-source-offset"] == str(number)
    assert letter.row["id"] == f"o{number}"
    assert letter.row["b"] == 0


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda s: s.with_column("share", F.col("a") / F.col("b")), "with_column `share`"),
        (lambda s: s.with_column("share", "a / b"), "with_column `share`"),
        (lambda s: s.where(F.col("a") / F.col("b") >= 0), "where"),
        (lambda s: s.select(*s.schema.names, share=F.col("a") / F.col("b")), "select"),
    ],
    ids=["with_column", "in SQL", "where", "select"],
)
@pytest.mark.parametrize("place", ["alone", "before", "between", "after"])
def test_the_row_is_a_dead_letter_and_the_others_go_on(
    spark: SparkSession, step: Any, expected: str, place: str
) -> None:
    pipeline, stream = declared()
    if place == "before":
        stream = step(stream)
    if place != "alone":
        stream = stream.key_by("shop").dedupe("id", within="1h")
        stream = step(stream) if place == "between" else stream
        stream = stream.rolling("seen", n=hr.last("1h").count())
    if place in ("alone", "after"):
        stream = step(stream)
    stream.write("out")
    rows, letters = played(pipeline, spark, (6, 2), (6, 0), (8, 2))
    assert [row["id"] for row in rows] == ["o0", "o2"]
    (letter,) = letters
    assert_divided_by_zero(letter, expected, 1)
    assert (b'"more"' in (letter.value or b"")) == (place != "after"), "the bytes that came"
    if place in ("before", "between"):
        assert [row["n"] for row in rows] == [1, 2], "a row that failed before a step was never seen by it"
    if place == "after":
        assert [row["n"] for row in rows] == [1, 3], "one that fails after it has been counted"


def test_a_row_that_fails_for_one_output_is_in_none(spark: SparkSession) -> None:
    """Otherwise what is repaired and sent again would be there twice in the others."""
    pipeline, stream = declared()
    stream.write("out")
    shares = stream.with_column("share", "a / b")
    shares.write("shares")
    shares.where("share > 3").write("large")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("orders", *orders((6, 2), (6, 0), (8, 2)))
        assert [row["id"] for row in driver.read("out")] == ["o0", "o2"]
        assert [row["share"] for row in driver.read("shares")] == [3.0, 4.0]
        assert [row["id"] for row in driver.read("large")] == ["o2"]
        (letter,) = driver.records("shops.dead-letters")
        assert_divided_by_zero(letter, "with_column `share`", 1)


def test_what_a_where_took_out_can_not_fail_any_more(spark: SparkSession) -> None:
    pipeline, stream = declared()
    stream.where("b <> 0").with_column("share", "a / b").write("out")
    rows, letters = played(pipeline, spark, (6, 2), (6, 0), (8, 2))
    assert [row["share"] for row in rows] == [3.0, 4.0]
    assert letters == []


def test_what_failed_before_a_dedupe_may_come_again(spark: SparkSession) -> None:
    pipeline, stream = declared()
    stream.with_column("share", "a / b").key_by("shop").dedupe("id").write("out")
    with Driver(pipeline, spark=spark) as driver:
        bad, good = orders((6, 0))[0], orders((6, 3))[0]
        driver.send("orders", bad)
        driver.send("orders", good, good)
        assert [row["share"] for row in driver.read("out")] == [2.0]
        assert len(driver.records("shops.dead-letters")) == 1


def test_the_letter_has_the_bytes_that_came(spark: SparkSession) -> None:
    """Also where the step before the failure has dropped a column: what is sent again must be the whole record."""
    pipeline, stream = declared()
    stream.select("shop", "at", "a", "b").with_column("share", "a / b").key_by("shop").rolling(
        "seen", n=hr.last("1h").count()
    ).write("out")
    with Driver(pipeline, spark=spark) as driver:
        sent = b'{"id": "x",  "shop": "s", "a": 1, "b": 0, "at": "2024-01-01T10:00:00Z", "more": [1]}'
        driver.send("orders", sent)
        (letter,) = driver.records("shops.dead-letters")
        assert letter.value == sent


def test_a_step_on_a_side_output_may_fail_too(spark: SparkSession) -> None:
    pipeline, stream = declared()
    counted = stream.key_by("shop").rolling("seen", n=hr.last("1m").count())
    counted.write("out")
    counted.late.with_column("share", "a / b").write("late")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("orders", *orders((1, 1)))
        driver.advance_watermark("2024-01-01T11:00:00Z")
        driver.send("orders", *orders((6, 2), (6, 0)))
        assert [row["share"] for row in driver.read("late")] == [3.0]
        (letter,) = driver.records("shops.dead-letters")
        assert letter.row["id"] == "o1"
        assert "DIVIDE_BY_ZERO" in letter.headers["headrace-reason"]


def test_the_result_of_a_window_on_which_a_step_fails(spark: SparkSession) -> None:
    pipeline, stream = declared()
    windows = stream.key_by("shop").window("sums", hr.tumbling("10s"), a="sum(a)", b="sum(b)")
    windows.with_column("share", "a / b").select("a", "share").write("out")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("orders", *orders((6, 2), (6, 1), *((1, 0) for _ in range(18))))
        driver.advance_watermark("2024-01-01T11:00:00Z")
        assert driver.read("out") == [{"a": 20, "share": pytest.approx(20 / 3)}]
        (letter,) = driver.records("shops.dead-letters")
        assert letter.row["window_start"] == "2024-01-01T10:00:10.000Z"
        assert (letter.row["shop"], letter.row["a"], letter.row["b"]) == ("s", 10, 0)
        assert letter.headers["headrace-reason"].startswith("with_column `share` failed: ")
        assert "sums" in letter.headers["headrace-id"]


FAILURES = {
    "soon": "INVALID_ARRAY_INDEX",
    "soon-x": "CAST_INVALID_INPUT",
    "soon-2147483647": "ARITHMETIC_OVERFLOW",
    "soon-7": "CAST_INVALID_INPUT",
    "2024--7": "USER_RAISED_EXCEPTION",
}


def test_a_late_event_of_a_window_on_which_a_step_fails(spark: SparkSession) -> None:
    pipeline, stream = declared()
    windows = stream.key_by("shop").window("sums", hr.tumbling("10s"), n="count(*)")
    windows.with_column("x", "1 / (n - 1)").write("out")
    windows.late.with_column("share", "a / b").write("late")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("orders", *orders((1, 1)))
        driver.advance_watermark("2024-01-01T11:00:00Z")
        driver.send("orders", *orders((6, 2), (6, 0)))
        assert [row["share"] for row in driver.read("late")] == [3.0]
        of_window, of_event = driver.records("shops.dead-letters")
    assert of_window.row["window_start"] == "2024-01-01T10:00:00.000Z"
    assert "headrace-source-offset" not in of_window.headers
    assert of_event.row["id"] == "o1"
    assert of_event.headers["headrace-id"].startswith("orders/0/2/")


def test_behind_a_function_of_the_user_too_and_before_it_nothing_vanishes(spark: SparkSession) -> None:
    pipeline, stream = declared()
    stream.apply(lambda rows: rows, schema=SCHEMA).with_column("share", "a / b").key_by("shop").dedupe("id").write(
        "out"
    )
    with Driver(pipeline, spark=spark) as driver:
        driver.send("orders", *orders((6, 2), (6, 0)), {**orders((1, 1))[0], "id": "keyless", "shop": None})
        assert [row["share"] for row in driver.read("out")] == [3.0]
        letters = {
            letter.row["id"]: letter.headers["headrace-reason"] for letter in driver.records("shops.dead-letters")
        }
    assert letters.keys() == {"o1", "keyless"}
    assert letters["keyless"] == "required field `shop` is missing or null"

    pipeline, stream = declared()
    stream.with_column("share", "a / b").apply(lambda rows: rows).write("out")
    with Driver(pipeline, spark=spark) as driver, pytest.raises(QueryFailedError, match="DIVIDE_BY_ZERO"):
        driver.send("orders", *orders((6, 0)))


def test_a_time_that_is_missing_before_a_function_is_told_though_another_query_needs_none(spark: SparkSession) -> None:
    pipeline = hr.Pipeline("shops")
    stream = pipeline.read("orders", schema=SCHEMA)
    stream.write("copies")
    stream.event_time("at", max_skew="5m").apply(lambda rows: rows).write("out")
    with Driver(pipeline, spark=spark, start="2024-01-01T10:00:00Z") as driver:
        ahead = orders((1, 1))[0] | {"at": "2999-01-01T10:00:00Z"}
        driver.send("orders", *orders((6, 2)), {"id": "timeless"}, ahead | {"id": "ahead"})
        assert [row["id"] for row in driver.read("copies")] == ["o0", "timeless", "ahead"]
        assert [row["id"] for row in driver.read("out")] == ["o0"]
        assert [letter.row["id"] for letter in driver.records("shops.dead-letters")] == ["timeless"]
        assert [row["id"] for row in driver.read("shops.quarantined")] == ["ahead"]


def test_many_steps_are_planned_as_fast_as_few(spark: SparkSession) -> None:
    """Spark must not push a filter down through them: it would hold each of them twice as often as the next."""
    pipeline, stream = declared()
    for i in range(12):
        stream = stream.with_column(f"c{i}", f"a + {i}" if i == 0 else f"c{i - 1} + b")
    stream.where("c11 > 0").key_by("shop").rolling("seen", n=hr.last("1h").count()).write("out")
    with Driver(pipeline, spark=spark) as driver:
        driver.send("orders", *orders((6, 2), (-100, 1)))
        assert [row["c11"] for row in driver.read("out")] == [6 + 11 * 2]
        planned: str = driver._queries[0].running._jsq.explainInternal(False)
    assert 0 < planned.count("attempt(") <= 13


@pytest.mark.parametrize("generated", [True, False])
def test_any_failure_of_an_expression_with_generated_code_and_without(spark: SparkSession, generated: bool) -> None:
    """Real time runs without generated code."""
    settings = {
        "spark.sql.codegen.wholeStage": str(generated).lower(),
        "spark.sql.codegen.factoryMode": "CODEGEN_ONLY" if generated else "NO_CODEGEN",
    }
    pipeline, stream = declared()
    # What two values have in common Spark would compute once, outside of both.
    number = F.split("id", "-", 2)[1].cast("int")
    stream = stream.select("id", number=number, next=number + 1).with_column("twice", number + number)
    stream = stream.with_column("day", F.to_timestamp(F.split("id", "-")[0]))
    stream.where(F.when(F.col("number") < 0, F.raise_error(F.lit("negative"))).isNull()).write("out")
    with started_with(spark, settings), Driver(pipeline, spark=spark) as driver:
        driver.send("orders", *({"id": id, "at": "2024-01-01T10:00:00Z"} for id in ("2024-7", *FAILURES, "2025-1")))
        assert [(row["number"], row["next"]) for row in driver.read("out")] == [(7, 8), (1, 2)]
        letters = driver.records("shops.dead-letters")
        reasons = {letter.row["id"]: letter.headers["headrace-reason"] for letter in letters}
    assert {id: reason.split("[")[1].split("]")[0] for id, reason in reasons.items()} == FAILURES


MOST = 2**63 - 1


def summing(kind: str, stream: hr.Stream) -> hr.Stream:
    """The sum of a and the number of events of the last hour, with each event."""
    shops = stream.key_by("shop")
    if kind == "sliding":
        return shops.window("sums", hr.sliding("1h"), total="sum(a)", n="count(*)")
    # Of the two windows, the one that can be computed is also the one that is computed first.
    return shops.rolling("sums", last=hr.last("1s").sum("a"), total=hr.last("1h").sum("a"), n=hr.last("1h").count())


@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.parametrize("kind", ["rolling", "sliding"])
def test_an_event_whose_sum_does_not_fit_has_no_part_in_later_ones(spark: SparkSession, kind: str, size: int) -> None:
    pipeline, stream = declared()
    summing(kind, stream).write("out")
    sent = orders((MOST - 10, 0), (20, 0), (3, 0), (-4, 0), (15, 0))
    with Driver(pipeline, spark=spark) as driver:
        for start in range(0, len(sent), size):
            driver.send("orders", *sent[start : start + size])
        assert [(row["total"], row["n"]) for row in driver.read("out")] == [
            (MOST - 10, 1),
            (MOST - 7, 2),
            (MOST - 11, 3),
        ]
        failed = driver.records("shops.dead-letters")
        assert [letter.row["a"] for letter in failed] == [20, 15]
        # Repaired and sent again each of them counts once.
        driver.send("orders", *(letter.row | {"a": 2} for letter in failed))
        assert [(row["total"], row["n"]) for row in driver.read("out")] == [(MOST - 8, 2), (MOST - 7, 5)]


@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.parametrize("later", ["rolling", "dedupe"])
def test_an_event_that_a_later_step_refuses_is_in_none_before_it(spark: SparkSession, later: str, size: int) -> None:
    pipeline, stream = declared()
    seen = (
        stream.key_by("shop")
        .dedupe("id", within="1h")
        .rolling("seen", n=hr.last("1h").count(), before=hr.latest("a", back=1), itself=hr.latest("a", back=0))
    )
    if later == "rolling":
        seen.rolling("sums", total=hr.last("1h").sum("a")).write("out")
    else:
        seen.dedupe("b", within="1h").write("out")
    first, second, third = orders((1, 1), (2, 2), (3, 3))
    sent = [first, second | ({"a": MOST} if later == "rolling" else {"b": None}), third, second]
    with Driver(pipeline, spark=spark) as driver:
        for start in range(0, len(sent), size):
            driver.send("orders", *sent[start : start + size])
        (letter,) = driver.records("shops.dead-letters")
        assert letter.row["id"] == "o1"
        rows = driver.read("out")
        assert [(row["id"], row["n"]) for row in rows] == [("o0", 1), ("o2", 2), ("o1", 2)]
        assert [row.get("before") for row in rows] == [None, {"a": 1}, {"a": 1}]
        assert [row["itself"] for row in rows] == [{"a": 1}, {"a": 3}, {"a": 2}]
        if later == "rolling":
            assert [row["total"] for row in rows] == [1, 4, 3]


def test_a_dedupe_has_seen_what_a_later_step_takes_out_or_finds_late(spark: SparkSession) -> None:
    pipeline, stream = declared()
    counted = stream.key_by("shop").dedupe("id", within="1h").where("b > 0").rolling("seen", n=hr.last("1h").count())
    counted.write("out")
    counted.late.write("late")
    counted.duplicates.write("again")
    with Driver(pipeline, spark=spark) as driver:
        first, second, third = orders((1, 1), (2, 0), (3, 3))
        driver.send("orders", first, second, third)
        assert [(row["id"], row["n"]) for row in driver.read("out")] == [("o0", 1), ("o2", 2)]
        driver.send("orders", second | {"b": 1})
        driver.advance_watermark("2024-01-01T10:30:00Z")
        late = first | {"id": "o9"}
        driver.send("orders", late, late)
        assert [row["id"] for row in driver.read("late")] == ["o9"]
        assert [row["id"] for row in driver.read("again")] == ["o1", "o9"]
