"""Finding the pipeline, or the function, that `MODULE:NAME` names."""

from __future__ import annotations

import hashlib
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
    if not name or name.startswith("."):
        raise PipelineNotFoundError(
            f"`{target}` names no module.",
            why="There is no package here that a name could be relative to." if name else None,
            fix="write it as package.module:pipeline or path/to/file.py:pipeline.",
        )
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

    if not path.is_file():
        raise PipelineNotFoundError(f"there is no file {path}.", fix="check the path; it is relative to this folder.")
    whole = path.resolve()
    if str(whole.parent) not in sys.path:
        # As `python path/to/file.py` finds what lies beside the file; but last, so that it hides nothing.
        sys.path.append(str(whole.parent))
    # A name that no import can ask for: `json.py` must not become everybody's `json`.
    name = f"{path.stem.replace('.', '_')}-{hashlib.sha256(str(whole).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    # Workers of Python functions do not find modules that lie anywhere: their functions travel whole.
    for each in (module, *_beside(whole.parent)):
        register_pickle_by_value(each)  # type: ignore[no-untyped-call]
    return module


def _beside(folder: Path) -> list[ModuleType]:
    """The modules and packages that were imported from a folder, unless workers find them there: they run in ours."""
    if folder == Path.cwd().resolve():
        return []
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or "." in name:
            continue
        place = Path(file)
        if folder == (place.parent.parent if place.name == "__init__.py" else place.parent):
            found.append(module)
    return found
