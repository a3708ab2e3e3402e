"""How full the heap of an embedded broker is, by what its JVM says after each collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from headrace.jvm.process import command_line
from headrace.log.broker import RunningBroker, running_broker, running_brokers
from headrace.log.settings import GC_LOG

_COLLECTIONS = 5
_MOST_BYTES = 64_000
"""Of a log, no more than its end is read."""
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class BrokerHeap:
    """A node of the log on this machine."""

    bootstrap: str
    live: int
    """Bytes that were left after a collection: the least of the last few."""
    most: int


def broker_heaps(bootstrap: str) -> list[BrokerHeap]:
    """Of the nodes at these addresses that are embedded brokers on this machine; of others nothing is known."""
    asked = {address.strip() for address in bootstrap.split(",")}
    found = {broker.pid: broker for broker in (*running_brokers(), *_by_processes()) if broker.bootstrap in asked}
    return [heap for broker in found.values() if (heap := _heap(broker)) is not None]


def _by_processes() -> list[RunningBroker]:
    """Brokers with data folders of their own, where the system tells which processes there are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if "-Dheadrace.broker=" not in command_line(int(process.name)):
            continue
        try:
            folder = (process / "cwd").readlink()
        except OSError:
            continue  # it has just ended, or belongs to another user
        running = running_broker(folder)
        if running is not None:
            found.append(running)
    return found


def _heap(broker: RunningBroker) -> BrokerHeap | None:
    most = re.search(r"-Xmx(\d+)([kmg])", command_line(broker.pid))
    left = left_after(_end(broker.data_dir / GC_LOG))
    if most is None or not left:
        return None
    return BrokerHeap(broker.bootstrap, min(left[-_COLLECTIONS:]), int(most[1]) * _UNITS[most[2]])


def left_after(log: str) -> list[int]:
    """The bytes that were left after each collection of a JVM's log.

    >>> left_after("[0.5s] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 23M->5M(256M) 3.1ms")
    [5242880]
    """
    return [int(size) * _UNITS[unit.lower()] for size, unit in re.findall(r" Pause .*->(\d+)([KMG])\(", log)]


def _end(file: Path) -> str:
    try:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - _MOST_BYTES))
            return log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
