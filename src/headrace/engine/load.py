"""Finding the pipeline, or the function, that `MODULE:NAME` names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.errors import PipelineNotFoundError, closest
from headrace.pipeline import Pipeline


def load_pipeline(target: str) -> Pipeline:
    """Import the module (dotted name, or path of a .py file) and give the pipeline of that name.

    >>> load_pipeline("json:fraud")
    Traceback (most recent call last):
    headrace.errors.PipelineNotFoundError: module `json` has no pipeline.
      Fix: create one at module level: fraud = hr.Pipeline("fraud")
    """
    module_name, _, name = target.partition(":")
    # As `python -m` does: a project's own modules are found from its folder.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _import(module_name, target)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if not name and len(found) == 1:
        return next(iter(found.values()))
    named = getattr(module, name, None) if name else None
    if isinstance(named, Pipeline):
        return named
    if not found:
        raise PipelineNotFoundError(
            f"module `{module_name}` has no pipeline.",
            fix=f'create one at module level: {name or "fraud"} = hr.Pipeline("{name or "fraud"}")',
        )
    near = closest(name, found) or next(iter(found))
    raise PipelineNotFoundError(
        f"module `{module_name}` has no pipeline `{name}`."
        if name
        else f"module `{module_name}` has several pipelines.",
        why=f"Pipelines there: {', '.join(found)}",
        fix=f"{module_name}:{near}",
    )


def load_function(target: str) -> Callable[..., Any]:
    """The function that `MODULE:NAME` names.

    >>> load_function("json:dumps")({"a": 1})
    '{"a": 1}'
    """
    module_name, _, name = target.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found = getattr(_import(module_name, target), name, None) if name else None
    if not callable(found):
        raise PipelineNotFoundError(
            f"module `{module_name}` has no function `{name}`.", fix="write it as package.module:function."
        )
    function: Callable[..., Any] = found
    return function


def _import(name: str, target: str) -> ModuleType:
    if name.endswith(".py"):
        return _import_file(Path(name))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        # A module that the user's module needs is another matter: its own message says it best.
        if missing.name is None or not (name == missing.name or name.startswith(missing.name + ".")):
            raise
        raise PipelineNotFoundError(
            f"there is no module `{missing.name}`.",
            why=f"`{target}` was looked for from the folder {Path.cwd().name}/ and on Python's path.",
            fix="run from the project's folder, and write it as package.module:pipeline or path/to/file.py:pipeline.",
        ) from None


def _import_file(path: Path) -> ModuleType:
    from pyspark.cloudpickle import register_pickle_by_value

    if not path.exists():
        raise PipelineNotFoundError(f"there is no file {path}.", fix="check the path; it is relative to this folder.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    # Workers of Python functions do not find a module that lies anywhere: its functions travel whole.
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
