"""Deliveries side by side in one query, and the position of each query in its consumer group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import headrace as hr
from headrace.engine.run import Run
from headrace.engine.settings import Mode
from headrace.errors import QueryFailedError, UnsupportedModeError
from headrace.log.consumer import consumer_config
from headrace.log.positions import GroupPositions
from headrace.log.producer import producer_config
from headrace.log.topics import Topics
from tests.system.records import LogReader, Sent, produce, read_all
from tests.system.running import Engine, fresh, wait_for

Topic = Callable[..., str]
SCHEMA = "id BIGINT NOT NULL, at TIMESTAMP"


def rows(count: int, start: int = 0) -> list[Sent]:
    return [Sent.row({"id": i, "at": "2026-01-01T10:00:00Z"}, partition=i % 2) for i in range(start, start + count)]


def position(engine: Engine, group: str, topic: str) -> dict[int, int]:
    return GroupPositions(engine.bootstrap).committed(group, topic)


def test_one_query_writes_each_topic_as_it_was_asked_to(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    source = topic("mixed", partitions=2)
    produce(engine.bootstrap, source, rows(60))
    pipeline = hr.Pipeline(fresh("mixed"))
    stream = pipeline.read(source, schema=SCHEMA)
    deliveries = ("exactly_once", "at_least_once", "at_most_once")
    for delivery in deliveries:
        stream.select("id").write(f"{source}-{delivery}", delivery=delivery)
    engine.replay(pipeline, tmp_path / "checkpoint", max_rows=20)
    for delivery in deliveries:
        written = [record.row["id"] for record in read_all(engine.bootstrap, f"{source}-{delivery}")]
        assert sorted(written) == list(range(60)), delivery


def test_the_position_is_in_the_group_with_the_output_and_the_lag_is_what_came_since(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    source = topic("positions", partitions=2)
    produce(engine.bootstrap, source, rows(100))
    pipeline = hr.Pipeline(fresh("positions"))
    pipeline.read(source, schema=SCHEMA).write(f"{source}-copy")
    engine.replay(pipeline, tmp_path / "checkpoint")
    assert position(engine, pipeline.name, source) == {0: 50, 1: 50} == Topics(engine.bootstrap).end_offsets(source)
    produce(engine.bootstrap, source, rows(7, start=100))
    assert GroupPositions(engine.bootstrap).lag(pipeline.name, source) == 7


@pytest.mark.parametrize("delivery", [None, "at_least_once"])
def test_a_query_that_writes_nothing_moves_on_too(
    engine: Engine, topic: Topic, tmp_path: Path, delivery: str | None
) -> None:
    source = topic("filtered", partitions=2)
    produce(engine.bootstrap, source, rows(40))
    pipeline = hr.Pipeline(fresh("filtered"))
    pipeline.read(source, schema=SCHEMA).where("id < 0").write(f"{source}-none", delivery=delivery)
    engine.replay(pipeline, tmp_path / "checkpoint")
    assert position(engine, pipeline.name, source) == {0: 20, 1: 20}


def test_each_query_of_a_pipeline_has_its_own_group_named_after_both(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    source = topic("groups", partitions=2)
    produce(engine.bootstrap, source, rows(30))
    pipeline = hr.Pipeline(fresh("groups"))
    timed = pipeline.read(source, schema=SCHEMA).event_time("at").key_by("id")
    for step in ("first", "second"):
        timed.rolling(step, n=hr.last("1m").count()).write(f"{source}-{step}")
    engine.replay(pipeline, tmp_path / "checkpoint")
    for step in ("first", "second"):
        assert position(engine, f"{pipeline.name}-{step}", source) == {0: 15, 1: 15}


def test_in_real_time_the_position_follows_at_each_checkpoint(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    source = topic("live", partitions=2)
    pipeline = hr.Pipeline(fresh("live"))
    pipeline.read(source, schema=SCHEMA).write(f"{source}-copy")
    with engine.live(pipeline, Mode.REALTIME, tmp_path / "checkpoint"):
        produce(engine.bootstrap, source, rows(40))
        wait_for(lambda: position(engine, pipeline.name, source) == {0: 20, 1: 20}, "the position after a checkpoint")


def exactly(source: str, delivery: str) -> hr.Pipeline:
    pipeline = hr.Pipeline(fresh("strict"))
    pipeline.read(source, schema=SCHEMA).write(f"{source}-copy", delivery=delivery)
    return pipeline


@pytest.mark.parametrize("delivery", ["exactly_once", "at_most_once"])
def test_real_time_refuses_a_guarantee_that_it_can_not_give(engine: Engine, topic: Topic, delivery: str) -> None:
    pipeline = exactly(topic("strict", partitions=2), delivery)
    with pytest.raises(UnsupportedModeError, match=f"asks for {delivery}") as refused:
        Run(pipeline, bootstrap=engine.bootstrap, mode=Mode.REALTIME, spark=engine.spark)
    assert "--mode microbatch" in str(refused.value.fix)


def test_auto_stays_in_micro_batch_for_an_output_that_must_be_exactly_once(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    source = topic("auto", partitions=2)
    produce(engine.bootstrap, source, rows(10))
    pipeline = exactly(source, "exactly_once")
    with engine.live(pipeline, Mode.AUTO, tmp_path / "checkpoint") as told:
        reader = LogReader(engine.bootstrap, f"{source}-copy")
        reader.until(lambda records: len(records) == 10, "what was there")
        produce(engine.bootstrap, source, rows(10, start=10))
        reader.until(lambda records: len(records) == 20, "what came after it had caught up")
        reader.close()
    assert {record.mode for record in told.records} == {"microbatch"}


@pytest.mark.parametrize("mode", [Mode.MICROBATCH, Mode.REALTIME])
def test_what_another_writer_took_back_is_not_read(engine: Engine, topic: Topic, tmp_path: Path, mode: Mode) -> None:
    source = topic("taken-back", partitions=1)
    writer = Producer({"bootstrap.servers": engine.bootstrap, "transactional.id": fresh("writer")})
    writer.init_transactions(30)
    for ids, kept in ((range(5), True), (range(5, 10), False), (range(10, 15), True)):
        writer.begin_transaction()
        for i in ids:
            writer.produce(source, Sent.row({"id": i, "at": "2026-01-01T10:00:00Z"}).value)
        writer.flush(30)
        if kept:
            writer.commit_transaction(30)
        else:
            writer.abort_transaction(30)
    pipeline = hr.Pipeline(fresh("taken-back"))
    pipeline.read(source, schema=SCHEMA).write(f"{source}-copy")
    with engine.live(pipeline, mode, tmp_path / "checkpoint"):
        reader = LogReader(engine.bootstrap, f"{source}-copy")
        found = reader.until(lambda records: any(r.row["id"] == 14 for r in records), "the last record")
        reader.close()
    assert sorted(record.row["id"] for record in found) == [*range(5), *range(10, 15)]


@pytest.mark.soak  # each attempt of a task waits for the broker to end the transaction
def test_a_transaction_that_the_broker_never_ends_is_told_of(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    source = topic("hanging", partitions=1)
    pipeline = hr.Pipeline(fresh("hanging"))
    pipeline.read(source, schema=SCHEMA).write(f"{source}-copy")
    produce(engine.bootstrap, source, [Sent.row({"id": 1}, partition=0)])
    engine.replay(pipeline, tmp_path / "checkpoint")
    # What a broker leaves that dies at the wrong moment: an offset of the sink's own group in an endless transaction.
    admin = AdminClient({"bootstrap.servers": engine.bootstrap})
    listed = admin.list_consumer_groups(request_timeout=10).result()
    (marks,) = [g.group_id for g in listed.valid if g.group_id.startswith(f"headrace.{pipeline.name}")]
    endless = {"transactional.id": fresh("hanging"), "transaction.timeout.ms": 600_000}
    producer = Producer(producer_config(engine.bootstrap, **endless))
    producer.init_transactions(30)
    producer.begin_transaction()
    group = Consumer(consumer_config(engine.bootstrap, marks)).consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(source, 0, 99)], group, 30)
    produce(engine.bootstrap, source, [Sent.row({"id": 2}, partition=0)])
    with pytest.raises(QueryFailedError, match="a transaction hangs in the broker"):
        engine.replay(pipeline, tmp_path / "checkpoint")
    producer.abort_transaction(30)
    engine.replay(pipeline, tmp_path / "checkpoint")
    assert sorted(r.row["id"] for r in read_all(engine.bootstrap, f"{source}-copy")) == [1, 2]
