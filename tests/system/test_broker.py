"""The embedded broker: it starts, it stops, it never stays behind, and its data survives what happens to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.errors import BrokerStartError, BrokerUnavailableError, PortTakenError
from headrace.jvm.process import command_line
from headrace.log.broker import EmbeddedBroker, RunningBroker, default_bootstrap, free_port, running_broker
from headrace.log.consumer import consumer_config
from headrace.log.producer import producer_config
from headrace.log.topics import Topics

DEADLINE = 60.0

OWNER = """
import json, os, sys, time
from pathlib import Path
from headrace.log.broker import EmbeddedBroker
broker = EmbeddedBroker(Path(sys.argv[1])).start()
forked = os.fork() if "fork" in sys.argv else None
if forked != 0:
    print(json.dumps({"pid": broker.pid, "bootstrap": broker.bootstrap, "forked": forked}), flush=True)
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE:g} s for {what}"
        time.sleep(0.05)


def gone(pid: int) -> Callable[[], bool]:
    return lambda: command_line(pid) == ""


def guard_of(pid: int) -> int:
    """The parent of a process."""
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout)


def write(bootstrap: str, topic: str, *values: str) -> None:
    producer = Producer(producer_config(bootstrap))
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = Consumer(consumer_config(bootstrap, f"{topic}-reader"))
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + DEADLINE
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    consumer.close()
    return values


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], dict[str, int]]]]:
    """Starts a Python process that starts an attached broker and then does nothing."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> tuple[subprocess.Popen[str], dict[str, int]]:
        command = [sys.executable, "-c", OWNER, str(tmp_path / "broker"), *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_the_broker_dies_with_its_owner(
    owner: Callable[..., tuple[subprocess.Popen[str], dict[str, int]]], number: signal.Signals
) -> None:
    process, broker = owner()
    guard = guard_of(broker["pid"])
    process.send_signal(number)
    process.wait(DEADLINE)
    wait_for(gone(broker["pid"]), "the broker to die with its owner")
    wait_for(gone(guard), "the guard to end")


@pytest.mark.soak
def test_the_broker_dies_with_its_owner_even_if_a_fork_of_the_owner_lives_on(
    owner: Callable[..., tuple[subprocess.Popen[str], dict[str, int]]],
) -> None:
    process, broker = owner("fork")
    process.kill()
    process.wait(DEADLINE)
    assert not gone(broker["forked"])()
    wait_for(gone(broker["pid"]), "the broker to die with its owner")
    os.kill(broker["forked"], signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a process when its parent dies")
def test_the_broker_dies_with_its_guard(
    owner: Callable[..., tuple[subprocess.Popen[str], dict[str, int]]],
) -> None:
    _, broker = owner()
    os.kill(guard_of(broker["pid"]), signal.SIGKILL)
    wait_for(gone(broker["pid"]), "the broker to die with its guard")


@pytest.mark.soak  # the harness of faults does the same, in the middle of a job
def test_a_broker_that_was_killed_comes_up_again_with_its_data(tmp_path: Path) -> None:
    # The folder's name holds what a list of folders, a pattern or a properties file would trip over.
    folder = tmp_path / "my broker, (nr. 1) \\ é"
    first = EmbeddedBroker(folder).start()
    Topics(first.bootstrap, timeout=30).create("clicks", partitions=1)
    write(first.bootstrap, "clicks", "one", "two")
    os.kill(first.pid, signal.SIGKILL)
    wait_for(gone(first.pid), "the broker to die")
    assert (folder / "broker.json").is_file(), "nobody was left to remove the note"
    assert running_broker(folder) is None

    with EmbeddedBroker(folder) as second:
        assert second.pid != first.pid
        write(second.bootstrap, "clicks", "three")
        assert read(second.bootstrap, "clicks", 3) == ["one", "two", "three"]
        first.stop()
        assert running_broker(folder) is not None, "stopping the dead one stopped or forgot the living one"
    assert running_broker(folder) is None


@pytest.mark.soak
def test_a_broker_that_is_killed_in_commits_ends_their_transactions(tmp_path: Path) -> None:
    """Kafka 4.1 to 4.3 leave some open for ever, and readers wait for them: seen there after two such kills."""
    groups = [f"group-{number}" for number in range(6)]
    with EmbeddedBroker(tmp_path) as broker:
        Topics(broker.bootstrap, timeout=30).create("clicks", partitions=1)
        for _ in range(4):
            with busy_committers(broker.bootstrap, groups):
                os.kill(broker.pid, signal.SIGKILL)
                wait_for(gone(broker.pid), "the broker to die")
            broker.start()
            for group in groups:
                # The next of its id ends what it left open; what is committed then is the last word.
                producer = Producer(producer_config(broker.bootstrap, **{"transactional.id": group}))
                producer.init_transactions(60)
                reader = Consumer(consumer_config(broker.bootstrap, group))
                assert reader.committed([TopicPartition("clicks", 0)], timeout=30)[0].offset > 0
                reader.close()


@contextmanager
def busy_committers(bootstrap: str, groups: list[str]) -> Iterator[None]:
    """A process that commits transactions as fast as it can until it is killed; the block begins in the midst of it."""
    program = """
