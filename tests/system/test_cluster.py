"""Three nodes, and one of them dies under load: what was acknowledged is there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from headrace.log.broker import EmbeddedBroker
from headrace.log.cluster import EmbeddedCluster
from headrace.log.producer import producer_config
from headrace.log.topics import Topics
from tests.system.records import read_all
from tests.system.running import wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("cluster"), nodes=3) as running:
        yield running


class Load:
    """Numbers as fast as they are acknowledged, some hundred on the way at a time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(producer_config(bootstrap, **{"linger.ms": 1, "message.timeout.ms": 90_000}))
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def until_more(self, count: int) -> None:
        goal = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= goal, f"{count} more to be acknowledged")

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(90) == 0

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) > 500:
                self._producer.poll(0.01)
                continue
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._on_delivery)
            self._producer.poll(0)
            number += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.value() or b""))
        else:
            self.refused.append(error.str())


def leader_of(cluster: EmbeddedCluster, topic: str) -> EmbeddedBroker:
    leader = Topics(cluster.bootstrap, timeout=30).describe(topic).partitions[0].leader
    return cluster.nodes[leader - 1]


@pytest.mark.soak
def test_killing_the_leader_under_load_loses_nothing_that_was_acknowledged(cluster: EmbeddedCluster) -> None:
    topics = Topics(cluster.bootstrap, timeout=30)
    topics.create("payments", partitions=1)
    described = topics.describe("payments").partitions[0]
    assert len(described.replicas) == 3
    load = Load(cluster.bootstrap, "payments")
    try:
        load.until_more(2000)
        leader = leader_of(cluster, "payments")
        os.kill(leader.pid, signal.SIGKILL)
        load.until_more(2000)
        assert leader_of(cluster, "payments") is not leader, "another node took over"
        leader.start()
        wait_for(lambda: len(topics.describe("payments").partitions[0].isr) == 3, "the node to catch up")
        load.until_more(500)
    finally:
        load.end()
    assert load.refused == []
    written = [int(record.value or b"") for record in read_all(cluster.bootstrap, "payments")]
    assert sorted(written) == sorted(load.acknowledged), "each once, none lost"


@pytest.mark.soak
def test_a_cluster_keeps_its_topics_when_it_is_stopped_and_started(cluster: EmbeddedCluster) -> None:
    Topics(cluster.bootstrap, timeout=30).create("kept", partitions=1)
    cluster.stop()
    cluster.start()
    assert Topics(cluster.bootstrap, timeout=30).exists("kept")
