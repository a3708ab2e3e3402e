"""What a user hands to a step: windows, triggers, watermarks.

Building runs nothing and raises nothing. A value that can't be read is made all the same, with a stand-in for what is
wrong, and carries its problems to the pipeline that uses it, which reports them with all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from headrace.errors import InvalidDurationError, PipelineError, closest
from headrace.pipeline.columns import is_column
from headrace.pipeline.durations import Duration, parse_duration
from headrace.pipeline.location import caller_location


@dataclass(frozen=True)
class Argument:
    """A value that a step is declared with."""

    problems: tuple[PipelineError, ...] = field(default=(), kw_only=True, compare=False, repr=False)
    """What could not be read; no part of what the value is."""


ArgumentT = TypeVar("ArgumentT", bound=Argument)
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


class Reading:
    """Reads the arguments of one call, and notes what is wrong with them and the line of the user's call.

    >>> reading = Reading("tumbling")
    >>> reading.duration("1m"), reading.duration("soon", "offset")
    (60000, 1)
    >>> [problem.what for problem in reading.problems]
    ["tumbling(..., offset=...): 'soon' is not a duration."]
    """

    def __init__(self, function: str) -> None:
        self._function = function
        self._location = caller_location()
        self._problems: list[PipelineError] = []

    @property
    def problems(self) -> tuple[PipelineError, ...]:
        """What was found wrong so far."""
        return tuple(self._problems)

    def refuse(self, what: str, why: str | None = None, fix: str | None = None) -> None:
        """Note a problem."""
        self._problems.append(PipelineError(what, why=why, fix=fix, location=self._location))

    def duration(self, value: Duration, name: str | None = None, *, zero: bool = False, signed: bool = False) -> int:
        """Milliseconds of a duration, given under a name unless it is the first argument."""
        try:
            return parse_duration(value, zero=zero, signed=signed)
        except InvalidDurationError as problem:
            what = f"{self._use(name)}: {problem.what}"
            fix = _ANOTHER_NAME if is_column(value) else problem.fix
            self._problems.append(InvalidDurationError(what, why=problem.why, fix=fix, location=self._location))
            return 1

    def names(self, value: str | Sequence[str] | None, name: str) -> tuple[str, ...]:
        """Names of columns: one, several, or none."""
        if value is None or isinstance(value, str):
            return () if value is None else (value,)
        listed = isinstance(value, Iterable) and not is_column(value)
        if listed and all(isinstance(each, str) for each in value):
            return tuple(value)
        self.refuse(f"{self._use(name)} takes names of columns, not {value!r}.", None, f'write {name}="<column>".')
        return ()

    def argument(
        self, value: object, kind: type[ArgumentT], otherwise: ArgumentT, what: str, fix: str, name: str | None = None
    ) -> ArgumentT:
        """A value that one of our functions has made, with the problems that it brings."""
        if isinstance(value, kind):
            self._problems.extend(value.problems)
            return value
        shown = repr(value)
        if callable(value) and getattr(value, "__module__", "").startswith("headrace."):
            function = getattr(value, "__name__", type(value).__name__)
            shown, fix = f"the function `{function}`", f"call it: hr.{function}(...)."
        fix = _ANOTHER_NAME if name is not None and is_column(value) else fix
        self.refuse(f"{self._use(name)} takes {what}, not {shown}.", None, fix)
        return otherwise

    def choice(self, value: object, otherwise: ChoiceT, name: str) -> ChoiceT:
        """One of a few words."""
        words = [str(word) for word in type(otherwise)]
        if isinstance(value, str) and value in words:
            return type(otherwise)(value)
        meant = closest(value, words) if isinstance(value, str) else None
        hint = f'did you mean "{meant}"? ' if meant else ""
        choices = ", ".join(f'"{word}"' for word in words)
        fix = _ANOTHER_NAME if is_column(value) else f"{hint}It is one of {choices}."
        self.refuse(f"{self._use(name)} can't be {value!r}.", None, fix)
        return otherwise

    def _use(self, name: str | None) -> str:
        return f"{self._function}({'...' if name is None else f'..., {name}=...'})"


# What a Column was meant to be where an option stands.
_ANOTHER_NAME = "for an aggregate, choose another name: this one is an option's."
