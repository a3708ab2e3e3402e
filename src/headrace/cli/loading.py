"""Loading what `MODULE:NAME` names. What fails in the user's own module is told with its line, not with our frames."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, Location, PipelineError
from headrace.pipeline.location import shown_path

if TYPE_CHECKING:
    from headrace.pipeline.pipeline import Pipeline

# Frames of ours, and of Python's import.
_MACHINERY = (str(Path(__file__).parents[1]) + os.sep, "<frozen importlib")
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = frozenset({"site-packages", "dist-packages"})
# Of a long trace, so many frames are shown: those in which it begins, and those in which it ends.
_FIRST, _LAST = 5, 3


def pipeline_of(target: str) -> Pipeline:
    """The pipeline that `MODULE:PIPELINE` names."""
    from headrace.engine.load import load_pipeline

    with _explained(target):
        return load_pipeline(target)


def function_of(target: str) -> Callable[..., Any]:
    """The function that `MODULE:FUNCTION` names."""
    from headrace.engine.load import load_function

    with _explained(target):
        return load_function(target)


@contextmanager
def _explained(target: str) -> Iterator[None]:
    try:
        yield
    except HeadraceError:
        raise
    except Exception as failure:
        frames = [f for f in traceback.extract_tb(failure.__traceback__) if not f.filename.startswith(_MACHINERY)]
        if not frames and isinstance(failure, OSError):
            raise  # not what the module does, but its own file
        raise _error(target.partition(":")[0], failure, frames) from failure


def _error(module: str, failure: Exception, frames: list[traceback.FrameSummary]) -> PipelineError:
    """What went wrong in a module, at the line of the user's that was the last one to run."""
    own = [place for place, frame in enumerate(frames) if _is_users(frame.filename)] or list(range(len(frames)))
    trace = _shown(frames[own[0] :]) if own else ""
    where = _place(frames[own[-1]].filename, frames[own[-1]].lineno) if own else None
    if _needs_session(failure):
        return PipelineError(
            "this needs a Spark session, and there is none while a pipeline is declared.",
            why="PySpark makes a Python UDF only in a session; the run starts one later.",
            fix="do it in .apply(...), with the UDF made inside of the function;\n"
            "do not make a SparkSession of your own.",
            location=where,
        )
    if isinstance(failure, SyntaxError) and failure.filename is not None:
        where = _place(failure.filename, failure.lineno)
        trace += "".join(traceback.format_exception_only(failure)[:-1])
    fix = "mend the module at that place; --verbose shows the whole trace."
    if isinstance(failure, ModuleNotFoundError) and failure.name is not None:
        fix = f"install what has `{failure.name}` where headrace is installed, or run from the folder that has it."
    what = f"`{module}` can't be loaded: {type(failure).__name__}: {failure}".removesuffix(": ")
    return PipelineError(what, why=trace or None, fix=fix, location=where)


def _is_users(file: str) -> bool:
    return not file.startswith((_STDLIB, "<frozen")) and _INSTALLED.isdisjoint(Path(file).parts)


def _place(file: str, line: int | None) -> Location:
    return Location(shown_path(file), line or 0)


def _needs_session(failure: Exception) -> bool:
    from pyspark.errors import PySparkRuntimeError

    return isinstance(failure, PySparkRuntimeError) and failure.getCondition() == "SESSION_OR_CONTEXT_NOT_EXISTS"


def _shown(frames: list[traceback.FrameSummary]) -> str:
    lines = traceback.format_list(frames)
    if len(lines) > _FIRST + _LAST:
        lines = [*lines[:_FIRST], "  ...\n", *lines[-_LAST:]]
    return "".join(lines)
