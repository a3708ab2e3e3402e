"""The job is killed with SIGKILL in mid-stream, again and again: no alert is missing in the end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.log.broker import EmbeddedBroker
from headrace.log.topics import Topics
from tests.system import model
from tests.system.jobs.alerts import LIMIT
from tests.system.model import Arrival, timestamp
from tests.system.processes import Headrace
from tests.system.records import LogReader, Record, Sent, positions, produce
from tests.system.wide_stream import START

Topic = Callable[..., str]
EVENTS = 600
KILLS = 2


def payments(seed: int) -> tuple[list[Sent], list[Arrival]]:
    """Payments of 12 cards, a little out of order, some of them twice."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(EVENTS):
        card = rng.randrange(12)
        row = {
            "id": f"p{number}",
            "card": f"c{card}",
            "amount": rng.randrange(1, 40),
            "at": number * 250 - rng.randrange(2000),
        }
        again = [r for r in rows[-60:] if r["card"] == row["card"]]
        rows.append(rng.choice(again) if again and rng.random() < 0.08 else row)
    sent = [
        Sent.row(row | {"at": timestamp(START + row["at"])}, key=row["card"], partition=int(row["card"][1:]) % 2)
        for row in rows
    ]
    arrivals = [Arrival(p, row["card"], START + row["at"], row) for p, row in zip(positions(sent), rows, strict=True)]
    return sent, arrivals


def expected_alerts(arrivals: list[Arrival]) -> dict[Any, dict[str, Any]]:
    """What must come out, by the position of the payment."""
    passed, _ = model.first_of_each_id(arrivals, "id", 2 * 3_600_000)
    spending: Any = {"spent": hr.last("10s").sum("amount"), "count": hr.last("10s").count()}
    return {
        arrival.position: {"id": arrival.row["id"], "card": arrival.key, **results}
        for arrival, results in model.rolling(passed, spending)
        if results["spent"] > LIMIT
    }


@contextmanager
def flowing(bootstrap: str, source: str, sent: list[Sent]) -> Iterator[threading.Event]:
    """Payments come in while the block runs, about forty a second; the event is set when all are in the log."""
    done, stop = threading.Event(), threading.Event()

    def send() -> None:
        for at in range(0, len(sent), 10):
            if stop.wait(0.25):
                return
            produce(bootstrap, source, sent[at : at + 10])
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def until_new_alerts(reader: LogReader, job: Headrace) -> None:
    seen = len({record.source for record in reader.records})

    def more(records: list[Record]) -> bool:
        return job.process.poll() is not None or len({record.source for record in records}) > seen

    reader.until(more, "new alerts", 180)


def run_and_kill(
    broker: EmbeddedBroker, topic: Topic, folder: Path, mode: str, seed: int
) -> tuple[dict[Any, dict[str, Any]], list[Record], str]:
    rng = random.Random(seed)
    source = topic("payments", partitions=2)
    Topics(broker.bootstrap).ensure(f"{source}-alerts", partitions=2)
    sent, arrivals = payments(seed)
    expected = expected_alerts(arrivals)
    reader = LogReader(broker.bootstrap, f"{source}-alerts")
    words = ("run", "tests.system.jobs.alerts:alerts", "--mode", mode, "--bootstrap", broker.bootstrap)
    options = ("--checkpoint", str(folder / "checkpoint"), "--checkpoint-interval", "5", "--max-rows", "90")
    started: list[Headrace] = []
    try:
        with flowing(broker.bootstrap, source, sent) as all_sent:
            for number in range(KILLS + 1):
                job = Headrace(folder / str(number), *words, *options, TEST_SOURCE=source)
                started.append(job)
                if number == KILLS:
                    break
                until_new_alerts(reader, job)
                assert job.process.poll() is None, job.err
                time.sleep(rng.uniform(0, 2.5))  # any moment will do: in a batch, between two, in a commit
                job.kill()
            reader.until(
                lambda records: all_sent.is_set() and {r.source for r in records} >= set(expected), "all alerts", 180
            )
        started[-1].interrupt()
        assert started[-1].process.wait(60) == 0, started[-1].err
        for job in started:
            job.until_gone()
    finally:
        for job in started:
            job.end()
    records = list(reader.to_end())
    reader.close()
    return expected, records, source


@pytest.mark.soak
def test_micro_batches_lose_nothing_and_write_nothing_twice(
    broker: EmbeddedBroker, topic: Topic, tmp_path: Path
) -> None:
    expected, records, source = run_and_kill(broker, topic, tmp_path, "microbatch", seed=1)
    assert len(expected) > 100
    assert {record.source: record.row for record in records} == expected
    assert len(records) == len(expected), "exactly once"
    assert {record.id for record in records} == {f"{source}/{p}/{o}/spending" for p, o in expected}


def test_real_time_loses_nothing_and_repeats_collapse_by_their_id(
    broker: EmbeddedBroker, topic: Topic, tmp_path: Path
) -> None:
    expected, records, source = run_and_kill(broker, topic, tmp_path, "realtime", seed=2)
    by_id: dict[str, set[tuple[bytes | None, bytes | None]]] = {}
    for record in records:
        by_id.setdefault(record.id, set()).add((record.key, record.value))
    assert set(by_id) == {f"{source}/{p}/{o}/spending" for p, o in expected}
    assert {id: len(contents) for id, contents in by_id.items() if len(contents) > 1} == {}, "one id, one content"
    assert {record.source: record.row for record in records} == expected
