"""A day of sales as they reach the log: card readers keep them for some minutes, then send them all at once.

A reader collects for up to five minutes from its first sale and uploads ten minutes after that, so that a sale comes 10
to 15 minutes late. Some uploads fail and are made again: soon enough for the hour to be restated, or hours later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

OPENS = datetime(2024, 3, 1, 9, tzinfo=UTC)
COLLECTS = timedelta(minutes=5)
WAITS = timedelta(minutes=10)


class Sale(NamedTuple):
    """A sale, with the time at which it was made and the time at which it reached the log."""

    sale_id: str
    store: str
    reader: str
    cents: int
    occurred_at: datetime
    received_at: datetime


@dataclass(frozen=True)
class Trade:
    """What the generator makes. Shares are per upload.

    >>> len(day(Trade(seed=1))) == len(day(Trade(seed=1)))
    True
    """

    seed: int = 1
    stores: int = 3
    readers: int = 2  # per store
    hours: int = 5
    sales_per_hour: int = 30  # per reader
    retried: float = 0.0  # made again 20 to 50 minutes later
    stuck: float = 0.0  # made again three to five hours later


def day(trade: Trade) -> list[Sale]:
    """The sales of a day in the order of the log: as they were received."""
    random = Random(trade.seed)
    sales = [
        sale
        for store in range(trade.stores)
        for reader in range(trade.readers)
        for sale in _reader(trade, random, f"store-{store}", f"reader-{store}-{reader}")
    ]
    return sorted(sales, key=lambda sale: (sale.received_at, sale.sale_id))


def _reader(trade: Trade, random: Random, store: str, reader: str) -> Iterator[Sale]:
    closes = OPENS + timedelta(hours=trade.hours)
    at = OPENS
    number = 0
    full_from = received_at = OPENS  # the first sale begins the first upload
    while True:
        at += timedelta(milliseconds=round(random.expovariate(trade.sales_per_hour / 3_600_000)))
        if at >= closes:
            return
        if at >= full_from:
            full_from = at + COLLECTS
            received_at = full_from + WAITS + _trouble(trade, random)
        yield Sale(f"{reader}-{number}", store, reader, 50 + int(random.expovariate(1 / 2000)), at, received_at)
        number += 1


def _trouble(trade: Trade, random: Random) -> timedelta:
    luck, size = random.random(), random.random()
    if luck < trade.stuck:
        return timedelta(minutes=180 + 120 * size)
    if luck < trade.stuck + trade.retried:
        return timedelta(minutes=20 + 30 * size)
    return timedelta(0)
