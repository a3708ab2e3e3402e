"""Functions given to `.apply`: what goes wrong in them is told with their line, and what they do in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, InvalidExpressionError, UnsupportedModeError, UnsupportedStepError
from headrace.pipeline.nodes import Apply

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class PythonWork:
    """What Spark hands to Python workers, and the step that asks for it."""

    name: str
    step: Apply

    @property
    def what(self) -> str:
        """In a sentence."""
        return f"the function given to .apply(...) at {self.step.location} uses {self.name}"

    def refusal(self, pipeline: str) -> UnsupportedModeError:
        """The error for real time, in which Spark has no Python."""
        return UnsupportedModeError(
            f"the function given to .apply(...) uses {self.name}, which can't run in real time.",
            why="A row that goes through Python waits for the end of its batch there, so Spark does not allow it.",
            fix="write it with Spark's own functions, or run with --mode microbatch (auto stays there).",
            location=self.step.location,
            pipeline=pipeline,
        )


def applied_function(step: Apply, rows: DataFrame) -> DataFrame:
    """What the user's function makes of the rows."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame as AnyDataFrame

    try:
        made = step.function(rows)
    except (HeadraceError, AnalysisException):
        raise  # what Spark says of an expression is explained where that of all steps is
    except Exception as problem:
        said = str(problem).partition("\n")[0]
        raise InvalidExpressionError(
            "the function given to .apply(...) failed.",
            why=f"{type(problem).__name__}: {said}{_place(problem)}",
            fix="mend it; it is called with a DataFrame whenever queries start, before they read a row.",
            location=step.location,
        ) from problem
    if not isinstance(made, AnyDataFrame):
        raise UnsupportedStepError(
            f"the function given to .apply(...) gave {made!r}, not a DataFrame.",
            why="What it gives are the rows of the next step." + (" Is a `return` missing?" if made is None else ""),
            fix="return the DataFrame that it makes of the one it gets.",
            location=step.location,
        )
    return made


def _place(problem: BaseException) -> str:
    """Where in the user's code it happened: the innermost line that is not of a library."""
    trace, found = problem.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and "site-packages" not in file:
            found = f"\nat {file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
