"""What Spark says of a user's expression, told with the line where the user wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from pyspark.errors import AnalysisException
from pyspark.sql.types import BooleanType, DataType, NullType

from headrace.errors import InvalidExpressionError, PipelineError, UnknownColumnError
from headrace.pipeline.column_checks import suggestion
from headrace.pipeline.nodes import Node, Where
from headrace.pipeline.plan import label


class Rows(Protocol):
    """What has columns: a DataFrame, say."""

    @property
    def columns(self) -> Iterable[str]:
        """Their names. A DataFrame asks the JVM for them."""


@contextmanager
def expressions_of(step: Node, rows: Rows) -> Iterator[None]:
    """Inside, the expressions of a step are given to Spark, which resolves them on the columns of these rows."""
    try:
        yield
    except AnalysisException as problem:
        raise _explained(problem, step, [c for c in rows.columns if not c.startswith("__hr_")]) from problem


def unknown_column(step: Node, name: str, columns: Sequence[str]) -> UnknownColumnError:
    """The error for a column that could not be looked for before the step before it had run."""
    what = f"{label(step)} uses column `{name}`, which is not there."
    return UnknownColumnError(what, fix=suggestion(name, columns, "Columns here"), location=step.location)


def spelled(name: str, columns: Iterable[str]) -> str | None:
    """The column of that name, in any case, as its rows write it.

    >>> spelled("Card", ["card", "amount"])
    'card'
    """
    return next((column for column in columns if column.lower() == name.lower()), None)


def check_condition(step: Where, type: DataType) -> None:
    """Refuse a condition that is not true or false: Spark would complain of the expressions that are made with it."""
    if not isinstance(type, BooleanType | NullType):
        raise InvalidExpressionError(
            f"{label(step)} has a condition of type {type.simpleString()}, not boolean.",
            fix="give it what is true or false of a row, as a comparison is.",
            location=step.location,
        )


def _explained(problem: AnalysisException, step: Node, columns: list[str]) -> PipelineError:
    if (problem.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        name = (problem.getMessageParameters() or {}).get("objectName", "").replace("`", "")
        return unknown_column(step, name, columns)
    return InvalidExpressionError(
        f"Spark can't take what {label(step)} was given.",
        why=_sentence(str(problem.getMessage())),
        fix=f"change it. Columns here: {', '.join(columns)}",
        location=step.location,
    )


def _sentence(message: str) -> str:
    """Spark's words without its codes, and without the plan and the place in the text that it adds.

    >>> _sentence("[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 8)")
    'Syntax error at or near end of input.'
    """
    first = message.strip().split("\n")[0]
    return re.sub(r"\s*SQLSTATE: .*$", "", re.sub(r"^\[[\w.]+\]\s*", "", first))[:500]
