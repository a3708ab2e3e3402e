"""What a declaration knows of a sink: its name, its key, what it guarantees. How it writes is in `headrace.sinks`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headrace.errors import PipelineError
from headrace.pipeline.arguments import Argument


@dataclass(frozen=True)
class Guarantee:
    """How often a row arrives, which mechanism sees to that, and what would break it."""

    name: str
    why: str
    breaks: str


@dataclass(frozen=True)
class Sink(Argument, ABC):
    """A store that a stream is written to by a query of its own. Made by the functions of `hr.sinks`.

    >>> import headrace as hr
    >>> hr.sinks.postgres("postgresql://ann:secret@db/shop", table="alerts", key="id")
    <postgres alerts at db/shop>
    """

    kind: ClassVar[str]

    name: str
    """Names the sink's query and its checkpoint; one per pipeline."""
    key: tuple[str, ...]
    """The columns by which rows replace each other; none if rows are only added."""
    every_ms: int
    """The time between two batches, at least."""
    max_rows: int | None
    """The most rows of a batch; None: the run's own bound."""

    @property
    @abstractmethod
    def target(self) -> str:
        """Where rows go, in a word or two, without secrets."""

    @abstractmethod
    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """What holds; `repeats`: the topic may have a row more than once, `ids`: with the same id each time."""

    def refusals(self, options: Mapping[str, object]) -> list[PipelineError]:
        """What `.write(sink, ...)` was given beside the sink, which only a topic takes."""
        own = f'pass it to the sink: hr.sinks.{self.kind}(..., key="<column>").'
        return [
            PipelineError(
                f".write(...) to a {self.kind} sink takes no {name} of its own.",
                fix=own if name == "key" else "leave it out.",
            )
            for name, value in options.items()
            if value is not None
        ]

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"
