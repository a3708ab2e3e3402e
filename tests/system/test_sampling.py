"""The samples of a dashboard on a real broker, beside a transaction that stays open."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from headrace.log.broker import EmbeddedBroker
from headrace.log.producer import producer_config
from headrace.ops.cluster import Cluster
from headrace.ops.sampling import Sampled, Sampler
from tests.system.running import fresh, wait_for


def test_it_follows_what_is_committed(broker: EmbeddedBroker, topic: Callable[..., str]) -> None:
    """Behind that a fetch finds nothing and does not wait: the broker would be busy with saying so."""
    name = topic("transactions", partitions=1)
    producer = Producer(producer_config(broker.bootstrap, **{"transactional.id": fresh("writer")}))
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(1000):
        producer.produce(name, str(number).encode())
    producer.flush()
    cluster, sampler = Cluster(broker.bootstrap), Sampler(broker.bootstrap)
    found: list[Sampled] = []

    def look() -> bool:
        found.extend(sampler.look(cluster.committed_ends([name])))
        return bool(found)

    assert cluster.ends([name]) == {name: {0: 1000}}
    assert cluster.committed_ends([name]) == {name: {0: 0}}
    assert not look()
    producer.commit_transaction(30)
    wait_for(lambda: cluster.committed_ends([name]) == {name: {0: 1001}}, "the transaction to be committed")
    wait_for(look, "some of its records")
    sampler.close()
    assert {record.topic for record in found} == {name}