import sys, threading, time
from confluent_kafka import Consumer, Producer, TopicPartition
from headrace.log.consumer import consumer_config
bootstrap, *groups = sys.argv[1:]
def commit(group):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(60)
    of = Consumer(consumer_config(bootstrap, group)).consumer_group_metadata()
    for number in range(1, 10**6):
        producer.begin_transaction()
        producer.produce("clicks", b"x")
        producer.send_offsets_to_transaction([TopicPartition("clicks", 0, number)], of, 30)
        producer.commit_transaction(30)
        if number == 3:
            print(group, flush=True)
for group in groups:
    threading.Thread(target=commit, args=(group,), daemon=True).start()
time.sleep(300)
"""
    with subprocess.Popen([sys.executable, "-c", program, bootstrap, *groups], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert len([process.stdout.readline() for _ in groups]) == len(groups)
            yield
        finally:
            process.kill()


def test_a_pid_that_now_belongs_to_another_process_is_not_a_broker(tmp_path: Path) -> None:
    note = {
        "pid": os.getpid(),
        "bootstrap": "127.0.0.1:9092",
        "started": "2026-01-01T00:00:00+00:00",
        "attached": False,
    }
    (tmp_path / "broker.json").write_text(json.dumps(note))
    assert running_broker(tmp_path) is None
    RunningBroker(os.getpid(), "127.0.0.1:9092", "", False, tmp_path).stop()  # and this process is still here
    assert not (tmp_path / "broker.json").exists()


def test_a_terminals_interrupt_does_not_reach_the_broker(broker: EmbeddedBroker) -> None:
    assert os.getpgid(broker.pid) != os.getpgid(0)
    assert os.getsid(broker.pid) != os.getsid(0)


def test_only_this_machine_reaches_the_broker(broker: EmbeddedBroker) -> None:
    host, port = broker.bootstrap.split(":")
    assert host == "127.0.0.1"
    with socket.socket() as here, socket.socket() as elsewhere:
        assert here.connect_ex((host, int(port))) == 0
        assert elsewhere.connect_ex(("127.0.0.2", int(port))) != 0


def test_a_second_attached_broker_on_the_same_data_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerStartError, match="runs already") as caught:
        EmbeddedBroker(broker.data_dir).start()
    assert broker.bootstrap in caught.value.what
    assert "headrace broker stop" in str(caught.value.fix)
    assert Topics(broker.bootstrap).list() is not None


def test_a_port_that_is_taken_is_named(broker: EmbeddedBroker, tmp_path: Path) -> None:
    port = int(broker.bootstrap.split(":")[1])
    with pytest.raises(PortTakenError, match=str(port)) as caught:
        EmbeddedBroker(tmp_path / "broker", port=port).start()
    assert "--port" in str(caught.value.fix)
    assert running_broker(tmp_path / "broker") is None


def test_a_broker_that_can_not_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    broken = EmbeddedBroker(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(BrokerStartError, match="ended while it started") as caught:
        broken.start()
    assert "node id 7" in str(caught.value.why)
    assert str(tmp_path / "logs" / "broker.log") in str(caught.value.why)
    assert (tmp_path / "logs" / "broker.log").read_text()
    assert not (tmp_path / "broker.json").exists()
    with pytest.raises(BrokerUnavailableError):
        _ = broken.pid


def headrace(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "HEADRACE_BOOTSTRAP"}
    return subprocess.run(
        [sys.executable, "-m", "headrace", *words, "--output", "json"],
        env={**environment, "HEADRACE_STATE": str(state)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_starts_one_broker_that_stays_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    monkeypatch.delenv("HEADRACE_BOOTSTRAP", raising=False)
    port = str(free_port())
    try:
        down = headrace(tmp_path, "broker", "status")
        assert (down.returncode, json.loads(down.stdout)["running"]) == (3, False)
        assert json.loads(headrace(tmp_path, "topics", "list").stderr)["error"] == "BrokerUnavailableError"

        # Two at once: one starts it, the other waits and takes over what it finds.
        words = [sys.executable, "-m", "headrace", "broker", "start", "--port", port, "--output", "json"]
        both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        answers = [json.loads(process.communicate()[0]) for process in both]
        assert answers[0] == answers[1]
        assert answers[0]["bootstrap"] == f"127.0.0.1:{port}" == default_bootstrap()

        up = headrace(tmp_path, "broker", "status")
        assert (up.returncode, json.loads(up.stdout)) == (0, answers[0])
        assert headrace(tmp_path, "topics", "create", "clicks").returncode == 0
        other = headrace(tmp_path, "broker", "start", "--port", str(free_port()))
        assert (other.returncode, json.loads(other.stderr)["error"]) == (1, "BrokerStartError")
        # What it says goes to its log and not to the terminal.
        assert "clicks" in (tmp_path / "broker" / "logs" / "broker.log").read_text()
        assert (tmp_path / "broker" / "logs" / "console.log").read_text() == ""
    finally:
        stopped = headrace(tmp_path, "broker", "stop")
    assert json.loads(stopped.stdout) == {"stopped": True}
    assert gone(answers[0]["pid"])()
    assert json.loads(headrace(tmp_path, "broker", "stop").stdout) == {"stopped": False}
