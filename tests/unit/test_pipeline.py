"""Building a pipeline: the nodes that the engine gets, the columns that are visible, and where a step was written."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    Latest,
    Read,
    Rolling,
    Select,
    Side,
    SideOutput,
    Where,
    WindowAggregate,
    WithColumn,
    Write,
)

SCHEMA = "txn_id STRING, card_id STRING, amount DECIMAL(10,2), cents INT, lat DOUBLE, lon FLOAT, occurred_at TIMESTAMP"
CARD_ID = F.col("card_id")
IS_LARGE = F.col("amount") > 100


def transactions(pipeline: hr.Pipeline) -> hr.Stream:
    return pipeline.read("transactions", schema=SCHEMA)


def here() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_the_fraud_pipeline_becomes_a_chain_of_nodes() -> None:
    fraud = hr.Pipeline("card-fraud")
    txns = (
        transactions(fraud)
        .event_time("occurred_at", out_of_order="30s", max_skew="5m")
        .dedupe("txn_id", within=timedelta(hours=24))
    )
    activity = txns.key_by("card_id").rolling(
        "card-activity",
        count_1m=hr.last("1m").count(),
        spend_10m=hr.last("10m").sum("amount"),
        here=hr.latest("lat", "lon", "occurred_at", back=1),
    )
    activity.where("count_1m > 5").write("fraud-alerts", key="card_id")
    activity.late.write("transactions-late")
    fraud.check()

    read, event_time, dedupe, key_by, rolling, where, write, late, write_late = fraud.nodes
    assert isinstance(read, Read)
    assert read.topic == "transactions"
    assert isinstance(event_time, EventTime)
    assert (event_time.column, event_time.out_of_order_ms, event_time.max_skew_ms) == ("occurred_at", 30_000, 300_000)
    assert isinstance(dedupe, Dedupe)
    assert (dedupe.name, dedupe.columns, dedupe.within_ms) == ("dedupe-txn_id", ("txn_id",), 86_400_000)
    assert isinstance(key_by, KeyBy)
    assert key_by.columns == ("card_id",)
    assert isinstance(rolling, Rolling)
    assert rolling.aggregates == (
        ("count_1m", WindowAggregate("count", None, 60_000)),
        ("spend_10m", WindowAggregate("sum", "amount", 600_000)),
        ("here", Latest(("lat", "lon", "occurred_at"), 1, None)),
    )
    assert isinstance(where, Where)
    assert isinstance(write, Write)
    assert (write.topic, write.key) == ("fraud-alerts", ("card_id",))
    assert isinstance(late, SideOutput)
    assert late.side is Side.LATE
    assert isinstance(write_late, Write)
    inputs = [event_time.input, dedupe.input, key_by.input, rolling.input, where.input, write.input, late.input]
    assert inputs == [read, event_time, dedupe, key_by, rolling, where, rolling]
    assert fraud.reads == (read,)
    assert fraud.steps == (dedupe, rolling)
    assert fraud.writes == (write, write_late)


def test_streams_are_values_and_can_be_branched() -> None:
    pipeline = hr.Pipeline("branches")
    txns = transactions(pipeline)
    large, small = txns.where("amount > 100"), txns.where("amount <= 100")
    assert isinstance(large.node, Where)
    assert isinstance(small.node, Where)
    assert large.node.input is small.node.input is txns.node


def test_event_time_has_a_tolerance_and_believes_every_stamp_unless_told() -> None:
    node = transactions(hr.Pipeline("p")).event_time("occurred_at").node
    assert isinstance(node, EventTime)
    assert (node.out_of_order_ms, node.max_skew_ms) == (30_000, None)


def test_no_tolerance_at_all_can_be_asked_for() -> None:
    node = transactions(hr.Pipeline("p")).event_time("occurred_at", out_of_order="0s", max_skew="0s").node
    assert isinstance(node, EventTime)
    assert (node.out_of_order_ms, node.max_skew_ms) == (0, 0)


def test_a_plain_spark_column_can_stand_for_its_name() -> None:
    node = transactions(hr.Pipeline("p")).key_by(CARD_ID, "txn_id").node  # type: ignore[arg-type]
    assert isinstance(node, KeyBy)
    assert node.columns == ("card_id", "txn_id")


def test_a_result_of_rolling_may_be_called_name() -> None:
    node = transactions(hr.Pipeline("p")).rolling("step", name=hr.last("1m").count()).node
    assert isinstance(node, Rolling)
    assert node.aggregates[0][0] == "name"


def test_select_gives_names_first_and_then_named_expressions() -> None:
    node = transactions(hr.Pipeline("p")).select("card_id", large=IS_LARGE, half="amount / 2").node
    assert isinstance(node, Select)
    assert [name for name, _ in node.columns] == ["card_id", "large", "half"]
    assert node.columns[0][1] is None
    assert node.columns[1][1] is IS_LARGE


def test_write_takes_one_key_or_several() -> None:
    pipeline = hr.Pipeline("p")
    txns = transactions(pipeline)
    txns.write("a")
    txns.write("b", key="card_id")
    txns.write("c", key=["card_id", "txn_id"])
    assert [write.key for write in pipeline.writes] == [None, ("card_id",), ("card_id", "txn_id")]


def test_apply_keeps_the_function() -> None:
    node = transactions(hr.Pipeline("p")).apply(len).node
    assert isinstance(node, Apply)
    assert node.function is len


def test_looking_at_a_side_output_declares_nothing() -> None:
    pipeline = hr.Pipeline("p")
    txns = transactions(pipeline)
    assert txns.late is not None
    assert len(pipeline.nodes) == 1


def test_a_side_output_is_one_node_however_often_it_is_used() -> None:
    pipeline = hr.Pipeline("p")
    txns = transactions(pipeline)
    txns.dead_letters.write("bad")
    txns.dead_letters.write("bad-copy")
    assert pipeline.writes[0].input is pipeline.writes[1].input
    assert len(pipeline.nodes) == 4


# What is visible


def test_rolling_adds_its_results_with_their_types() -> None:
    window = hr.last("1m")
    stream = transactions(hr.Pipeline("p")).rolling(
        "types",
        n=window.count(),
        total=window.sum("amount"),
        cents_total=window.sum("cents"),
        lat_total=window.sum("lat"),
        lon_total=window.sum("lon"),
        mean=window.avg("amount"),
        least=window.min("amount"),
        last_at=window.max("occurred_at"),
        spread=window.stddev("cents"),
        cards=window.approx_count_distinct("card_id"),
        before=hr.latest("lat", "occurred_at"),
    )
    assert stream.schema is not None
    assert dict(stream.schema.items() - hr.Pipeline("q").read("t", schema=SCHEMA).schema.items()) == {  # type: ignore[union-attr]
        "n": "bigint",
        "total": "decimal(20,2)",
        "cents_total": "bigint",
        "lat_total": "double",
        "lon_total": "double",
        "mean": "double",
        "least": "decimal(10,2)",
        "last_at": "timestamp",
        "spread": "double",
        "cards": "bigint",
        "before": "struct<lat:double,occurred_at:timestamp>",
    }


def test_the_sum_of_a_wide_decimal_stays_within_what_spark_has() -> None:
    stream = hr.Pipeline("p").read("t", schema="x DECIMAL(35,4)").rolling("s", y=hr.last("1m").sum("x"))
    assert stream.schema is not None
    assert stream.schema["y"] == "decimal(38,4)"


def test_a_computed_column_is_visible_but_its_type_is_not_known() -> None:
    stream = transactions(hr.Pipeline("p")).select("card_id", large=IS_LARGE).with_column("card_id", "upper(card_id)")
    assert stream.schema is not None
    assert dict(stream.schema) == {"card_id": None, "large": None}
    rolled = stream.rolling("s", t=hr.last("1m").sum("large"), c=hr.last("1m").count(), f=hr.latest("large"))
    assert rolled.schema is not None
    assert (rolled.schema["t"], rolled.schema["c"], rolled.schema["f"]) == (None, "bigint", None)


def test_apply_hides_the_columns_unless_it_says_what_it_returns() -> None:
    txns = transactions(hr.Pipeline("p"))
    assert txns.apply(lambda df: df).schema is None
    assert txns.apply(lambda df: df).where("x > 1").rolling("s", n=hr.last("1m").count()).schema is None
    known = txns.apply(lambda df: df, schema="a INT").schema
    assert known is not None
    assert dict(known) == {"a": "int"}


def test_side_outputs_show_the_rows_as_they_were_at_that_point() -> None:
    activity = (
        transactions(hr.Pipeline("p"))
        .with_column("hour", "hour(occurred_at)")
        .event_time("occurred_at", max_skew="5m")
        .dedupe("txn_id")
        .key_by("card_id")
        .rolling("activity", n=hr.last("1m").count())
        .select("card_id", "n")
    )
    read = tuple(name.split()[0] for name in SCHEMA.split(", "))
    for stream, names in [
        (activity.late, (*read, "hour")),
        (activity.duplicates, (*read, "hour")),
        (activity.quarantined, read),
    ]:
        assert stream.schema is not None
        assert stream.schema.names == names
    assert activity.dead_letters.schema is None


@dataclass
class Click:
    user: str
    at: datetime
    page: str | None


def test_a_dataclass_is_a_schema_to_read_with() -> None:
    clicks = hr.Pipeline("p").read("clicks", schema=Click)
    assert isinstance(clicks.node, Read)
    assert clicks.node.schema.ddl() == "`user` string NOT NULL, `at` timestamp NOT NULL, `page` string"


# Where it was written


def test_each_node_knows_the_line_of_its_own_call() -> None:
    pipeline = hr.Pipeline("p")
    start = here()
    (
        pipeline.read("t", schema="a INT")
        .where("a > 1")
        .with_column(
            "b",
            "a + 1",
        )
        .dead_letters.write("bad")
    )
    assert [node.location.line - start for node in pipeline.nodes] == [2, 3, 4, 8, 8]


def test_a_file_below_the_working_folder_is_named_relative_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, file = os.path.split(os.path.abspath(__file__))
    monkeypatch.chdir(folder)
    assert hr.Pipeline("p").read("t", schema="a INT").node.location.file == file


def test_a_file_elsewhere_keeps_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert hr.Pipeline("p").read("t", schema="a INT").node.location.file == os.path.abspath(__file__)


def test_streams_and_pipelines_read_well_in_a_shell() -> None:
    pipeline = hr.Pipeline("clicks")
    stream = pipeline.read("clicks", schema="user STRING").with_column("x", "1")
    stream.write("out")
    assert repr(stream) == "<Stream of clicks after WithColumn (user: string, x: ?)>"
    assert repr(pipeline) == "<Pipeline clicks: 1 reads, 1 writes>"
    assert isinstance(stream.node, WithColumn)
