"""The books of the demo: each transaction that was produced must come out once, and what is missing is lost.

A transaction is known by its place in the source topic, which every record that the job writes carries in its header
`headrace-id`. One byte per transaction holds what has been seen of it, so that hours of traffic fit in memory.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.demo.latency import Latencies


class Outcome(StrEnum):
    """What may become of a transaction: exactly one of these."""

    DECIDED = "decided"
    LATE = "late"
    DUPLICATE = "duplicate"
    QUARANTINED = "quarantined"
    DEAD_LETTER = "dead_letter"


class Sent(NamedTuple):
    """A transaction that reached the log, with the time its producer gave it."""

    partition: int
    offset: int
    sent_ms: int


class Receipt(NamedTuple):
    """A record of an output topic, read by the collector. `flagged` is whether a decision says so."""

    outcome: Outcome
    partition: int
    offset: int
    sent_ms: int
    received_ms: float
    flagged: bool = False


class Alert(NamedTuple):
    """A record of the alert topic."""

    partition: int
    offset: int
    sent_ms: int
    received_ms: float
    txn_id: str
    card_id: str
    amount: float | None
    reasons: tuple[str, ...]

    @property
    def latency_ms(self) -> float:
        """From the producer to the reader of the alert."""
        return self.received_ms - self.sent_ms


class Second(NamedTuple):
    """One second as the view draws it."""

    produced: int
    decided: int
    latency_ms: float | None


@dataclass(frozen=True)
class Figures:
    """The books at one moment."""

    produced: int
    outcomes: dict[Outcome, int]
    alerts: int
    duplicated: int
    lost: int
    missing_alerts: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    measured: int

    @property
    def settled(self) -> bool:
        """Whether every transaction has come out, and every flagged one with its alert."""
        return self.lost == 0 and self.missing_alerts == 0


_PRODUCED, _FLAGGED, _ALERTED = 1, 2, 4
_BITS = {outcome: 8 << place for place, outcome in enumerate(Outcome)}
_COME_OUT = sum(_BITS.values())


class Accounting:
    """Keeps the books; safe to use from several threads.

    >>> books = Accounting()
    >>> books.produced([Sent(0, 0, 1000), Sent(0, 1, 1001)])
    >>> books.received([Receipt(Outcome.DECIDED, 0, 0, 1000, 1004.5)])
    >>> books.figures().lost
    1
    """

    def __init__(self, *, history_seconds: int = 60) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, bytearray] = {}
        self._outcomes: Counter[Outcome] = Counter()
        self._produced = 0
        self._alerts = 0
        self._duplicated = 0
        self._open = 0  # produced, and has not come out
        self._unalerted = 0  # flagged, and has no alert
        self._measured_from_ms: int | None = None
        self._latencies = Latencies()
        self._history_seconds = history_seconds
        self._produced_in: Counter[int] = Counter()
        self._latencies_in: dict[int, Latencies] = {}
        self._recent_alerts: deque[Alert] = deque(maxlen=60)

    def measure_from(self, at_ms: int) -> None:
        """Latencies count for transactions that are sent from this moment on; before it the job warms up."""
        with self._lock:
            self._measured_from_ms = at_ms

    def produced(self, transactions: Iterable[Sent]) -> None:
        """Transactions reached the log."""
        with self._lock:
            for transaction in transactions:
                before = self._mark(transaction.partition, transaction.offset, _PRODUCED)
                self._produced += 1
                self._open += not before & _COME_OUT
                self._produced_in[transaction.sent_ms // 1000] += 1
            self._forget(self._produced_in)

    def received(self, receipts: Iterable[Receipt]) -> None:
        """Records came out. The second record of a transaction counts as duplicated, in whichever topic it is."""
        with self._lock:
            for receipt in receipts:
                before = self._mark(receipt.partition, receipt.offset, _BITS[receipt.outcome])
                if before & _COME_OUT:
                    self._duplicated += 1
                    continue
                self._outcomes[receipt.outcome] += 1
                self._open -= before & _PRODUCED
                if receipt.flagged:
                    self._mark(receipt.partition, receipt.offset, _FLAGGED)
                    self._unalerted += not before & _ALERTED
                if receipt.outcome is Outcome.DECIDED:
                    self._measure(receipt)

    def alerted(self, alerts: Iterable[Alert]) -> list[Alert]:
        """Alerts came out. Returns those that are new."""
        new = []
        with self._lock:
            for alert in alerts:
                before = self._mark(alert.partition, alert.offset, _ALERTED)
                if before & _ALERTED:
                    continue
                self._alerts += 1
                self._unalerted -= bool(before & _FLAGGED)
                self._recent_alerts.append(alert)
                new.append(alert)
        return new

    def figures(self) -> Figures:
        """The books now."""
        with self._lock:
            return Figures(
                produced=self._produced,
                outcomes={outcome: self._outcomes[outcome] for outcome in Outcome},
                alerts=self._alerts,
                duplicated=self._duplicated,
                lost=self._open,
                missing_alerts=self._unalerted,
                p50_ms=self._latencies.quantile(0.5),
                p95_ms=self._latencies.quantile(0.95),
                p99_ms=self._latencies.quantile(0.99),
                measured=self._latencies.count,
            )

    def history(self, now_ms: float) -> list[Second]:
        """The last whole seconds, the oldest first."""
        current = int(now_ms // 1000)
        with self._lock:
            seconds = []
            for second in range(current - self._history_seconds, current):
                taken = self._latencies_in.get(second)
                seconds.append(
                    Second(
                        self._produced_in.get(second, 0),
                        taken.count if taken else 0,
                        taken.quantile(0.99) if taken else None,
                    )
                )
            return seconds

    def recent_p99_ms(self, now_ms: float, seconds: int) -> float | None:
        """Of the decisions that came in the last whole seconds, whenever they were sent; None if none came."""
        current = int(now_ms // 1000)
        recent = Latencies()
        with self._lock:
            for second in range(current - seconds, current):
                if second in self._latencies_in:
                    recent.update(self._latencies_in[second])
        return recent.quantile(0.99)

    def recent_alerts(self) -> list[Alert]:
        """The latest alerts, the newest first."""
        with self._lock:
            return list(reversed(self._recent_alerts))

    def _measure(self, receipt: Receipt) -> None:
        latency = receipt.received_ms - receipt.sent_ms
        if self._measured_from_ms is not None and receipt.sent_ms >= self._measured_from_ms:
            self._latencies.add(latency)
        second = int(receipt.received_ms // 1000)
        if second not in self._latencies_in:
            self._latencies_in[second] = Latencies()
            self._forget(self._latencies_in)
        self._latencies_in[second].add(latency)

    def _forget(self, seconds: dict[int, Latencies] | Counter[int]) -> None:
        """Keeps a little more history than is drawn: the seconds of the two sides do not end together."""
        while len(seconds) > 2 * self._history_seconds:
            del seconds[min(seconds)]

    def _mark(self, partition: int, offset: int, bits: int) -> int:
        """Notes what was seen of a transaction; returns what had been seen before."""
        seen = self._seen.setdefault(partition, bytearray())
        if offset >= len(seen):
            seen.extend(bytes(offset + 1 - len(seen)))
        before = seen[offset]
        seen[offset] = before | bits
        return before
