"""Topics on a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from headrace.cli.main import main
from headrace.errors import BrokerUnavailableError, LogError, TopicExistsError, TopicNotFoundError
from headrace.log.broker import EmbeddedBroker, free_port
from headrace.log.consumer import consumer_config
from headrace.log.positions import GroupPositions
from headrace.log.producer import producer_config
from headrace.log.topics import Topics


@pytest.fixture
def topics(broker: EmbeddedBroker) -> Topics:
    return Topics(broker.bootstrap, timeout=30)


@pytest.fixture
def name() -> str:
    return f"clicks-{uuid.uuid4().hex[:8]}"


def test_a_topic_from_birth_to_death(topics: Topics, name: str) -> None:
    assert not topics.exists(name)
    assert topics.create(name, partitions=2, config={"cleanup.policy": "compact"})
    assert topics.exists(name)
    assert [(t.partitions, t.replication) for t in topics.list() if t.name == name] == [(2, 1)]

    found = topics.describe(name)
    assert [p.partition for p in found.partitions] == [0, 1]
    assert all(p.leader == 1 and p.replicas == (1,) and p.isr == (1,) for p in found.partitions)
    assert found.config == {"cleanup.policy": "compact"}

    topics.delete(name)
    assert not topics.exists(name)


def test_offsets_follow_what_is_written(topics: Topics, broker: EmbeddedBroker, topic: Callable[..., str]) -> None:
    clicks = topic("clicks", partitions=2)
    assert topics.end_offsets(clicks) == {0: 0, 1: 0}
    producer = Producer(producer_config(broker.bootstrap))
    for number in range(3):
        producer.produce(clicks, str(number).encode(), partition=1)
    assert producer.flush(30) == 0
    assert topics.end_offsets(clicks) == {0: 0, 1: 3}
    assert [(p.begin, p.end) for p in topics.describe(clicks).partitions] == [(0, 0), (0, 3)]


def test_a_consumer_sees_committed_records_only(broker: EmbeddedBroker, topic: Callable[..., str]) -> None:
    clicks = topic("clicks", partitions=1)
    producer = Producer(producer_config(broker.bootstrap, **{"transactional.id": clicks}))
    producer.init_transactions(30)
    for value, outcome in [(b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)]:
        producer.begin_transaction()
        producer.produce(clicks, value)
        producer.flush(30)
        outcome(30)
    consumer = Consumer(consumer_config(broker.bootstrap, clicks))
    consumer.subscribe([clicks])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"committed"
    consumer.close()


def test_time_deletes_no_records_and_size_bounds_the_disk(broker: EmbeddedBroker, topic: Callable[..., str]) -> None:
    # Retention by time goes by the records' timestamps: a replay of last year would vanish as it is written.
    resource = ConfigResource(ResourceType.TOPIC, topic("clicks"))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    in_force = admin.describe_configs([resource])[resource].result(30)
    assert in_force["retention.ms"].value == "-1"
    assert int(in_force["retention.bytes"].value) > int(in_force["segment.bytes"].value) > 0


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(topics: Topics, topic: Callable[..., str]) -> None:
    clicks = topic("clicks")
    with pytest.raises(TopicExistsError, match=clicks):
        topics.create(clicks)
    assert topics.create(clicks, exist_ok=True) is False


def without_first_answer(monkeypatch: pytest.MonkeyPatch, admin: Any, request: str, error: int) -> list[str]:
    """The first request of that kind is carried out, and answered with an error; gives those that were made."""
    make = getattr(admin, request)
    asked: list[str] = []

    def once(*args: Any, **options: Any) -> dict[Any, Future[Any]]:
        futures: dict[Any, Future[Any]] = make(*args, **options)
        asked.append(request)
        if len(asked) == 1:
            for what, future in futures.items():
                future.result(30)
                futures[what] = Future()
                futures[what].set_exception(KafkaException(KafkaError(error)))
        return futures

    monkeypatch.setattr(admin, request, once)
    return asked


# So it is in a cluster whose nodes are just starting: the client lets go of one that the others do not know yet.
LET_GO = KafkaError._DESTROY_BROKER


def test_a_request_whose_answer_is_lost_is_made_again(
    topics: Topics, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = without_first_answer(monkeypatch, topics._admin, "create_topics", LET_GO)
    deleted = without_first_answer(monkeypatch, topics._admin, "delete_topics", LET_GO)
    assert topics.create(name, partitions=1) is True
    assert topics.exists(name)
    topics.delete(name)
    assert not topics.exists(name)
    assert (len(created), len(deleted)) == (2, 2)


def test_a_position_whose_answer_is_lost_is_asked_for_again(
    topics: Topics, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = topic("clicks", partitions=1)
    positions = GroupPositions(topics.bootstrap)
    moved = without_first_answer(monkeypatch, positions._admin, "alter_consumer_group_offsets", LET_GO)
    asked = without_first_answer(monkeypatch, positions._admin, "list_consumer_group_offsets", LET_GO)
    positions.commit(f"{clicks}-readers", clicks, {0: 7})
    assert positions.committed(f"{clicks}-readers", clicks) == {0: 7}
    assert (len(moved), len(asked)) == (2, 2)


def test_the_settings_of_a_topic_are_asked_for_again_where_it_is_not_known_yet(
    topics: Topics, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = topic("clicks", partitions=1)
    not_known = KafkaError.UNKNOWN_TOPIC_OR_PART
    asked = without_first_answer(monkeypatch, topics._admin, "describe_configs", not_known)
    assert topics.describe(clicks).name == clicks
    assert len(asked) == 2


def test_one_answer_comes_from_one_picture_of_the_cluster(
    topics: Topics, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = topic("clicks", partitions=2)
    pictures = iter([topics._metadata()])
    # The next would come from a node that has not heard of the topic yet.
    monkeypatch.setattr(topics, "_metadata", lambda: next(pictures))
    assert topics.end_offsets(clicks) == {0: 0, 1: 0}


def test_ensure_creates_what_is_missing(topics: Topics, topic: Callable[..., str], name: str) -> None:
    there = topic("clicks", partitions=1)
    assert topics.ensure(there, name, name, partitions=3) == (name,)
    assert {t.name: t.partitions for t in topics.list() if t.name in (there, name)} == {there: 1, name: 3}


def test_a_misspelt_topic_gets_the_nearest_name(topics: Topics, topic: Callable[..., str]) -> None:
    decisions = topic("decisions")
    for act in (topics.describe, topics.end_offsets, topics.delete, topics.require):
        with pytest.raises(TopicNotFoundError) as caught:
            act(decisions.replace("decisions", "desicions"))
        assert f"did you mean `{decisions}`" in str(caught.value.fix)
        assert "Topics there: " in str(caught.value.why)


@pytest.mark.parametrize("bad", ["", ".", "..", "with space", "slash/es", "x" * 250, "ünïcode", "line\n"])
def test_a_name_that_kafka_would_not_take_is_refused_with_one_that_it_would(topics: Topics, bad: str) -> None:
    with pytest.raises(LogError, match="can't be the name of a topic") as caught:
        topics.create(bad)
    assert str(caught.value.fix).startswith("for instance: ")


def test_what_the_broker_refuses_is_said_in_its_words(topics: Topics, name: str) -> None:
    with pytest.raises(LogError, match="Unknown topic config name: nonsense"):
        topics.create(name, config={"nonsense": "1"})
    with pytest.raises(LogError, match="replication factor"):
        topics.create(name, replication=3)
    assert not topics.exists(name)


def test_kafkas_own_topics_are_listed_only_if_asked_for(topics: Topics, broker: EmbeddedBroker, name: str) -> None:
    Producer(producer_config(broker.bootstrap, **{"transactional.id": name})).init_transactions(30)
    assert "__transaction_state" in [t.name for t in topics.list(internal=True)]
    assert not [t.name for t in topics.list() if t.name.startswith("__")]


def test_no_broker_is_an_error_with_the_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    topics = Topics(address, timeout=0.5)
    for act in (topics.list, lambda: topics.create("clicks"), lambda: topics.describe("clicks")):
        with pytest.raises(BrokerUnavailableError, match=f"no broker answers at {address}"):
            act()
    with pytest.raises(BrokerUnavailableError, match="no broker answers at not an address"):
        Topics("not an address", timeout=0.5).list()


def test_the_command_creates_describes_lists_and_deletes(
    broker: EmbeddedBroker, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)

    def run(*words: str) -> list[dict[str, object]]:
        with pytest.raises(SystemExit) as end:
            main(["topics", *words, "--output", "json"])
        out, err = capsys.readouterr()
        assert end.value.code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    assert run("create", name, "--partitions", "2", "--config", "retention.ms=60000") == [
        {"topic": name, "created": True}
    ]
    assert {"name": name, "partitions": 2, "replication": 1} in run("list")
    (described,) = run("describe", name)
    assert described["config"] == {"retention.ms": "60000"}
    assert run("create", name, "--exist-ok") == [{"topic": name, "created": False}]
    assert run("delete", name) == [{"topic": name, "deleted": True}]
    assert name not in [row["name"] for row in run("list")]
