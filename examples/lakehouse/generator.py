"""Orders as a shop sends them: some come late, some twice, some make no sense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import NamedTuple

_COUNTRIES = ("DE", "FR", "IT", "PT")
_FIRST = datetime(2024, 3, 1, tzinfo=UTC)


class Order(NamedTuple):
    """An order."""

    id: str
    customer: str | None
    country: str
    total: Decimal
    at: datetime


@dataclass(frozen=True)
class Shop:
    """What the generator makes.

    >>> [order.id for order in orders(Shop(seed=7, count=2, twice=0))]
    ['o-0', 'o-1']
    """

    seed: int = 1
    count: int = 300
    days: int = 3
    twice: float = 0.1  # sent again later
    senseless: float = 0.05  # no customer, or nothing to pay


def orders(shop: Shop) -> Iterator[Order]:
    """The orders in the order in which they are sent."""
    random = Random(shop.seed)
    again: list[Order] = []
    for number in range(shop.count):
        at = _FIRST + timedelta(days=shop.days) * number / shop.count
        senseless = random.random() < shop.senseless
        order = Order(
            f"o-{number}",
            None if senseless and random.random() < 0.5 else f"c-{random.randrange(20)}",
            random.choice(_COUNTRIES),
            Decimal(0) if senseless else Decimal(random.randrange(100, 50_000)) / 100,
            at - timedelta(seconds=random.randrange(200)),
        )
        yield order
        if random.random() < shop.twice:
            again.append(order)
        elif again and random.random() < 0.3:
            yield again.pop()
