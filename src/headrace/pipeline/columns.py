"""What a Spark Column refers to, read from its expression tree without importing Spark.

Columns made before a session exists are those of Spark Connect (see `headrace.deferred`): trees of Python objects, told
apart here by the names of their classes. SQL text is read by `sql_columns`. A classic Column lives in the JVM: of it
nothing is known before the pipeline runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.pipeline.sql_columns import FUNCTIONS_WITHOUT_PARENTHESES, Unreadable, sql_paths

# Expressions that refer to nothing themselves: what they use is what their children use.
_TRANSPARENT = frozenset(
    {
        "CallFunction",
        "CaseWhen",
        "CastExpression",
        "ColumnAlias",
        "CommonInlineUserDefinedFunction",
        "DropField",
        "LambdaFunction",
        "LiteralExpression",
        "NamedArgumentExpression",
        "SortOrder",
        "UnresolvedExtractValue",
        "UnresolvedFunction",
        "UnresolvedNamedLambdaVariable",
        "WindowExpression",
        "WithField",
    }
)
_CALL = re.compile(r"\s*(\w+)\s*\([^()]*\)\s*")
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`(?:\.|$)|([^`.]+)(?:\.|$)")


@dataclass(frozen=True)
class Reference:
    """A column that an expression uses, as a path into structs, and the function that it is handed to directly."""

    path: tuple[str, ...]
    function: str | None = None
    in_sql: bool = False
    """Whether it stands in SQL text. A Column says that it means a column."""

    def __str__(self) -> str:
        return ".".join(self.path)

    @property
    def may_be_function(self) -> bool:
        """Whether Spark would take it for a function where there is no such column, as `current_date`."""
        return self.in_sql and len(self.path) == 1 and self.path[0].lower() in FUNCTIONS_WITHOUT_PARENTHESES


def is_column(value: object) -> bool:
    """Whether this is a Spark Column, classic or Connect.

    >>> is_column("amount > 5")
    False
    """
    return any(kind.__name__ == "Column" and kind.__module__.startswith("pyspark.") for kind in type(value).__mro__)


def references(value: object) -> tuple[Reference, ...] | None:
    """The columns that an expression uses, a Column or SQL text: each path once, in the order in which it uses them.

    None if that can't be known before it runs.

    >>> from pyspark.sql import functions as F
    >>> list(map(str, references((F.col("here.lat") > 5) | F.col("`odd name`").isNull())))
    ['here.lat', 'odd name']
    >>> list(map(str, references("amount > 5")))
    ['amount']
    """
    expression = getattr(value, "_expr", None)
    try:
        if isinstance(value, str):
            return tuple(dict.fromkeys(_in_sql(value)))
        if not is_column(value) or expression is None:
            return None
        return tuple(dict.fromkeys(_walk(expression)))
    except Unreadable:
        return None


def plain_name(value: object) -> str | None:
    """The name of a Column that is no more than a top-level name, like `F.col("card_id")`; None for any other value.

    >>> from pyspark.sql import functions as F
    >>> plain_name(F.col("card_id")), plain_name(F.col("amount") * 2)
    ('card_id', None)
    """
    if not is_column(value) or type(getattr(value, "_expr", None)).__name__ != "ColumnReference":
        return None
    found = references(value)
    return found[0].path[0] if found and len(found[0].path) == 1 else None


def called_function(value: object) -> str | None:
    """The function that an expression is a plain call of, in lower case; None if it is anything else, or not known.

    >>> called_function("COUNT(DISTINCT user_id)"), called_function("count(*) / 2")
    ('count', None)
    """
    if isinstance(value, str):
        found = _CALL.fullmatch(value)
        return None if found is None else found[1].lower()
    expression: Any = getattr(value, "_expr", None)
    if not is_column(value) or type(expression).__name__ != "UnresolvedFunction":
        return None
    return str(expression._name).lower()


def expression_text(value: object) -> str:
    """An expression for people to read.

    >>> expression_text("amount > 5")
    'amount > 5'
    """
    text = str(value)
    if not text.startswith("Column<'"):
        return text
    return text[len("Column<'") : -len("'>")].replace("unresolvedstar()", "*")


def _walk(root: Any) -> Iterator[Reference]:
    # No recursion: a chain of a thousand `|` is a tree that is a thousand deep.
    left: list[tuple[Any, str | None]] = [(root, None)]
    while left:
        expression, function = left.pop()
        kind = type(expression).__name__
        path = _path(expression)
        if path is not None:
            yield Reference(path, function)
        elif kind == "SQLExpression":
            yield from _in_sql(expression._expr)
        elif kind == "UnresolvedStar" and expression._unparsed_target is not None:
            yield Reference(_parts(expression._unparsed_target.removesuffix(".*")))
        elif kind in _TRANSPARENT:
            inner = expression._name if kind == "UnresolvedFunction" else None
            left += [(child, inner) for child in reversed(expression.children)]
        else:
            raise Unreadable


def _in_sql(text: str) -> Iterator[Reference]:
    paths = sql_paths(text)
    if paths is None:
        raise Unreadable
    for path in paths:
        yield Reference(path, in_sql=True)


def _path(expression: Any) -> tuple[str, ...] | None:
    """The path of a column (`here.lat`) or of a field taken from it (`here["lat"]`); None for any other expression."""
    fields: list[str] = []
    while type(expression).__name__ == "UnresolvedExtractValue":
        field = getattr(expression._extraction, "_value", None)
        if not isinstance(field, str):
            return None
        fields.append(field)
        expression = expression._child
    if type(expression).__name__ != "ColumnReference":
        return None
    return (*_parts(expression._unparsed_identifier), *reversed(fields))


def _parts(identifier: str) -> tuple[str, ...]:
    """The parts of a dotted name, with backticks around what has a dot of its own."""
    parts: list[str] = []
    at = 0
    while at < len(identifier):
        found = _NAME_PART.match(identifier, at)
        if found is None:
            raise Unreadable
        quoted, plain = found.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        at = found.end()
    if not parts:
        raise Unreadable
    return tuple(parts)
