"""Views of pages in the order in which they reach the log: a few pages have most of them, and some phones are slow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

START = datetime(2024, 3, 1, 10, tzinfo=UTC)


class View(NamedTuple):
    """A view of a page, with the time at which it was and that at which it was received."""

    url: str
    user_id: str
    occurred_at: datetime
    received_at: datetime


@dataclass(frozen=True)
class Visits:
    """What the generator makes.

    >>> views(Visits(seed=1)) == views(Visits(seed=1))
    True
    """

    seed: int = 1
    pages: int = 25
    users: int = 200
    seconds: int = 150
    per_second: float = 8.0
    slow: float = 0.1  # come up to a minute later


def views(visits: Visits) -> list[View]:
    """The views in the order of the log."""
    random = Random(visits.seed)
    urls = [f"/page/{number}" for number in range(visits.pages)]
    popularity = [1 / rank for rank in range(1, visits.pages + 1)]
    made = []
    for number in range(round(visits.seconds * visits.per_second)):
        at = START + timedelta(milliseconds=round(1000 * number / visits.per_second))
        delay = random.uniform(0, 60) if random.random() < visits.slow else random.uniform(0.01, 0.5)
        (url,) = random.choices(urls, popularity)
        made.append(View(url, f"user-{random.randrange(visits.users)}", at, at + timedelta(seconds=delay)))
    return sorted(made, key=lambda view: view.received_at)
