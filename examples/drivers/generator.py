"""Pings of drivers' phones in the order of the log. In a tunnel a phone is silent; at its end it sends them all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

START = datetime(2024, 3, 1, 8, tzinfo=UTC)


class Ping(NamedTuple):
    """How far a driver came since the ping before; when that was, and when it was received."""

    driver_id: str
    metres: int
    seconds: int
    occurred_at: datetime
    received_at: datetime


@dataclass(frozen=True)
class Traffic:
    """What the generator makes.

    >>> pings(Traffic(seed=1)) == pings(Traffic(seed=1))
    True
    """

    seed: int = 1
    drivers: int = 4
    minutes: int = 40
    tunnels: float = 0.02  # per ping
    tunnel_minutes: tuple[float, float] = (2, 12)


def pings(traffic: Traffic) -> list[Ping]:
    """The pings of all drivers in the order of the log."""
    random = Random(traffic.seed)
    made = [ping for number in range(traffic.drivers) for ping in _drive(traffic, random, f"driver-{number}")]
    return sorted(made, key=lambda ping: (ping.received_at, ping.driver_id, ping.occurred_at))


def _drive(traffic: Traffic, random: Random, driver_id: str) -> list[Ping]:
    made = []
    at = silent_until = START
    speed = random.uniform(5, 20)  # metres per second
    while at < START + timedelta(minutes=traffic.minutes):
        seconds = random.randint(4, 20)
        at += timedelta(seconds=seconds)
        speed = min(max(speed + random.gauss(0, 2), 0), 33)
        if at > silent_until and random.random() < traffic.tunnels:
            silent_until = at + timedelta(minutes=random.uniform(*traffic.tunnel_minutes))
        received_at = max(at, silent_until) + timedelta(seconds=random.uniform(0.1, 3))
        made.append(Ping(driver_id, round(speed * seconds), seconds, at, received_at))
    return made
