"""What a trigger is once declared: a tree of frozen data, which the kernel runs. `triggers` makes it.

A trigger that has *finished* never fires again: what comes into its window afterwards is refused, as it would never be
seen. `after_count(3)` finishes with the third event; `repeat(after_count(3))` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from headrace.pipeline.arguments import Argument
from headrace.pipeline.columns import expression_text
from headrace.pipeline.durations import format_duration

# Gives the number of the next condition.
_Next = Callable[[], int]


@dataclass(frozen=True)
class Trigger(Argument):
    """When a window gives a result. Made by the functions of `triggers`.

    A condition is Spark's, and so no part of the tree that the kernel gets: that has its number.
    """

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The triggers that this one is made of."""
        return ()

    def spec(self) -> dict[str, Any]:
        """The tree as the kernel reads it; a condition is its index in `conditions`.

        >>> import headrace as hr
        >>> hr.any_of(hr.when("total > 100"), hr.when("n > 5")).spec()["of"][1]
        {'kind': 'when', 'condition': 1}
        """
        return self._spec(count().__next__)

    def conditions(self) -> tuple[Any, ...]:
        """The conditions of every `when`, depth first.

        >>> import headrace as hr
        >>> hr.any_of(hr.when("total > 100"), hr.each()).conditions()
        ('total > 100',)
        """
        return tuple(condition for part in self.parts for condition in part.conditions())

    def may_finish(self) -> bool:
        """Whether there may be a last result while more events come, which are then refused.

        >>> import headrace as hr
        >>> hr.after_count(3).may_finish(), hr.repeat(hr.after_count(3)).may_finish()
        (True, False)
        """
        raise NotImplementedError

    def fires_before_end(self) -> bool:
        """Whether it can fire before the watermark reaches the end of the window.

        >>> import headrace as hr
        >>> hr.after_watermark().fires_before_end(), hr.after_watermark(early=hr.each()).fires_before_end()
        (False, True)
        """
        raise NotImplementedError

    def _spec(self, number: _Next) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """See `after_watermark`. `early` and `late` are repeated already."""

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """Early, then late."""
        return tuple(part for part in (self.early, self.late) if part is not None)

    def may_finish(self) -> bool:
        """With the result on time, unless there are late ones."""
        return self.late is None

    def fires_before_end(self) -> bool:
        """If it has an early trigger that can."""
        return self.early is not None and self.early.fires_before_end()

    def _spec(self, number: _Next) -> dict[str, Any]:
        early = None if self.early is None else self.early._spec(number)
        late = None if self.late is None else self.late._spec(number)
        return {"kind": "watermark", "early": early, "late": late}

    def __str__(self) -> str:
        parts = (("early", self.early), ("late", self.late))
        return f"after_watermark({', '.join(f'{name}={part}' for name, part in parts if part is not None)})"


@dataclass(frozen=True)
class _Once(Trigger):
    """Fires once, whenever it does."""

    def may_finish(self) -> bool:
        """It does."""
        return True

    def fires_before_end(self) -> bool:
        """It does not look at the watermark."""
        return True


@dataclass(frozen=True)
class AfterProcessingTime(_Once):
    """See `after_processing_time`."""

    delay_ms: int

    def _spec(self, number: _Next) -> dict[str, Any]:
        return {"kind": "processing_time", "delayMs": self.delay_ms}

    def __str__(self) -> str:
        return f"after_processing_time({format_duration(self.delay_ms)})"


@dataclass(frozen=True)
class AfterCount(_Once):
    """See `after_count`."""

    n: int

    def _spec(self, number: _Next) -> dict[str, Any]:
        return {"kind": "count", "n": self.n}

    def __str__(self) -> str:
        return f"after_count({self.n})"


@dataclass(frozen=True, eq=False)
class When(_Once):
    """See `when`. It equals only itself: Columns can't be compared, as == makes a third one of two."""

    condition: Any

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def conditions(self) -> tuple[Any, ...]:
        """The one."""
        return (self.condition,)

    def _spec(self, number: _Next) -> dict[str, Any]:
        return {"kind": "when", "condition": number()}

    def __str__(self) -> str:
        return f"when({expression_text(self.condition)})"


@dataclass(frozen=True)
class Repeat(Trigger):
    """See `repeat`."""

    of: Trigger

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """What is repeated."""
        return (self.of,)

    def may_finish(self) -> bool:
        """Never."""
        return False

    def fires_before_end(self) -> bool:
        """If what is repeated can."""
        return self.of.fires_before_end()

    def _spec(self, number: _Next) -> dict[str, Any]:
        return {"kind": "repeat", "of": self.of._spec(number)}

    def __str__(self) -> str:
        match self.of:
            case AfterProcessingTime(delay_ms):
                return f"every({format_duration(delay_ms)})"
            case AfterCount(1):
                return "each()"
        return f"repeat({self.of})"


@dataclass(frozen=True)
class _Composite(Trigger):
    """Several triggers together."""

    of: tuple[Trigger, ...]

    _kind: ClassVar[str]
    _function: ClassVar[str]

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """They."""
        return self.of

    def _spec(self, number: _Next) -> dict[str, Any]:
        return {"kind": self._kind, "of": [part._spec(number) for part in self.of]}

    def __str__(self) -> str:
        return f"{self._function}({', '.join(str(part) for part in self.of)})"


@dataclass(frozen=True)
class AnyOf(_Composite):
    """See `any_of`."""

    _kind = "any"
    _function = "any_of"

    def may_finish(self) -> bool:
        """With the first that finishes."""
        return any(part.may_finish() for part in self.of)

    def fires_before_end(self) -> bool:
        """If one can."""
        return any(part.fires_before_end() for part in self.of)


@dataclass(frozen=True)
class AllOf(_Composite):
    """See `all_of`."""

    _kind = "all"
    _function = "all_of"

    def may_finish(self) -> bool:
        """When all have finished."""
        return all(part.may_finish() for part in self.of)

    def fires_before_end(self) -> bool:
        """If all can."""
        return all(part.fires_before_end() for part in self.of)


@dataclass(frozen=True)
class AfterEach(_Composite):
    """See `after_each`."""

    _kind = "sequence"
    _function = "after_each"

    def may_finish(self) -> bool:
        """With the last one: one that never finishes never hands over."""
        return all(part.may_finish() for part in self.of)

    def fires_before_end(self) -> bool:
        """If the first can."""
        return self.of[0].fires_before_end()
