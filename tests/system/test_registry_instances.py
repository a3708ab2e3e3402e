"""Several registries on one log, restarts, kills: ids stay unique, nothing is lost, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.contracts import RegistryClient
from headrace.contracts.embedded import EmbeddedRegistry, running_registry, stop_registry
from headrace.contracts.store import RegistryLog
from headrace.errors import LogError, RegistryLoginError, RegistryUnavailableError
from headrace.jvm.process import command_line
from headrace.log.broker import EmbeddedBroker
from headrace.log.consumer import consumer_config
from headrace.log.producer import producer_config
from headrace.log.topics import Topics
from tests.system.registry_calls import avro, call, subject
from tests.system.running import wait_for


def schema(number: int) -> str:
    return avro("id", f"n{number}=0")


def test_two_instances_that_register_at_once_agree(
    broker: EmbeddedBroker, registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    prefix = subject("pair")
    with EmbeddedRegistry(broker.bootstrap, tmp_path / "second") as other:
        clients = [RegistryClient(registry.url, timeout=60), RegistryClient(other.url, timeout=60)]
        barrier = threading.Barrier(4)

        def work(worker: int) -> list[int]:
            """The same twenty schemas from each, through one instance or the other, each in another order."""
            client = clients[worker % 2]
            barrier.wait()
            found = {}
            for step in range(20):
                number = step * (1, 3, 7, 9)[worker] % 20
                found[number] = client.register(f"{prefix}-{number}", schema(number + 1000))
            return [found[number] for number in range(20)]

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(work, range(4)))
        assert all(answer == answers[0] for answer in answers)
        assert len(set(answers[0])) == 20
        for client in clients:  # each knows what the other was told, at once
            assert [client.latest(f"{prefix}-{number}").id for number in range(20)] == answers[0]
            assert [client.versions(f"{prefix}-{number}") for number in range(20)] == [[1]] * 20


def test_versions_of_one_subject_do_not_collide(
    broker: EmbeddedBroker, registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    name = subject("one")
    with EmbeddedRegistry(broker.bootstrap, tmp_path / "second") as other:
        clients = [RegistryClient(each.url, timeout=60) for each in (registry, other)]
        clients[0].set_compatibility("NONE", name)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda n: clients[n % 2].register(name, schema(n + 2000)), range(12)))
        for client in clients:
            assert client.versions(name) == list(range(1, 13))
            assert len({client.version(name, version).id for version in range(1, 13)}) == 12


def test_a_restart_loses_nothing(broker: EmbeddedBroker, tmp_path: Path) -> None:
    name, gone = subject("kept"), subject("gone")
    with EmbeddedRegistry(broker.bootstrap, tmp_path) as first:
        client = RegistryClient(first.url)
        ids = [client.register(name, avro("id")), client.register(name, avro("id", "kept=1"))]
        client.set_compatibility("FULL_TRANSITIVE", name)
        client.register(gone, avro("id"))
        client.delete(gone)
        before = client.subjects()
        os.kill(first.running.pid, signal.SIGKILL)
        wait_for(lambda: command_line(first.running.pid) == "", "the registry to be gone")
        assert running_registry(tmp_path) is None
    with EmbeddedRegistry(broker.bootstrap, tmp_path) as second:
        client = RegistryClient(second.url)
        assert client.subjects() == before
        assert [client.version(name, version).id for version in (1, 2)] == ids
        assert client.compatibility(name) == "FULL_TRANSITIVE"
        assert client.versions(name) == [1, 2]
        assert gone in client.subjects(deleted=True)


def test_a_writer_that_dies_in_the_middle_of_a_write_is_in_nobodys_way(
    broker: EmbeddedBroker, registry: EmbeddedRegistry
) -> None:
    """As if another instance had been killed between its record and its commit."""
    zombie = Producer(
        producer_config(broker.bootstrap, **{"transactional.id": "headrace-registry-_schemas", "linger.ms": 0})
    )
    zombie.init_transactions(30)
    zombie.begin_transaction()
    key = {"keytype": "SCHEMA", "subject": "zombie", "version": 1, "magic": 1}
    value = {"subject": "zombie", "version": 1, "id": 1_000_000, "schema": '"int"', "deleted": False}
    zombie.produce("_schemas", json.dumps(value), json.dumps(key), partition=0)
    zombie.flush(30)
    client = RegistryClient(registry.url, timeout=60)
    id = client.register(subject(), avro("id", "zombie=1"))
    assert id < 1_000_000
    assert "zombie" not in client.subjects(deleted=True)


def test_the_log_has_the_format_of_the_original(broker: EmbeddedBroker, registry: EmbeddedRegistry) -> None:
    name = subject("format")
    client = RegistryClient(registry.url)
    id = client.register(name, "message A {string a=1;}".join(['syntax="proto3";', ""]), "PROTOBUF")
    client.set_compatibility("NONE", name)
    call(registry.url, "PUT", f"/mode/{name}", {"mode": "READWRITE"})
    client.delete(name)
    client.delete(name, permanent=True)
    consumer = Consumer(consumer_config(broker.bootstrap, "reader", **{"enable.partition.eof": True}))
    consumer.assign([TopicPartition("_schemas", 0, 0)])
    records: list[tuple[str, str | None]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            break
        value = message.value()
        records.append(((message.key() or b"").decode(), None if value is None else value.decode()))
    consumer.close()
    ours = [(key, value) for key, value in records if name in key]
    schema_key = f'{{"keytype":"SCHEMA","subject":"{name}","version":1,"magic":1}}'
    assert ours[0][0] == schema_key
    assert json.loads(ours[0][1] or "") == {
        "subject": name,
        "version": 1,
        "id": id,
        "schemaType": "PROTOBUF",
        "schema": 'syntax="proto3";message A {string a=1;}\n',
        "deleted": False,
    }
    assert ours[1:] == [
        (f'{{"keytype":"CONFIG","subject":"{name}","magic":0}}', f'{{"subject":"{name}","compatibilityLevel":"NONE"}}'),
        (f'{{"keytype":"MODE","subject":"{name}","magic":0}}', f'{{"subject":"{name}","mode":"READWRITE"}}'),
        (f'{{"keytype":"DELETE_SUBJECT","subject":"{name}","magic":0}}', f'{{"subject":"{name}","version":1}}'),
        (schema_key, None),
        (f'{{"keytype":"MODE","subject":"{name}","magic":0}}', None),
        (f'{{"keytype":"CONFIG","subject":"{name}","magic":0}}', None),
    ]
    assert ('{"keytype":"NOOP","magic":0}', f'{{"maxId":{id}}}') in records
    assert Topics(broker.bootstrap).describe("_schemas").config["cleanup.policy"] == "compact"


def test_a_topic_that_would_lose_schemas_is_refused(broker: EmbeddedBroker) -> None:
    Topics(broker.bootstrap).create("not-compacted", partitions=1)
    with pytest.raises(LogError, match="can't keep the schemas"):
        RegistryLog(broker.bootstrap, "not-compacted").open()


def test_records_that_nobody_understands_are_skipped(broker: EmbeddedBroker) -> None:
    topics, name = Topics(broker.bootstrap), "odd-schemas"
    topics.create(name, partitions=1, config={"cleanup.policy": "compact"})
    producer = Producer(producer_config(broker.bootstrap))
    good = {"subject": "s", "version": 1, "id": 9, "schema": '"int"', "deleted": False}
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    for record in ((b"\xff", b"x"), (b"{}", b"[]"), (json.dumps(key), b"{"), (b'{"keytype":"NEW"}', b"{}")):
        producer.produce(name, record[1], record[0])
    producer.produce(name, json.dumps(good), json.dumps({**key, "magic": 0}))
    producer.flush(30)
    log = RegistryLog(broker.bootstrap, name)
    log.open()
    try:
        assert log.state.subjects() == ["s"]
    finally:
        log.close()


def test_beyond_loopback_it_asks_who_you_are(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_REGISTRY_LOGIN", raising=False)
    with pytest.raises(RegistryUnavailableError, match="for everybody"):
        EmbeddedRegistry(broker.bootstrap, tmp_path / "open", host="0.0.0.0").start()
    monkeypatch.setenv("HEADRACE_REGISTRY_LOGIN", "ada:s3cret")
    with EmbeddedRegistry(broker.bootstrap, tmp_path / "asks", host="0.0.0.0") as asks:
        url = asks.url.replace("0.0.0.0", "127.0.0.1")
        assert call(url, "GET", "/subjects").status == 401
        with pytest.raises(RegistryLoginError) as refused:
            RegistryClient(url.replace("//", "//ada:wr0ng@")).subjects()
        assert "wr0ng" not in str(refused.value)
        RegistryClient(url.replace("//", "//ada:s3cret@")).subjects()
        monkeypatch.setenv("HEADRACE_REGISTRY_AUTH", "ada:s3cret")
        RegistryClient(url).subjects()
        assert "s3cret" not in (tmp_path / "asks" / "registry.log").read_text(encoding="utf-8")
        assert "s3cret" not in command_line(asks.running.pid)


def test_a_detached_registry_stays_and_is_taken_over(broker: EmbeddedBroker, tmp_path: Path) -> None:
    first = EmbeddedRegistry(broker.bootstrap, tmp_path, attached=False).start()
    try:
        again = EmbeddedRegistry(broker.bootstrap, tmp_path, attached=False).start()
        assert again.running == first.running
        with pytest.raises(RegistryUnavailableError, match="runs already"):
            EmbeddedRegistry(broker.bootstrap, tmp_path).start()
    finally:
        stopped = stop_registry(tmp_path)
    assert stopped == first.running
    assert running_registry(tmp_path) is None
    first.stop()  # reaps the process, which this one started


def test_a_registry_without_a_broker_says_so(tmp_path: Path) -> None:
    with pytest.raises(RegistryUnavailableError, match="no broker answers"):
        EmbeddedRegistry("127.0.0.1:1", tmp_path).start()
