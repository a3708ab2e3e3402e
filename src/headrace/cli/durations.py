"""Spans of time on the command line."""

from __future__ import annotations

import typer

from headrace.errors import InvalidDurationError
from headrace.pipeline.durations import parse_duration


def milliseconds(text: str, option: str, *, zero: bool = False) -> int:
    """The span that an option gives; zero only if it may be.

    >>> milliseconds("1h30m", "--retry-for")
    5400000
    """
    try:
        return parse_duration(text, zero=zero)
    except InvalidDurationError as problem:
        fix = "Write a number and a unit (ms, s, m, h, d), like 500ms, 30s or 1h30m."
        raise typer.BadParameter(f"{problem.what} {fix}", param_hint=option) from problem
