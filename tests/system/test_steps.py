"""Every kind of step, before, between and after the steps with state, on real rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.run import Run
from headrace.engine.settings import Mode
from headrace.errors import UnknownColumnError, UnsupportedStepError
from tests.system.model import timestamp
from tests.system.records import Record, Sent, positions, produce
from tests.system.running import Engine, fresh, shuffles_and_stores
from tests.system.wide_stream import START

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Topic = Callable[..., str]
SCHEMA = "id STRING, k STRING, at TIMESTAMP, x BIGINT"

# Made while this module is imported, when no session runs: pure Python, of Spark Connect.
IS_EVEN = F.col("x") % 2 == 0
INVERSE = F.lit(1) / F.col("x")


def events(xs: Iterable[int | None], key: str = "a", ids: Iterable[str] | None = None) -> list[Sent]:
    """One event a second, with these values."""
    names = ids or (f"e{i}" for i in range(1_000_000))
    return [
        Sent.row({"id": id, "k": key, "at": timestamp(START + i * 1000), "x": x}, key="record-key")
        for i, (x, id) in enumerate(zip(xs, names, strict=False))
    ]


@dataclass
class Job:
    """A pipeline under test, with a source of its own."""

    engine: Engine
    pipeline: hr.Pipeline
    source: str
    folder: Path

    def read(self, schema: str | type = SCHEMA) -> hr.Stream:
        return self.pipeline.read(self.source, schema=schema)

    def timed(self) -> hr.Stream:
        return self.read().event_time("at")

    def keyed(self) -> hr.Stream:
        return self.timed().key_by("k")

    def out(self, name: str) -> str:
        return f"{self.pipeline.name}-{name}"

    def run(self, sent: Iterable[Sent], *names: str) -> list[list[Record]]:
        """Replays the events; gives the records of each output."""
        produce(self.engine.bootstrap, self.source, sent)
        self.engine.replay(self.pipeline, self.folder)
        return [self.engine.read(self.out(name)) for name in names]


@pytest.fixture
def job(engine: Engine, topic: Topic, tmp_path: Path) -> Job:
    name = fresh("steps")
    return Job(engine, hr.Pipeline(name), topic(name, partitions=1), tmp_path)


def column(records: list[Record], name: str) -> list[Any]:
    return [record.row.get(name) for record in records]


def total() -> dict[str, Any]:
    return {"total": hr.last("1h").sum("x")}


def test_steps_before_and_after_the_operator(job: Job) -> None:
    summed = (
        job.read()
        .where(IS_EVEN)  # a Column of Spark Connect
        .with_column("x", "x * 10")  # SQL, which replaces a column
        .event_time("at")
        .with_column("twice", F.col("x") * 2)  # a Column of the session, if one runs
        .select("k", "at", "x", "twice", label="concat(k, '-', id)")
        .key_by("k")
        .rolling("summed", total=hr.last("1h").sum("twice"))
    )
    # Two branches give one name to different things.
    summed.with_column("what", "total + 1").where("what > 100").write(job.out("more"))
    summed.select("k", what=F.lit("small")).write(job.out("small"), key="what")
    summed.where("x != 0").with_column("inverse", INVERSE).where("inverse < 0.04").write(job.out("inverse"))
    more, small, inverse = job.run(events([0, 1, 2, 3, 4, None]), "more", "small", "inverse")
    assert column(more, "what") == [121]
    assert more[0].row == {
        "k": "a", "at": timestamp(START + 4000), "x": 40, "twice": 80, "label": "a-e4", "total": 120, "what": 121,
    }  # fmt: skip
    assert [(record.key, record.row) for record in small] == [(b"small", {"k": "a", "what": "small"})] * 3
    assert [float(value) for value in column(inverse, "inverse")] == [1 / 40], "zero would have stopped the query"
    assert more[0].key == b"a"


def test_where_between_dedupe_and_rolling(job: Job) -> None:
    """A row that `where` takes out has still been seen by the step before it."""
    summed = job.keyed().dedupe("id").where(F.col("x") > 0).rolling("summed", **total())
    summed.write(job.out("sums"))
    summed.duplicates.write(job.out("duplicates"))
    sums, duplicates = job.run(events([1, -2, 3, 4, 5], ids=["a", "b", "b", "c", "a"]), "sums", "duplicates")
    assert column(sums, "total") == [1, 5]
    assert column(duplicates, "x") == [3, 5]


def test_a_column_after_where_between_steps_is_not_computed_for_rows_that_are_out(job: Job) -> None:
    summed = job.keyed().dedupe("id").where("x != 0").with_column("inverse", "1 / x")
    summed.rolling("summed", total=hr.last("1h").sum("inverse")).write(job.out("sums"))
    (sums,) = job.run(events([2, 0, 4]), "sums")
    assert [float(value) for value in column(sums, "total")] == [0.5, 0.75]


def test_two_rolling_steps_and_dedupe_run_in_one_operator(job: Job) -> None:
    first = job.keyed().dedupe("id").rolling("first", **total())
    first.rolling("second", n=hr.last("2s").count(), before=hr.latest("x", "id", within="1h")).write(job.out("both"))
    (both,) = job.run(events([1, 2, 4, 8], ids=["a", "b", "a", "c"]), "both")
    assert [(r.row["total"], r.row["n"], r.row.get("before")) for r in both] == [
        (1, 1, None),
        (3, 2, {"x": 1, "id": "a"}),
        (11, 1, {"x": 2, "id": "b"}),
    ]


def test_consecutive_steps_on_one_key_are_one_shuffle_and_one_state_store(job: Job) -> None:
    once = job.keyed().dedupe("id").where("x > 0").with_column("high", "x > 5")
    spent = once.rolling("spent", **total()).rolling("before", before=hr.latest("x", within="1h"))
    spent.where("high").write(job.out("high"))
    spent.duplicates.write(job.out("duplicates"))
    with job.engine.live(job.pipeline, Mode.MICROBATCH, job.folder) as told:
        produce(job.engine.bootstrap, job.source, events([1, 2, 4, 8], ids=["a", "b", "a", "c"]))
        told.until(lambda told: sum(batch.input_rows for batch in told.batches) == 4, "its events")
        assert [shuffles_and_stores(query) for query in job.engine.queries(job.pipeline.name)] == [(1, 1)]
    assert column(job.engine.read(job.out("high")), "before") == [{"x": 2}]
    assert column(job.engine.read(job.out("duplicates")), "x") == [4]


def test_a_key_in_several_partitions_is_taken_in_the_order_of_partition_and_offset(job: Job, topic: Topic) -> None:
    """Within a batch; which of two batches an event is in is another matter."""
    job.source = topic("spread", partitions=4)
    # All at one time, so that each result tells how many of its key were taken before it.
    rows = [Sent.row({"id": str(i), "k": "ab"[i % 2], "at": timestamp(START), "x": i}) for i in range(64)]
    sent = [replace(row, partition=3 - number // 3 % 4) for number, row in enumerate(rows)]
    job.keyed().rolling("counted", n=hr.last("1h").count(), before=hr.latest("x", within="1h")).write(job.out("n"))
    (found,) = job.run(sent, "n")
    taken: dict[str, list[int]] = {"a": [], "b": []}
    wanted = {}
    for position, row in sorted(zip(positions(sent), (json.loads(s.value or b"") for s in sent), strict=True)):
        before = {"before": {"x": taken[row["k"]][-1]}} if taken[row["k"]] else {}
        taken[row["k"]].append(row["x"])
        wanted[position] = row | {"n": len(taken[row["k"]])} | before
    assert {record.source: record.row for record in found} == wanted


def test_side_outputs_take_steps_too(job: Job) -> None:
    once = job.keyed().dedupe("id", within="1h")
    once.write(job.out("once"))
    once.duplicates.where("x > 2").with_column("y", F.col("x") * 2).select("id", "y").write(job.out("again"), key="y")
    _, again = job.run(events([1, 2, 3], ids=["a", "a", "a"]), "once", "again")
    assert [(record.key, record.row) for record in again] == [(b"6", {"id": "a", "y": 6})]
    assert again[0].reason == "step `dedupe-id` has seen this id"


def test_dedupe_without_a_key_finds_ids_across_the_stream(job: Job) -> None:
    job.timed().dedupe("id", "x").write(job.out("once"))
    sent = [*events([1, 1, 2], key="a", ids="aaa"), *events([1, 3], key="b", ids="aa")]
    (once,) = job.run(sent, "once")
    assert column(once, "x") == [1, 2, 3]


def test_apply_before_the_operator(job: Job) -> None:
    def shift(df: DataFrame) -> DataFrame:
        return df.where("x < 100").withColumn("x", F.col("x") + 1).drop("id")

    summed = job.read().apply(shift, schema="k STRING, at TIMESTAMP, x BIGINT")
    summed = summed.event_time("at", max_skew="1m").key_by("k").rolling("summed", **total())
    summed.write(job.out("sums"))
    summed.dead_letters.write(job.out("dead"))
    summed.quarantined.write(job.out("quarantined"))
    sent = events([1, 100, 2])
    ahead = Sent(sent[0].value, sent[0].key, 0, START - 3_600_000)
    sums, dead, quarantined = job.run([*sent, Sent(b"{"), ahead], "sums", "dead", "quarantined")
    assert column(sums, "total") == [2, 5]
    assert sums[0].row == {"k": "a", "at": timestamp(START), "x": 2, "total": 2}
    assert [letter.source for letter in dead] == [(0, 3)]
    assert [record.source for record in quarantined] == [(0, 4)]


def test_apply_after_the_event_time_leaves_side_rows_alone(job: Job) -> None:
    timed = job.read().event_time("at", max_skew="1m")
    timed.apply(lambda df: df.where("x > 1")).write(job.out("some"))
    timed.quarantined.write(job.out("quarantined"))
    timed.dead_letters.write(job.out("dead"))
    sent = events([1, 2])
    ahead = Sent(sent[0].value, sent[0].key, 0, START - 3_600_000)
    some, dead, quarantined = job.run([*sent, Sent(b"{"), ahead], "some", "dead", "quarantined")
    assert column(some, "x") == [2]
    assert [letter.source for letter in dead] == [(0, 2)]
    assert [record.source for record in quarantined] == [(0, 3)]


def test_apply_that_drops_what_travels_with_the_row_is_an_error(job: Job) -> None:
    job.read().apply(lambda df: df.select("k", "x")).write(job.out("lost"))
    run = Run(job.pipeline, bootstrap=job.engine.bootstrap, checkpoint=job.folder, spark=job.engine.spark)
    with pytest.raises(UnsupportedStepError, match=r"\.apply\(\.\.\.\) dropped the column `_headrace`") as caught:
        run.start()
    assert "tests/system/test_steps.py" in str(caught.value.location)
    assert "keep it" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        # A watermark of a column that is always null would stand still, and Spark would go by it without a word.
        (
            lambda df: df.withColumn("never", F.lit(None).cast("timestamp")).withWatermark("never", "1 day"),
            "withWatermark",
        ),
        (lambda df: df.dropDuplicates(["x"]), "dropDuplicates"),
        (lambda df: df.groupBy("k", "_headrace").agg(F.sum("x").alias("x"), F.max("at").alias("at")), "an aggregation"),
        (lambda df: df.join(df.select(F.col("x").alias("y")), F.expr("x = y")), "a join of two streams"),
        (lambda df: df.limit(5), "limit"),
    ],
)
def test_apply_that_keeps_state_is_an_error(job: Job, function: Callable[[Any], Any], named: str) -> None:
    job.read().event_time("at").apply(function).write(job.out("lost"))
    run = Run(job.pipeline, bootstrap=job.engine.bootstrap, checkpoint=job.folder, spark=job.engine.spark)
    with pytest.raises(UnsupportedStepError, match=rf"\.apply\(\.\.\.\) uses {named}\.") as caught:
        run.start()
    assert "tests/system/test_steps.py" in str(caught.value.location)


def test_apply_may_join_a_table_that_was_aggregated(job: Job) -> None:
    table = job.engine.spark.createDataFrame([(1, "one"), (2, "two"), (2, "zwei")], "y INT, name STRING")
    names = table.groupBy("y").agg(F.count("*").alias("n")).distinct().limit(10)
    job.read().apply(lambda df: df.join(names, F.expr("x = y"))).write(job.out("named"))
    (named,) = job.run(events([1, 2, 3]), "named")
    assert [(record.row["x"], record.row["n"]) for record in named] == [(1, 1), (2, 2)]


def test_an_unknown_column_after_an_apply_is_found_when_the_run_starts(job: Job) -> None:
    job.read().apply(lambda df: df.drop("x")).where("x > 5").write(job.out("lost"))
    run = Run(job.pipeline, bootstrap=job.engine.bootstrap, checkpoint=job.folder, spark=job.engine.spark)
    with pytest.raises(UnknownColumnError, match="uses column `x`, which is not there") as caught:
        run.start()
    assert caught.value.pipeline == job.pipeline.name
    assert "test_steps.py" in str(caught.value.location)


def test_a_stateless_pipeline_with_several_outputs(job: Job) -> None:
    read = job.read()
    read.where("x > 1").event_time("at").select("x").write(job.out("timed"))
    read.where("x < 3").with_column("x", F.col("x") * 10).write(job.out("tens"))
    read.write(job.out("all"), key=["k", "x"])
    timed, tens, all_ = job.run([*events([1, 2, 3]), Sent(b"{")], "timed", "tens", "all")
    assert column(timed, "x") == [2, 3]
    assert column(tens, "x") == [10, 20]
    assert column(all_, "x") == [1, 2, 3]
    assert all_[0].key == b'{"k":"a","x":1}'
    assert timed[0].key == b"record-key", "a stream without a key keeps that of the record"
    assert len(job.engine.read(f"{job.pipeline.name}.dead-letters")) == 1


def test_several_operators_on_one_read_and_keys_of_all_types(job: Job) -> None:
    timed = job.read("a STRING, b STRING, n BIGINT, at TIMESTAMP, ts TIMESTAMP, m DECIMAL(30,2)").event_time("at")
    keys = {"ab": ("a", "b"), "n": ("n",), "ts": ("ts",), "m": ("m",)}
    for name, key in keys.items():
        timed.key_by(*key).rolling(f"by-{name}", count=hr.last("1h").count()).write(job.out(name))
    rows: list[dict[str, Any]] = []
    for i in range(24):
        a, b = ("x", "yz") if i % 2 else ("xy", "z")  # the same text, cut in another place
        more = {"ts": timestamp(START + i % 3), "m": Decimal(i % 4).scaleb(-2)}
        rows.append({"a": a, "b": b, "n": -(i % 6), "at": timestamp(START + i), **more})
    found = dict(zip(keys, job.run([*map(Sent.row, rows), Sent(b"{")], *keys), strict=True))
    for name, key in keys.items():
        seen: list[tuple[Any, ...]] = []
        wanted = []
        for row in rows:
            seen.append(tuple(row[column] for column in key))
            wanted.append(seen.count(seen[-1]))
        assert column(found[name], "count") == wanted, name
    assert found["ab"][0].key == b'{"a":"xy","b":"z"}'
    assert found["n"][1].key == b"-1"
    assert len(job.engine.read(f"{job.pipeline.name}.dead-letters")) == 1, "a bad payload is one dead letter"


def test_a_row_without_the_key_of_one_operator_is_a_dead_letter_of_that_operator(job: Job) -> None:
    timed = job.timed()
    timed.key_by("k").rolling("by-k", count=hr.last("1h").count()).write(job.out("by-k"))
    timed.key_by("x").rolling("by-x", count=hr.last("1h").count()).write(job.out("by-x"))
    by_k, by_x = job.run(events([1, None, 1]), "by-k", "by-x")
    assert column(by_k, "count") == [1, 2, 3]
    assert column(by_x, "count") == [1, 2]
    (letter,) = job.engine.read(f"{job.pipeline.name}.dead-letters")
    assert letter.id == f"{job.source}/0/1/by-x"
    assert letter.reason == "required field `x` is missing or null"


@dataclass
class Payment:
    id: str
    card: int
    amount: Annotated[Decimal, "decimal(10,2)"]
    sent: int
    note: str | None


def test_a_dataclass_with_event_time_in_milliseconds_and_columns_of_the_session(job: Job) -> None:
    big: Column = F.col("spent") > 20
    assert type(big).__module__ == "pyspark.sql.classic.column", "made while the session runs"
    spent = job.read(Payment).event_time("sent", out_of_order="1s").key_by("card")
    activity = spent.rolling("spent", spent=hr.last("10s").sum("amount"), average=hr.last("10s").avg("amount"))
    activity.where(big).select("id", "spent", "average").write(job.out("big"))
    amounts = ["10.10", "10.20", "0.05"]
    sent = [
        Sent.row({"id": str(i), "card": 7, "amount": Decimal(amount), "sent": START + i * 9000})
        for i, amount in enumerate(amounts)
    ]
    (big_ones,) = job.run([*sent, Sent.row({"id": "x", "card": 7, "sent": START})], "big")
    assert [record.row for record in big_ones] == [{"id": "1", "spent": "20.30", "average": "10.149999999999999"}]
    (letter,) = job.engine.read(f"{job.pipeline.name}.dead-letters")
    assert letter.reason == "required field `amount` is missing or null"


def test_a_sum_that_does_not_fit_is_a_dead_letter_and_the_stream_goes_on(job: Job) -> None:
    summed = job.keyed().rolling("summed", total=hr.last("2s").sum("x"))
    summed.write(job.out("sums"))
    summed.dead_letters.write(job.out("dead"))
    most = 2**63 - 1
    sums, dead = job.run(events([most, 1, 2, most, -most, 5]), "sums", "dead")
    assert column(sums, "total") == [most, 2, -most, 5 - most], "those that failed have no part in later sums"
    assert [(letter.source, letter.reason) for letter in dead] == [
        ((0, 1), "ArithmeticException: the sum does not fit a 64-bit integer"),
        ((0, 3), "ArithmeticException: the sum does not fit a 64-bit integer"),
    ]
    assert dead[0].row == {"id": "e1", "k": "a", "at": timestamp(START + 1000), "x": 1}
    assert dead[0].key == b"record-key"
