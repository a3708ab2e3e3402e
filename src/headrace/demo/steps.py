"""The steps before the show, each with what it is doing and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

_LINE_SECONDS = 2.0


class Steps:
    """Prints one line per step; while it runs a terminal shows what it does, and a log now and then.

    >>> with Steps(Console(quiet=True)).step("topics") as progress:
    ...     progress("transactions and 6 outputs")
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Runs a step. What is given to the function last is shown with the finished step."""
        began = time.monotonic()
        said = [""]
        if self._console.is_terminal:
            with self._console.status(name) as status:

                def show(message: str) -> None:
                    said[0] = message
                    status.update(Text.assemble(f"{name}  ", (message, "dim")))

                yield show
        else:
            spoke = [began]

            def tell(message: str) -> None:
                new = message != said[0]
                said[0] = message
                if new and time.monotonic() - spoke[0] >= _LINE_SECONDS:
                    spoke[0] = time.monotonic()
                    self._console.print(f"  {message}", soft_wrap=True, highlight=False, markup=False)

            yield tell
        took = time.monotonic() - began
        done = Text.assemble(("✓ " if not self._console.options.ascii_only else "ok ", "green"), f"{name:<8} ")
        done.append(f"{said[0]} ({took:.1f} s)", "dim")
        self._console.print(done, soft_wrap=True, highlight=False)
