"""What was done with dead letters: a topic of its own beside theirs, `<topic>.handled`.

Kafka's records do not change, so that a letter was replayed or dropped is a record too. It is written in the same
transaction as what was replayed: both are there, or none. One record tells of a page of letters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

_BLOCK = 4096


class State(StrEnum):
    """What became of a letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    DROPPED = "dropped"


class OffsetSet:
    """A set of offsets, in blocks of bits: some bytes for each where they are near to each other.

    >>> offsets = OffsetSet()
    >>> offsets.add(7, 9); offsets.add(8)
    >>> 8 in offsets, 10 in offsets, len(offsets)
    (True, False, 3)
    """

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}

    def add(self, first: int, last: int | None = None) -> None:
        """Add an offset, or all from the first to the last."""
        for offset in range(first, (first if last is None else last) + 1):
            block, bit = divmod(offset, _BLOCK)
            self._blocks[block] = self._blocks.get(block, 0) | 1 << bit

    def __contains__(self, offset: int) -> bool:
        block, bit = divmod(offset, _BLOCK)
        return bool(self._blocks.get(block, 0) >> bit & 1)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._blocks.values())


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets in order as pairs of first and last.

    >>> ranges([1, 2, 3, 7, 9, 10])
    [(1, 3), (7, 7), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset == found[-1][1] + 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


class HandledLetters:
    """All that was done so far, by the position of the letter and by that of the record that it came from."""

    def __init__(self) -> None:
        self._letters: dict[tuple[State, int], OffsetSet] = {}
        self._sources: dict[tuple[str, int], OffsetSet] = {}

    def note(self, page: bytes) -> None:
        """Take in a record of the topic."""
        told: dict[str, Any] = json.loads(page)
        state = State(told["state"])
        for first, last in told["offsets"]:
            self._letters.setdefault((state, told["partition"]), OffsetSet()).add(first, last)
        for topic, partition, offset in told.get("sources", ()):
            self._sources.setdefault((topic, partition), OffsetSet()).add(offset)

    def state(self, partition: int, offset: int) -> State:
        """What became of the letter at that position."""
        for state in (State.REPLAYED, State.DROPPED):
            if offset in self._letters.get((state, partition), ()):
                return state
        return State.OPEN

    def replayed_source(self, source: tuple[str, int, int]) -> bool:
        """Whether the record at that position was replayed, if from another letter: real time may write one twice."""
        topic, partition, offset = source
        return offset in self._sources.get((topic, partition), ())


def page(
    state: State, partition: int, offsets: list[int], sources: list[tuple[str, int, int]], at: str, how: str
) -> bytes:
    """The record that tells of a page of letters of one partition."""
    return json.dumps(
        {
            "state": state,
            "partition": partition,
            "offsets": ranges(offsets),
            "sources": sources,
            "at": at,
            "how": how,
        }
    ).encode()
