"""The line of the user's own code that declared a step."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headrace.errors import Location

UNKNOWN = Location("<unknown>", 0)

_PACKAGE = Path(__file__).parents[1]
# The folders whose functions users call to declare something.
_OURS = tuple(str(_PACKAGE / folder) + os.sep for folder in ("pipeline", "sinks"))


def caller_location() -> Location:
    """The nearest line on the stack that is the user's own; its path is relative if it is below the working folder.

    >>> str(caller_location())
    '<doctest headrace.pipeline.location.caller_location[0]>:1'
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OURS):
        if frame.f_back is None:
            return UNKNOWN
        frame = frame.f_back
    return Location(shown_path(frame.f_code.co_filename), frame.f_lineno)


def shown_path(file: str) -> str:
    """A file as messages name it: relative if it is below the working folder.

    >>> shown_path(str(Path.cwd() / "jobs" / "fraud.py")), shown_path("/elsewhere/fraud.py")
    ('jobs/fraud.py', '/elsewhere/fraud.py')
    """
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return file
