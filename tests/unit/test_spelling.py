"""Names of columns are found in any case, as in Spark; from then on they are what the schema calls them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.plan import QueryPlan, plan_queries
from headrace.engine.sink_plan import plan_sinks
from headrace.pipeline.contracts import ContractSchema
from headrace.pipeline.nodes import Dedupe, EventTime, KeyBy, Latest, Node, Read, Rolling, Select, WithColumn
from tests.unit.declared import Declared

# Made while no SparkContext exists, whatever other tests start later.
TOTAL = F.sum("AMOUNT")
CITY = F.max("Place.City")


@pytest.fixture
def declared() -> Declared:
    return Declared("job")


def only(declared: Declared) -> QueryPlan:
    (query,) = plan_queries(declared.pipeline)
    return query


@pytest.mark.parametrize(
    ("build", "kind", "names"),
    [
        (lambda d: d.read.event_time("OCCURRED_AT"), EventTime, lambda n: n.column == "occurred_at"),
        (lambda d: d.read.key_by("Card_ID", "LAT"), KeyBy, lambda n: n.columns == ("card_id", "lat")),
        (lambda d: d.timed.dedupe("TXN_ID", name="once"), Dedupe, lambda n: n.columns == ("txn_id",)),
        (
            lambda d: d.read.select("CARD_ID", Double="amount * 2"),
            Select,
            lambda n: n.columns == (("card_id", None), ("Double", "amount * 2")),
        ),
        (lambda d: d.read.with_column("Amount", "1"), WithColumn, lambda n: n.name == "amount"),
        (lambda d: d.read.with_column("New", "1"), WithColumn, lambda n: n.name == "New"),
    ],
    ids=["event_time", "key_by", "dedupe", "select", "with_column", "a new column"],
)
def test_a_step_has_the_names_of_the_schema(declared: Declared, build: Any, kind: type[Node], names: Any) -> None:
    stream = build(declared)
    assert isinstance(stream.node, kind)
    assert names(stream.node), stream.node
    declared.passes(stream)


def test_another_value_for_a_column_makes_no_second_column(declared: Declared) -> None:
    stream = declared.read.select("card_id", "amount").with_column("AMOUNT", "amount * 2")
    assert stream.schema is not None
    assert stream.schema.names == ("card_id", "amount")


def test_the_aggregates_of_a_rolling_step_have_them_too(declared: Declared) -> None:
    stream = declared.keyed.rolling(
        "r", n=hr.last("1m").count(), total=hr.last("1m").sum("AMOUNT"), before=hr.latest("LAT", "Lon")
    )
    assert isinstance(stream.node, Rolling)
    count, total, before = (aggregate for _, aggregate in stream.node.aggregates)
    assert not isinstance(count, Latest)
    assert not isinstance(total, Latest)
    assert isinstance(before, Latest)
    assert (count.column, total.column, before.columns) == (None, "amount", ("lat", "lon"))
    stream.write("out")
    assert only(declared).state_columns == {"card_id", "amount", "lat", "lon"}


def test_so_do_the_columns_that_a_window_keeps(declared: Declared) -> None:
    """Inside of an expression a name stays as it is: Spark finds it."""
    declared.timed.key_by("CARD_ID").window("w", hr.tumbling("1m"), total=TOTAL, city=CITY).write("out")
    query = only(declared)
    assert query.key == ("card_id",)
    assert query.state_columns == {"card_id", "amount", "place"}


def test_the_key_of_a_record_is_that_column_not_the_source_records_key(declared: Declared) -> None:
    declared.read.write("out", key=["CARD_ID", "Sent"])
    assert only(declared).branches[0].key == ("card_id", "sent")


def test_the_key_of_a_store_is_spelled_where_its_topic_is_keyed_by_it(declared: Declared) -> None:
    sink = hr.sinks.postgres("postgresql://db/shop", "counts", key=("CARD_ID", "Window_Start"))
    declared.keyed.window("w", hr.tumbling("1m"), n="count(*)").write(sink)
    (plan,) = plan_sinks(declared.pipeline)
    assert plan.sink.key == ("card_id", "window_start")
    written = {branch.topic: branch.key for branch in only(declared).branches}
    assert written[plan.topic] == ("card_id", "window_start")


def test_a_name_that_is_not_there_is_refused_as_it_was_written(declared: Declared) -> None:
    assert declared.problem(declared.read.key_by("CARD")).what == ".key_by(...) uses column `CARD`, which is not there."


def test_columns_that_only_the_registry_knows_are_spelled_once_it_has_told_them() -> None:
    pipeline = hr.Pipeline("job")
    pipeline.read("in", contract="in-value").key_by("USER").select("User").write("out", key="USER")
    fields = [{"name": "user", "type": "string"}]
    avro = ContractSchema("AVRO", json.dumps({"type": "record", "name": "Click", "fields": fields}))

    def told(node: Node) -> Node:
        if not isinstance(node, Read) or node.contract is None:
            return node
        return replace(node, contract=node.contract.with_schema(avro), schema=avro.columns())

    (query,) = plan_queries(pipeline.rebuilt(told))
    result = query.branches[0]
    (select,) = (step for step in result.steps if isinstance(step, Select))
    assert select.columns == (("user", None),)
    assert result.key == ("user",)
