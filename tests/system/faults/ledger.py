"""The workload of the fault harness: transfers whose totals are known, and the books that must agree with them.

Each transfer has a number. The job keeps, per account, how many transfers it has seen (state), and writes one posting
per transfer. So a lost, doubled or reordered event shows twice: in the postings, and in the counts that they carry.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

import headrace as hr
from headrace.log.producer import producer_config
from tests.system.records import to_json

ACCOUNTS = 20
PARTITIONS = 2
TABLE = "postings"


def ledger(name: str, source: str, sink: str, database: str = "", lakehouse: str = "") -> hr.Pipeline:
    """The job: one posting per transfer, with its number on the account; into a topic, and stores if there are any."""
    pipeline = hr.Pipeline(name)
    transfers = pipeline.read(source, schema="id BIGINT NOT NULL, account BIGINT NOT NULL, cents BIGINT, at TIMESTAMP")
    booked = transfers.event_time("at", out_of_order="1h").key_by("account")
    postings = booked.rolling("account", number=hr.last("12h").count(), total=hr.last("12h").sum("cents"))
    postings.write(sink)
    # Appended, not merged by a key: a posting that came twice would be there twice.
    if database:
        postings.write(hr.sinks.postgres(database, TABLE))
    if lakehouse:
        postings.write(hr.sinks.delta(lakehouse))
    return pipeline


class Transfers:
    """Sends transfers at a rate, through whatever happens to the broker, until it is told to end."""

    def __init__(self, bootstrap: str, topic: str, *, seed: int, per_second: int) -> None:
        self.sent: list[dict[str, Any]] = []
        self._refused: list[str] = []
        self._topic = topic
        self._rng = random.Random(seed)
        self._pause = 1 / per_second
        # It goes on trying for as long as any outage here lasts: a transfer is in the log once, in its order.
        self._producer = Producer(producer_config(bootstrap, **{"message.timeout.ms": 300_000, "linger.ms": 5}))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> list[dict[str, Any]]:
        """All that is in the log."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(300) == 0
        assert self._refused == []
        return self.sent

    def _send(self) -> None:
        while not self._over.wait(self._pause * 10):
            for _ in range(10):
                account = self._rng.randrange(ACCOUNTS)
                transfer = {
                    "id": len(self.sent),
                    "account": account,
                    "cents": self._rng.randrange(-5000, 10_000),
                    "at": "2026-01-01T10:00:00Z",
                }
                self.sent.append(transfer)
                self._producer.produce(
                    self._topic, to_json(transfer), partition=account % PARTITIONS, on_delivery=self._on_delivery
                )
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error.str())


@dataclass(frozen=True)
class Audit:
    """What the postings say about the transfers."""

    transfers: int
    lost: int
    doubled: int
    wrong: int
    """Postings whose count or total on the account is not what it must be: state that was lost or applied twice."""

    @property
    def clean(self) -> bool:
        return self.lost == self.doubled == self.wrong == 0


def audit(sent: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Audit:
    """Compare with the rows of a book. Transfers of one account are in one partition, so their order is known."""
    numbers: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    expected: dict[int, tuple[int, int]] = {}
    for transfer in sent:
        numbers[transfer["account"]] += 1
        totals[transfer["account"]] += transfer["cents"]
        expected[transfer["id"]] = numbers[transfer["account"]], totals[transfer["account"]]
    times = Counter(row["id"] for row in rows)
    wrong = sum(1 for row in rows if (row["number"], row["total"]) != expected.get(row["id"]))
    return Audit(
        transfers=len(sent),
        lost=len(expected.keys() - times.keys()),
        doubled=sum(count - 1 for count in times.values()),
        wrong=wrong,
    )
