"""Where Headrace keeps things on this machine: one folder for caches, one for the state of each project."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_dir() -> Path:
    """The per-user cache: resolved jars and the compiled kernel. Safe to delete; `HEADRACE_CACHE` moves it.

    >>> import os; os.environ["HEADRACE_CACHE"] = "/tmp/headrace-cache"
    >>> str(cache_dir())
    '/tmp/headrace-cache'
    """
    override = os.environ.get("HEADRACE_CACHE")
    if override:
        return Path(override)
    return _xdg("XDG_CACHE_HOME", ".cache") / "headrace"


def state_dir(project: Path | None = None) -> Path:
    """The state of one project: broker data, checkpoints, progress. `HEADRACE_STATE` moves it.

    Two checkouts of the same project do not share state: the folder's name carries a hash of the project's path.

    >>> import os; os.environ["HEADRACE_STATE"] = "/tmp/headrace-state"
    >>> str(state_dir())
    '/tmp/headrace-state'
    """
    override = os.environ.get("HEADRACE_STATE")
    if override:
        return Path(override)
    root = project_root() if project is None else project.resolve()
    digest = hashlib.sha256(str(root).encode()).hexdigest()[:8]
    return _xdg("XDG_STATE_HOME", ".local/state") / "headrace" / f"{root.name or 'root'}-{digest}"


def project_root(start: Path | None = None) -> Path:
    """The nearest folder upwards that looks like a project (has pyproject.toml or .git), else `start` itself."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "pyproject.toml").exists() or (folder / ".git").exists():
            return folder
    return here


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable)
    # The XDG specification says that a relative path is to be ignored.
    if value and Path(value).is_absolute():
        return Path(value)
    return Path.home() / default
