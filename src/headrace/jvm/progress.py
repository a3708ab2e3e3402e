"""How long work tells what it is doing: a function that takes one line for a person."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]


def silent(message: str) -> None:
    """Progress that nobody asked for.

    >>> silent("kafka-broker: found 12 jars")
    """
