"""The job is killed with SIGKILL in mid-stream, again and again: no alert is missing in the end."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
from tests.system.records import LogReader, Position, Record, Sent, positions, produce
from tests.system.running import beside, wait_for
from tests.system.wide_stream import START

Topic = Callable[..., str]
DEADLINE = 180
TIMES = pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.soak)], ids=["once", "again and again"])


def payments(seed: int) -> Iterator[dict[str, Any]]:
    """Payments of 12 cards without end, a little out of order, some of them twice."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    while True:
        number = len(rows)
        row = {
            "id": f"p{number}",
            "card": f"c{rng.randrange(12)}",
            "amount": rng.randrange(1, 40),
            "at": START + number * 250 - rng.randrange(2000),
        }
        again = [r for r in rows[-60:] if r["card"] == row["card"]]
        rows.append(rng.choice(again) if again and rng.random() < 0.08 else row)
        yield rows[-1]


@dataclass
class Flow:
    """Payments on their way into the log: about forty a second for as long as it takes, however slow the machine is."""

    bootstrap: str
    source: str
    seed: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def send(self, stopping: threading.Event) -> None:
        coming = payments(self.seed)
        while not stopping.wait(0.25):
            part = [next(coming) for _ in range(10)]
            self.rows += part
            produce(self.bootstrap, self.source, sent(part))

    def expected_alerts(self) -> dict[Position, dict[str, Any]]:
        """What must come out, by the position of the payment."""
        arrivals = [
            Arrival(position, row["card"], row["at"], row)
            for position, row in zip(positions(sent(self.rows)), self.rows, strict=True)
        ]
        passed, _ = model.first_of_each_id(arrivals, "id", 2 * 3_600_000)
        spending: Any = {"spent": hr.last("10s").sum("amount"), "count": hr.last("10s").count()}
        return {
            arrival.position: {"id": arrival.row["id"], "card": arrival.key, **results}
            for arrival, results in model.rolling(passed, spending)
            if results["spent"] > LIMIT
        }


def sent(rows: list[dict[str, Any]]) -> list[Sent]:
    return [
        Sent.row(row | {"at": timestamp(row["at"])}, key=row["card"], partition=int(row["card"][1:]) % 2)
        for row in rows
    ]


@dataclass(frozen=True)
class Committed:
    """How far a checkpoint has come: its last batch, and up to where that has read each partition."""

    batch: int = -1
    offsets: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(checkpoint: Path) -> Committed:
        for query in checkpoint.glob("queries/*"):
            logs = [
                {int(f.name) for f in (query / log).glob("*") if f.name.isdigit()} for log in ("commits", "offsets")
            ]
            if done := logs[0] & logs[1]:
                ends = json.loads((query / "offsets" / str(max(done))).read_text().splitlines()[-1])
                (partitions,) = ends.values()
                return Committed(max(done), {int(partition): offset for partition, offset in partitions.items()})
        return Committed()


def sources(records: list[Record]) -> set[Position]:
    return {record.source for record in records}


def until_it_has_done_something(job: Headrace, checkpoint: Path, before: Committed, reader: LogReader) -> None:
    """A run that was killed before its first batch was committed would leave no state that the next must get right."""
    seen = len(sources(reader.records))

    def alive() -> bool:
        assert job.process.poll() is None, job.err
        return True

    reader.until(lambda records: alive() and len(sources(records)) > seen, "new alerts", DEADLINE)
    wait_for(lambda: alive() and Committed.of(checkpoint).batch > before.batch, "a batch of this run", DEADLINE)


@dataclass(frozen=True)
class Outcome:
    source: str
    expected: dict[Position, dict[str, Any]]
    records: list[Record]


def run_and_kill(
    broker: EmbeddedBroker, topic: Topic, folder: Path, mode: str, *, kills: int, within: float, seed: int
) -> Outcome:
    """Runs the job, kills it so often, each time within so many seconds of a commit, and lets the last run finish."""
    rng = random.Random(seed)
    source = topic("payments", partitions=2)
    topics = Topics(broker.bootstrap)
    topics.ensure(f"{source}-alerts", partitions=2)
    reader = LogReader(broker.bootstrap, f"{source}-alerts")
    flow, checkpoint = Flow(broker.bootstrap, source, seed), folder / "checkpoint"
    words = ("run", "tests.system.jobs.alerts:alerts", "--mode", mode, "--bootstrap", broker.bootstrap)
    options = ("--checkpoint", str(checkpoint), "--checkpoint-interval", "5", "--max-rows", "90")
    before, written = Committed(), 0
    started: list[Headrace] = []
    try:
        with beside(flow.send):
            for number in range(kills + 1):
                job = Headrace(folder / str(number), *words, *options, TEST_SOURCE=source)
                started.append(job)
                until_it_has_done_something(job, checkpoint, before, reader)
                if number == kills:
                    break
                time.sleep(rng.uniform(0, within))  # any moment will do: in a batch, between two, in a commit
                assert job.process.poll() is None, job.err
                job.kill()
                job.until_gone()
                before, written = Committed.of(checkpoint), len(reader.to_end())
                assert sum(topics.end_offsets(source).values()) > sum(before.offsets.values()), "killed in mid-stream"
        expected = flow.expected_alerts()
        assert set(expected) - sources(reader.records[:written]), "there was more to come when it was last killed"
        reader.until(lambda records: sources(records) >= set(expected), "all alerts", DEADLINE)
        started[-1].interrupt()
        assert started[-1].process.wait(60) == 0, started[-1].err
        started[-1].until_gone()
    finally:
        for job in started:
            job.end()
    records = list(reader.to_end())
    reader.close()
    # It went on from where the one before was, and not from the beginning: the state had to be there.
    assert all(offset > 0 for offset in before.offsets.values()), before
    assert [(p, o) for p, o in sources(records[written:]) if o < before.offsets[p]] == []
    return Outcome(source, expected, records)


@TIMES
def test_micro_batches_lose_nothing_and_write_nothing_twice(
    broker: EmbeddedBroker, topic: Topic, tmp_path: Path, kills: int
) -> None:
    killed = run_and_kill(broker, topic, tmp_path, "microbatch", kills=kills, within=1, seed=1)
    assert {record.source: record.row for record in killed.records} == killed.expected
    assert len(killed.records) == len(killed.expected), "exactly once"
    assert {record.id for record in killed.records} == {f"{killed.source}/{p}/{o}/spending" for p, o in killed.expected}


@TIMES
def test_real_time_loses_nothing_and_repeats_collapse_by_their_id(
    broker: EmbeddedBroker, topic: Topic, tmp_path: Path, kills: int
) -> None:
    killed = run_and_kill(broker, topic, tmp_path, "realtime", kills=kills, within=5.5, seed=8)
    by_id: dict[str, set[tuple[bytes | None, bytes | None]]] = {}
    for record in killed.records:
        by_id.setdefault(record.id, set()).add((record.key, record.value))
    assert set(by_id) == {f"{killed.source}/{p}/{o}/spending" for p, o in killed.expected}
    assert {id: len(contents) for id, contents in by_id.items() if len(contents) > 1} == {}, "one id, one content"
    assert {record.source: record.row for record in killed.records} == killed.expected
