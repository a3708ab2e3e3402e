"""Pieces of SQL: names and texts as Spark's parser takes them, and what records are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Path = tuple[str, ...]
"""A column, and the fields of structs on the way into it."""


def name(of: str) -> str:
    """A name, whatever is in it.

    >>> name("a`b c")
    '`a``b c`'
    """
    return f"`{of.replace('`', '``')}`"


def path(of: Path) -> str:
    """A column, or a field in it.

    >>> path(("here", "lat"))
    '`here`.`lat`'
    """
    return ".".join(map(name, of))


def text(of: str) -> str:
    r"""A text, whatever is in it.

    >>> print(text("it's a \\"))
    'it\'s a \\'
    >>> print(text("\n"))
    '\n'
    """
    escaped = of.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def struct(fields: Mapping[str, str]) -> str:
    """A struct of expressions by name.

    >>> struct({"id": "a", "at": "b"})
    "named_struct('id', a, 'at', b)"
    """
    listed = ", ".join(f"{text(field)}, {expression}" for field, expression in fields.items())
    return f"named_struct({listed})"


def case(cases: Sequence[tuple[str, str]], otherwise: str | None = None) -> str:
    """The value of the first case whose condition holds.

    >>> case([("a > 1", "b")])
    'CASE WHEN a > 1 THEN b END'
    >>> case([("a > 1", "b")], "c")
    'CASE WHEN a > 1 THEN b ELSE c END'
    """
    last = "" if otherwise is None else f" ELSE {otherwise}"
    return f"CASE {' '.join(f'WHEN {condition} THEN {value}' for condition, value in cases)}{last} END"


def text_bytes(expression: str) -> str:
    """A value as the bytes of its text.

    >>> text_bytes("a")
    'CAST(CAST(a AS STRING) AS BINARY)'
    """
    return f"CAST(CAST({expression} AS STRING) AS BINARY)"


def header(key: str, value: str) -> str:
    """A header of a record; its value is bytes.

    >>> header("headrace-id", "a")
    "named_struct('key', 'headrace-id', 'value', a)"
    """
    return struct({"key": text(key), "value": value})
