"""What SQL text refers to, read without Spark.

sqlglot parses it as Spark would. Text that it can't follow, or that could mean something else to Spark, is left to
Spark: nothing may be refused here that Spark would take. The examples of all of Spark's own functions are the test.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

Path = tuple[str, ...]
"""A column, and the fields of structs on the way into it."""

FUNCTIONS_WITHOUT_PARENTHESES = frozenset(
    {
        *("current_date", "current_time", "current_timestamp", "localtime"),
        *("current_user", "session_user", "user", "current_path"),
    }
)
"""Names that Spark takes for a function where there is no such column."""

_UNITS = frozenset(
    {
        *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR"),
        *("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"),
    }
)


class Unreadable(Exception):
    """Ends the walk of an expression that can't be followed."""


@lru_cache(maxsize=1024)
def sql_paths(text: str) -> tuple[Path, ...] | None:
    """The columns that an expression in SQL uses, each once; None if only Spark can tell.

    >>> sql_paths("amount > 5 AND `home`.city = upper(city)")
    (('amount',), ('home', 'city'), ('city',))
    >>> sql_paths("exists(items, Item -> item.price > amount)")
    (('items',), ('amount',))
    >>> print(sql_paths("amount >"))
    None
    """
    parsed = _parsed(text)
    if parsed is None:
        return None
    try:
        return tuple(dict.fromkeys(_walk(parsed)))
    except Unreadable:
        return None


def _parsed(text: str) -> exp.Expr | None:
    # Imported when SQL text is used: it takes a moment, and most pipelines have Columns.
    import sqlglot
    from sqlglot import exp

    try:
        # Alone, a column called `show` or `set` would be the begin of a statement. The line breaks end comments.
        with _quietly("sqlglot"):
            found = sqlglot.parse(f"SELECT (\n{text}\n)", dialect="spark")
    except Exception:  # noqa: BLE001 - a text that Spark does not take may break the parser in its own ways, too
        return None
    select = found[0] if len(found) == 1 else None
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or set(_given(select)) != {"expressions"}:
        return None
    inside = select.expressions[0]
    return inside.this if isinstance(inside, exp.Paren) else None


@contextmanager
def _quietly(name: str) -> Iterator[None]:
    """Inside, a logger says nothing of what this thread does: what Spark takes is no reason for a warning."""
    logger, here = logging.getLogger(name), threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger.addFilter(of_others)
    try:
        yield
    finally:
        logger.removeFilter(of_others)


def _given(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value]


def _walk(root: exp.Expr) -> Iterator[Path]:
    from sqlglot import exp

    # No recursion: a chain of a thousand ORs is a tree that is a thousand deep.
    left: list[tuple[exp.Expr, frozenset[str]]] = [(root, frozenset())]
    while left:
        node, variables = left.pop()
        path = _path(node)
        if path is not None:
            # sqlglot has taken out the variables of lambdas that are written alike; to Spark case makes no difference.
            if path[0].lower() not in variables:
                yield path
            continue
        if not _is_readable(node):
            raise Unreadable
        if isinstance(node, exp.Lambda):
            variables |= {parameter.name.lower() for parameter in node.expressions}
        left += [(child, variables) for child in reversed(_operands(node))]


def _is_readable(node: exp.Expr) -> bool:
    """Whether its columns are those of its operands."""
    from sqlglot import exp

    match node:
        case exp.Star():
            return isinstance(node.parent, exp.Count)
        case exp.Any():
            return isinstance(node.this, exp.Paren | exp.Tuple)  # or else it is a column called `any`
        case exp.Aliases():
            return not isinstance(node.this, exp.Column)  # or else it is a call of a function called `end`
    return not isinstance(node, exp.Query | exp.Table | exp.Command | exp.Parameter | exp.Placeholder)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    from sqlglot import exp

    match node:
        case exp.DataType():
            return []  # it may name a collation
        case exp.Collate():
            return [node.this]
        case exp.Anonymous(expressions=[exp.Column() as unit, _, _]) if node.name.lower() == "timediff":
            return node.expressions[1 if unit.sql().upper() in _UNITS else 0 :]
    return list(node.iter_expressions())


def _path(node: exp.Expr) -> Path | None:
    """The path of a column (`here.lat`) or of a field taken from it (`here['lat']`); None for any other expression."""
    from sqlglot import exp

    fields: list[str] = []
    while True:
        match node:
            case exp.Column():
                return (*_names(node), *reversed(fields))
            case exp.Dot(expression=exp.Identifier() as field):
                fields.append(field.name)
            case exp.Bracket(expressions=[exp.Literal(is_string=True) as field]):
                fields.append(field.name)
            case _:
                return None
        node = node.this


def _names(column: exp.Column) -> Path:
    from sqlglot import exp

    for part in column.parts:
        # `not IS NULL` is of a column called `not`; sqlglot reads one called `is`.
        if not isinstance(part, exp.Identifier) or (not part.quoted and part.name.lower() == "is"):
            raise Unreadable
    return tuple(part.name for part in column.parts)
