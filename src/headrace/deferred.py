"""Spark's own Columns before there is a Spark session.

A pipeline is declared at the top of a module, where no session exists, and its conditions are Spark's own Columns::

    from pyspark.sql import functions as F
    alerts = activity.where(F.col("count_1m") > 5)

Classic PySpark builds a Column inside the JVM, so `F.col` raises when no session runs. PySpark also ships a pure-Python
Column, that of Spark Connect, and each function of `pyspark.sql.functions` chooses between the two at the moment it is
called, by asking `pyspark.sql.utils.is_remote()`. Importing headrace makes that question answer "remote" to those
functions while no SparkContext exists. The engine turns such Columns into classic ones when it lowers the pipeline.

Why this is safe: it changes only calls that would have raised.

- With an active SparkContext, or under Spark Connect, the answer is PySpark's own.
- Only the dispatch of the functions that return a Column sees another answer. Everything else that asks `is_remote()`
  (sessions, threads, types, pandas, ml) gets PySpark's own answer at all times.
- `udf` and `udtf` are left alone: given their type as a DataType they never needed a session, and what they make must
  stay classic, for use inside `.apply(...)`, where a session runs.

Nothing of PySpark is imported here: if it is not loaded yet, the change waits for its import.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, ModuleType
from typing import Any

_UTILS = "pyspark.sql.utils"

# The decorators of functions that return a Column; each asks `is_remote()` in an inner function called `wrapped`.
_DISPATCHERS = (
    "try_remote_functions",
    "try_partitioning_remote_functions",
    "try_remote_avro_functions",
    "try_remote_protobuf_functions",
)

# Functions behind these decorators that make no Column, and work without a session in classic PySpark.
_SESSION_FREE = frozenset({"udf", "udtf", "arrow_udtf"})


def install() -> None:
    """Let `pyspark.sql.functions` build Columns before a session exists. Calling it again changes nothing.

    >>> install()
    >>> from pyspark.sql import functions as F
    >>> F.col("count_1m") > 5
    Column<'>(count_1m, 5)'>
    """
    utils = sys.modules.get(_UTILS)
    if utils is not None:
        _defer(utils)
    elif not any(isinstance(finder, _UtilsFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _UtilsFinder())


def _defer(utils: ModuleType) -> None:
    original = utils.is_remote
    if hasattr(original, "_headrace_original"):
        return
    dispatchers = frozenset(_inner_code(getattr(utils, name)) for name in _DISPATCHERS)

    def is_remote() -> bool:
        return original() or _needs_no_session(sys._getframe(1), dispatchers)

    is_remote.__doc__ = original.__doc__
    is_remote._headrace_original = original  # type: ignore[attr-defined]  # the mark that it is done
    utils.is_remote = is_remote  # type: ignore[attr-defined]


def _needs_no_session(caller: FrameType, dispatchers: frozenset[CodeType]) -> bool:
    if caller.f_code not in dispatchers:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is None and caller.f_locals["f"].__name__ not in _SESSION_FREE


def _inner_code(decorator: Any) -> CodeType:
    return next(c for c in decorator.__code__.co_consts if isinstance(c, CodeType) and c.co_name == "wrapped")


class _UtilsFinder(MetaPathFinder):
    """Finds `pyspark.sql.utils` as the other finders do, and has it changed right after it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _UTILS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _UtilsLoader(spec.loader)
                return spec
        return None


class _UtilsLoader(Loader):
    """The module's own loader, then the change. It leaves no trace of itself on the module."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _defer(module)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _UtilsFinder)]
