"""Sinks as declared: what is wrong with them, which topic feeds them, what explain says. No store, no JVM."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.explain import explain_dict, explain_text
from headrace.engine.plan import plan_queries
from headrace.engine.sink_plan import plan_sinks, sink_topics
from headrace.errors import InvalidPipelineError
from headrace.sinks.delta_types import delta_type
from headrace.sinks.postgres_types import postgres_type

SCHEMA = "user STRING, at TIMESTAMP, amount DECIMAL(10,2)"
DATABASE = "postgresql://ann:hunter2@db.example:5433/shop"


def clicks(name: str = "clicks") -> tuple[hr.Pipeline, hr.Stream]:
    pipeline = hr.Pipeline(name)
    return pipeline, pipeline.read("clicks", schema=SCHEMA)


def counts(stream: hr.Stream) -> hr.Stream:
    return stream.event_time("at").key_by("user").window("per-minute", hr.tumbling("1m"), n="count(*)")


def problems(pipeline: hr.Pipeline) -> str:
    with pytest.raises(InvalidPipelineError) as raised:
        pipeline.check()
    return str(raised.value)


def test_a_stream_without_state_is_fed_from_its_source() -> None:
    pipeline, stream = clicks()
    stream.where("amount > 5").select("user", "amount").write(hr.sinks.postgres(DATABASE, "clicks"))
    (plan,) = plan_sinks(pipeline)
    assert (plan.name, plan.topic, plan.internal) == ("clicks-to-postgres-clicks", "clicks", False)
    assert plan_queries(pipeline) == ()


def test_a_stream_with_state_is_fed_from_a_topic_of_its_own() -> None:
    pipeline, stream = clicks()
    counts(stream).write(hr.sinks.postgres(DATABASE, "counts", key=("user", "window_start")))
    (plan,) = plan_sinks(pipeline)
    assert (plan.topic, plan.internal) == ("clicks.postgres-counts.sink", True)
    (query,) = plan_queries(pipeline)
    written = {branch.topic: branch.key for branch in query.branches}
    assert written["clicks.postgres-counts.sink"] == ("user", "window_start")


def test_a_topic_that_has_the_stream_is_used() -> None:
    pipeline, stream = clicks()
    counted = counts(stream)
    counted.write("counts")
    counted.write(hr.sinks.postgres(DATABASE, "counts", key=("user", "window_start")))
    counted.write(hr.sinks.console())
    assert [plan.topic for plan in plan_sinks(pipeline)] == ["counts", "counts"]
    assert "clicks.console.sink" not in plan_queries(pipeline)[0].output_topics


def test_a_topic_is_not_used_if_it_has_other_streams_or_another_order() -> None:
    pipeline, stream = clicks()
    counted = counts(stream)
    counted.write("mixed")
    counted.where("n > 5").write("mixed")
    counted.write("by-window", key="window_start")
    counted.write(hr.sinks.postgres(DATABASE, "latest", key="user"))
    assert [plan.topic for plan in plan_sinks(pipeline)] == ["clicks.postgres-latest.sink"]


def test_a_source_that_quarantines_or_is_changed_by_a_function_is_not_read_by_the_sink() -> None:
    pipeline, stream = clicks()
    stream.event_time("at", max_skew="5m").write(hr.sinks.console(name="skew"))
    stream.apply(lambda df: df, schema=SCHEMA).write(hr.sinks.console(name="applied"))
    assert [plan.topic for plan in plan_sinks(pipeline)] == ["clicks.skew.sink", "clicks.applied.sink"]


def test_late_rows_can_go_to_a_store() -> None:
    pipeline, stream = clicks()
    counts(stream).late.write(hr.sinks.files("late"))
    (plan,) = plan_sinks(pipeline)
    assert plan.topic == "clicks.files-late.sink"
    assert plan.columns is not None
    assert plan.columns.names == ("user", "at", "amount")


def test_in_a_test_driver_every_sink_is_a_topic() -> None:
    pipeline, stream = clicks()
    stream.write(hr.sinks.postgres(DATABASE, "clicks"))
    assert sink_topics(pipeline) == {"postgres-clicks": "clicks.postgres-clicks.sink"}
    (query,) = plan_queries(pipeline, sinks_from_topics=True)
    assert "clicks.postgres-clicks.sink" in query.output_topics


def test_all_that_is_wrong_with_sinks_is_said_at_once() -> None:
    pipeline, stream = clicks()
    stream.write(hr.sinks.postgres("db.example/shop", "clicks", key="usr"))
    stream.write(hr.sinks.redis("redis://r", key=()))
    stream.write(hr.sinks.webhook("hooks", concurrency=0, when_down="panic", timeout="soon"))
    stream.write(hr.sinks.delta("s3://bucket/x"))
    stream.write(hr.sinks.files("a b/c d"), key="user")
    stream.dead_letters.write(hr.sinks.console())
    text = problems(pipeline)
    for words in (
        "needs the URL of a database",
        "`usr`",
        "did you mean `user`",
        "hr.sinks.redis(...) needs a key",
        "hr.sinks.webhook(...) needs a URL",
        "concurrency=0",
        'one of "pause", "dead_letter"',
        "'soon' is not a duration",
        "Object stores are not supported yet",
        "takes no key of its own",
        "can't follow .dead_letters",
    ):
        assert words in text
    assert "test_sinks.py" in text
    assert "sinks/__init__.py" not in text


def test_two_sinks_of_one_name_would_share_a_checkpoint() -> None:
    pipeline, stream = clicks()
    stream.write(hr.sinks.postgres(DATABASE, "clicks"))
    stream.write(hr.sinks.postgres(DATABASE, "clicks"))
    assert "2 sinks are called `postgres-clicks`" in problems(pipeline)


def test_a_name_of_a_sink_is_text() -> None:
    pipeline, stream = clicks()
    name: Any = ["clicks"]
    stream.write(hr.sinks.files("lake/clicks", name=name))
    assert "sink name ['clicks'] can't be used." in problems(pipeline)


@pytest.mark.parametrize("key", [5, ["user", 5], [["user"]], F.col("user")], ids=str)
def test_a_key_is_names_of_columns(key: Any) -> None:
    pipeline, stream = clicks()
    stream.write(hr.sinks.postgres(DATABASE, "clicks", key=key))
    assert "hr.sinks.postgres(..., key=...) takes names of columns, not" in problems(pipeline)


def test_explain_says_what_holds_why_and_what_would_break_it() -> None:
    pipeline, stream = clicks()
    stream.write(hr.sinks.postgres(DATABASE, "clicks"))
    counts(stream).write(hr.sinks.delta("lake/counts"))
    stream.write(hr.sinks.webhook("https://h.example/x?token=hunter2", headers={"Authorization": "hunter2"}))
    text = explain_text(pipeline)
    assert "writes postgres clicks at db.example:5433/shop" in text
    assert "exactly once; when the pipeline runs in real time at least once" in text
    assert text.count("broken by:") == 3
    sinks = explain_dict(pipeline)["sinks"]
    assert [sink["guarantees"]["realtime"] for sink in sinks] == ["exactly once", "at least once", "at least once"]
    assert [sink["guarantees"]["microbatch"] for sink in sinks] == ["exactly once", "exactly once", "at least once"]
    assert "hunter2" not in text + str(explain_dict(pipeline)) + repr(pipeline.sink_writes)


@pytest.mark.parametrize(
    ("spark", "postgres", "delta"),
    [
        ("bigint", "bigint", "long"),
        ("decimal(38,18)", "numeric(38,18)", "decimal(38,18)"),
        ("timestamp_ntz", "timestamp", "timestamp_ntz"),
        ("binary", "bytea", "binary"),
        ("tinyint", "smallint", "byte"),
    ],
)
def test_types(spark: str, postgres: str, delta: str) -> None:
    assert postgres_type(spark) == postgres
    assert delta_type(spark) == delta


def test_nested_types() -> None:
    spark = "map<string,array<struct<a:decimal(10,2),b:map<int,string>>>>"
    assert postgres_type(spark) == "jsonb"
    found = delta_type(spark)
    assert isinstance(found, dict)
    inner = found["valueType"]["elementType"]["fields"]
    assert [field["name"] for field in inner] == ["a", "b"]
    assert inner[1]["type"]["keyType"] == "integer"
