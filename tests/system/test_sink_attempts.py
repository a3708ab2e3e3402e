"""Tasks that die, are repeated, and wake up when nobody expects them any more: what readers see in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from py4j.protocol import Py4JJavaError

from tests.system.faults.attempts import Sink
from tests.system.records import read_all
from tests.system.running import Engine, wait_for

Topic = Callable[..., str]


@pytest.fixture
def out(topic: Topic) -> str:
    return topic("attempts", partitions=1)


@pytest.fixture
def sink(engine: Engine, out: str) -> Iterator[Sink]:
    made = Sink(engine.spark, engine.bootstrap, out)
    yield made
    made.forget()


def values(engine: Engine, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in read_all(engine.bootstrap, topic)]


def test_a_zombie_that_wakes_up_after_its_replacement_committed_is_fenced(engine: Engine, sink: Sink, out: str) -> None:
    zombie = sink.attempt(batch=0).write(out, "a", "b")
    sink.attempt(batch=0).write(out, "a", "b").commit()
    with pytest.raises(Py4JJavaError, match=r"ProducerFenced|InvalidProducerEpoch"):
        zombie.write(out, "c").commit()
    zombie.abort()
    assert values(engine, out) == ["a", "b"]


def test_a_zombie_does_not_spoil_the_batches_after_it(engine: Engine, sink: Sink, out: str) -> None:
    zombie = sink.attempt(batch=0).write(out, "a")
    sink.attempt(batch=0).write(out, "a").commit()
    sink.attempt(batch=1).write(out, "b").commit()
    with pytest.raises(Py4JJavaError, match=r"ProducerFenced|InvalidProducerEpoch"):
        zombie.commit()
    zombie.abort()
    sink.attempt(batch=2).write(out, "c").commit()
    assert values(engine, out) == ["a", "b", "c"]


def test_a_batch_that_was_committed_before_the_driver_died_is_skipped(engine: Engine, sink: Sink, out: str) -> None:
    sink.attempt(batch=7).write(out, "a", "b").commit()
    sink.forget()  # the process is gone, and with it all that it remembered
    sink.attempt(batch=7).write(out, "a", "b").commit()
    sink.attempt(batch=8).write(out, "c").commit()
    assert values(engine, out) == ["a", "b", "c"]


@pytest.mark.parametrize("batch", [3, 4], ids=["an earlier one", "the same with other input"])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_most_once"])
def test_a_batch_of_before_that_is_not_the_one_that_was_written_is_refused(
    engine: Engine, out: str, delivery: str, batch: int
) -> None:
    sink = Sink(engine.spark, engine.bootstrap, out, {out: delivery})
    sink.attempt(batch=4, input="so far").write(out, "a").commit()
    for _ in range(2):
        with pytest.raises(Py4JJavaError, match=f"StaleCheckpoint: batch {batch} comes again, .* up to batch 4"):
            sink.attempt(batch, input="and further").write(out, "b").commit()
        sink.forget()
    assert values(engine, out) == ["a"]
    sink.attempt(batch=4, input="so far").write(out, "a").commit()
    sink.attempt(batch=5, input="and further").write(out, "b").commit()
    assert values(engine, out) == ["a", "b"]


def test_what_an_aborted_attempt_wrote_is_not_there(engine: Engine, sink: Sink, out: str) -> None:
    sink.attempt(batch=0).write(out, "a", "b").abort()
    sink.attempt(batch=0).write(out, "a", "b").commit()
    assert values(engine, out) == ["a", "b"]


def test_a_transaction_that_timed_out_is_written_again_once(engine: Engine, out: str) -> None:
    sink = Sink(engine.spark, engine.bootstrap, out, transaction_timeout_ms="1000", linger_ms="0")
    slow = sink.attempt(batch=0).write(out, "a", "b")
    wait_for(lambda: 0 < end(engine, out, committed=False) == end(engine, out, committed=True), "Kafka to give it up")
    with pytest.raises(Py4JJavaError, match=r"ProducerFenced|InvalidProducerEpoch|InvalidTxnState"):
        slow.commit()
    slow.abort()
    assert values(engine, out) == []
    sink.attempt(batch=0).write(out, "a", "b").commit()
    sink.forget()
    assert values(engine, out) == ["a", "b"]


def end(engine: Engine, topic: str, *, committed: bool) -> int:
    """The end of the topic: of all that is written, or of what is decided, one way or the other."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    admin = AdminClient({"bootstrap.servers": engine.bootstrap})
    (future,) = admin.list_offsets(asked, isolation_level=level).values()
    return int(future.result(10).offset)


def test_at_most_once_is_written_by_the_first_attempt_or_by_none(engine: Engine, topic: Topic, out: str) -> None:
    mostly = topic("mostly", partitions=1)
    sink = Sink(engine.spark, engine.bootstrap, out, {out: "exactly_once", mostly: "at_most_once"})
    sink.attempt(batch=0).write(mostly, "a").write(out, "a").abort()
    sink.forget()
    sink.attempt(batch=0).write(mostly, "a").write(out, "a").commit()
    sink.attempt(batch=1).write(mostly, "b").write(out, "b").commit()
    sink.forget()
    sink.attempt(batch=1).write(mostly, "b").write(out, "b").commit()
    sink.forget()
    assert values(engine, out) == ["a", "b"], "exactly once, beside it"
    assert sorted(values(engine, mostly)) in (["b"], ["a", "b"]), "never twice"


def test_at_least_once_is_there_before_the_task_commits_and_again_after_a_repetition(
    engine: Engine, topic: Topic, out: str
) -> None:
    atleast = topic("atleast", partitions=1)
    sink = Sink(engine.spark, engine.bootstrap, out, {out: "exactly_once", atleast: "at_least_once"}, linger_ms="0")
    first = sink.attempt(batch=0).write(atleast, "a").write(out, "a")
    wait_for(lambda: values(engine, atleast) == ["a"], "a record that waits for no commit")
    assert values(engine, out) == []
    first.abort()
    sink.attempt(batch=0).write(atleast, "a").write(out, "a").commit()
    sink.forget()
    assert values(engine, atleast) == ["a", "a"]
    assert values(engine, out) == ["a"]
