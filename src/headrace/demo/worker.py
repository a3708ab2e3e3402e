"""The demo's own processes: the sender and the collector run apart, so that drawing the view never delays a timestamp.

A worker reads commands from its standard input and writes reports to its standard output, one JSON object per line.
When its standard input ends, its owner is gone, and it ends at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.errors import RunError

Report = dict[str, Any]
_STOP = b"stop\n"


class Worker:
    """A worker as its owner sees it: it runs `module`, and `on_report` gets its reports, on a thread apart."""

    def __init__(
        self,
        module: str,
        options: dict[str, object],
        on_report: Callable[[Report], None],
        *,
        folder: Path,
        console: Path,
    ) -> None:
        self._name = module.rpartition(".")[2]
        self._console = console
        self._on_report = on_report
        self._failure: Exception | None = None
        self._stopping = False
        with console.open("wb") as errors:
            # In a session of its own: Ctrl-C in the terminal is for the demo alone, which stops things in order.
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(options)],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"{self._name}-reports", daemon=True)
        self._reader.start()

    def check(self) -> None:
        """Raises if the worker ended by itself, or if a report of it could not be taken."""
        if self._failure is not None:
            raise self._failure
        if self._process.poll() is not None and not self._stopping:
            raise self._ended()

    def stop(self, deadline_seconds: float) -> None:
        """Asks it to finish and waits for its last report; ends it by force after the deadline."""
        if not self._stopping and self._process.poll() is None:
            self._stopping = True
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it ended in this very moment, and its return code says how
                self._process.stdin.write(_STOP)
                self._process.stdin.flush()
        try:
            self._process.wait(deadline_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()
        if self._failure is not None:
            raise self._failure
        if self._process.returncode != 0:
            raise self._ended()

    def kill(self) -> None:
        """Ends it by force, at any time."""
        self._stopping = True
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._on_report(json.loads(line))
            except Exception as failure:  # noqa: BLE001 - raised in the main thread, by `check` or `stop`
                self._failure = failure
                self._process.kill()
                return

    def _ended(self) -> RunError:
        return RunError(
            f"the demo's {self._name} ended with code {self._process.returncode}.",
            why=tail(self._console),
            fix=f"all that it said is in {self._console}",
        )


class Owner:
    """The owner as a worker sees it: reports go to it, and `stopping` is set when it asks to finish."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        threading.Thread(target=self._listen, name="owner", daemon=True).start()

    def report(self, report: Report) -> None:
        """Writes one line."""
        sys.stdout.write(json.dumps(report, separators=(",", ":")) + "\n")
        sys.stdout.flush()

    def _listen(self) -> None:
        # Not through `sys.stdin`: a thread that waits inside it breaks the interpreter's own ending.
        while command := os.read(0, 64):
            if command == _STOP:
                self.stopping.set()
        # Nothing to finish for: nobody reads the reports any more.
        os._exit(0 if self.stopping.is_set() else 1)


def tail(file: Path, lines: int = 15) -> str:
    """The last lines of a text file, for an error message; a sentence if there are none.

    >>> tail(Path("no-such-file.log"))
    'It has said nothing yet.'
    """
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return "\n".join(text.rstrip().splitlines()[-lines:]) or "It has said nothing yet."
