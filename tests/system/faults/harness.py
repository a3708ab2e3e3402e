"""Kills at random moments, by a seed, while the ledger runs; then the audit of every book."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from headrace.log.broker import EmbeddedBroker
from headrace.log.topics import Topics
from tests.system.faults.ledger import PARTITIONS, TABLE, Audit, Transfers, audit
from tests.system.faults.victims import Broker, Database, Driver, Task, Victim
from tests.system.faults.worker import Job
from tests.system.postgres_server import PostgresServer
from tests.system.records import read_all
from tests.system.running import wait_for

SETTLE = 180.0
Book = Callable[[], list[dict[str, Any]]]
"""All postings that a sink has: rows with id, account, number and total."""


class Chaos:
    """One ledger, its job, its broker and the stores that it writes to, and what kills them."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        database: PostgresServer,
        folder: Path,
        *,
        seed: int,
        name: str,
        per_second: int = 30,
    ) -> None:
        self.bootstrap = broker.bootstrap
        self.killed: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._source, self._sink = f"{name}-transfers", f"{name}-postings"
        Topics(self.bootstrap, timeout=30).ensure(self._source, self._sink, partitions=PARTITIONS)
        lakehouse = str(folder / "lakehouse")
        job = Job(
            *("ledger", name, self.bootstrap, self._source, self._sink, str(folder / "checkpoint")),
            max_rows=2000,
            database=database.url,
            lakehouse=lakehouse,
        )
        self._transfers = Transfers(self.bootstrap, self._source, seed=seed, per_second=per_second)
        self.driver = Driver(job, folder)
        self.victims: dict[str, Victim] = {
            "driver": self.driver,
            "task": Task(self.driver),
            "broker": Broker(broker),
            "database": Database(database),
        }
        self.books: dict[str, Book] = {
            "kafka": lambda: [r.row for r in read_all(self.bootstrap, self._sink)],
            "postgres": lambda: _rows_of(database),
            "lakehouse": lambda: _rows_below(lakehouse),
        }

    def run(
        self,
        *,
        plan: Mapping[str, int] | None = None,
        seconds: float | None = None,
        kills: int | None = None,
        say: Callable[[str], None] = lambda message: None,
    ) -> dict[str, Audit]:
        """Kill so many of each in a random order, or whoever the seed says for so long or often; audit every book."""
        self._transfers.start()
        try:
            self._await_ready("driver")
            for name in self._shuffled(plan) if seconds is None else islice(self._endless(seconds), kills):
                self._await_ready(name)
                time.sleep(self._rng.uniform(0, 0.5))  # any moment will do
                self._strike(name, say)
            for name in self.victims:
                self._await_ready(name)
        finally:
            sent = self._transfers.end()
        say(f"settling: {len(sent)} transfers")
        self._settle(len(sent))
        self.driver.end()
        return {name: audit(sent, book()) for name, book in self.books.items()}

    def close(self) -> None:
        self.driver.end()

    def _strike(self, name: str, say: Callable[[str], None]) -> None:
        victim = self.victims[name]
        deadline = time.monotonic() + SETTLE
        while not victim.kill():
            assert time.monotonic() < deadline, f"no {name} to kill; {self.driver.last_words()}"
            time.sleep(self._rng.uniform(0, 0.05))
            self.driver.ready()  # it may have ended since, for a reason that it can't ride out
        self.killed[name] += 1
        say(f"killed {name} ({sum(self.killed.values())})")
        victim.restore()

    def _await_ready(self, name: str) -> None:
        try:
            wait_for(self.victims[name].ready, f"the {name} to be at work", SETTLE)
        except AssertionError as late:
            late.add_note(self.driver.last_words())
            raise

    def _settle(self, count: int) -> None:
        def all_there() -> bool:
            self.driver.ready()
            return all(len({row["id"] for row in book()}) == count for book in self.books.values())

        wait_for(all_there, f"{count} transfers to be posted", SETTLE)

    def _shuffled(self, plan: Mapping[str, int] | None) -> Sequence[str]:
        order = [name for name, count in (plan or {}).items() for _ in range(count)]
        self._rng.shuffle(order)
        return order

    def _endless(self, seconds: float) -> Iterator[str]:
        end = time.monotonic() + seconds
        names = sorted(self.victims)
        while time.monotonic() < end:
            # Most blows are cheap ones: there are more of them in the time.
            yield self._rng.choices(names, [10 if name == "task" else 1 for name in names])[0]


def _rows_of(database: PostgresServer) -> list[dict[str, Any]]:
    if database.query(f"SELECT to_regclass('{TABLE}')") == [(None,)]:
        return []
    names = ("id", "account", "number", "total")
    return [dict(zip(names, row, strict=True)) for row in database.query(f"SELECT {', '.join(names)} FROM {TABLE}")]


def _rows_below(folder: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(folder):
        return []
    rows: list[dict[str, Any]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return rows
