"""What SQL text refers to, read without Spark.

sqlglot parses it as Spark would. Text that it can't follow, or that could mean something else to Spark, is left to
Spark: nothing may be refused here that Spark would take. The examples of all of Spark's own functions are the test.
"""

from __future__ import annotations

from collections.abc import Iterator
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


@lru_cache(maxsize=1024)
def sql_paths(text: str) -> tuple[Path, ...] | None:
    """The columns that an expression in SQL uses, each once; None if only Spark can tell.

    >>> sql_paths("amount > 5 AND `home`.city = upper(city)")
    (('amount',), ('home', 'city'), ('city',))
    >>> sql_paths("exists(items, item -> item.price > amount)")
    (('items',), ('amount',))
    >>> print(sql_paths("amount >"))
    None
    """
    parsed = _parsed(text)
    if parsed is None:
        return None
    try:
        return tuple(dict.fromkeys(_walk(parsed)))
    except _Unknown:
        return None


class _Unknown(Exception):
    """Ends the walk of a tree that can't be followed."""


def _parsed(text: str) -> exp.Expr | None:
    # Imported when SQL text is used: it takes a moment, and most pipelines have Columns.
    import sqlglot
    from sqlglot import errors, exp

    try:
        # Alone, a column called `show` or `set` would be the begin of a statement. The line breaks end comments.
        found = sqlglot.parse(f"SELECT (\n{text}\n)", dialect="spark")
    except (errors.SqlglotError, RecursionError):
        return None
    select = found[0] if len(found) == 1 else None
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or set(_given(select)) != {"expressions"}:
        return None
    inside = select.expressions[0]
    return inside.this if isinstance(inside, exp.Paren) else None


def _given(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value]


def _walk(node: exp.Expr) -> Iterator[Path]:
    from sqlglot import exp

    path = _path(node)
    if path is not None:
        yield path
        return
    if isinstance(node, exp.Query | exp.Table | exp.Command | exp.Parameter | exp.Placeholder | exp.Star):
        if not isinstance(node.parent, exp.Count):
            raise _Unknown
        return
    for child in node.iter_expressions():
        yield from _walk(child)


def _path(node: exp.Expr) -> Path | None:
    """The path of a column (`here.lat`) or of a field taken from it (`here['lat']`); None for any other expression."""
    from sqlglot import exp

    match node:
        case exp.Column():
            if not all(isinstance(part, exp.Identifier) for part in node.parts):
                raise _Unknown
            return tuple(part.name for part in node.parts)
        case exp.Dot(expression=exp.Identifier()):
            outer = _path(node.this)
            return None if outer is None else (*outer, node.expression.name)
        case exp.Bracket(expressions=[exp.Literal(is_string=True) as field]):
            outer = _path(node.this)
            return None if outer is None else (*outer, field.name)
    return None
