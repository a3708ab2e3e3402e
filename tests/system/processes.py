"""`headrace` as a user starts it: a process of its own, of which nothing may be left when it has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.system.running import wait_for

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE = 300.0  # the first run on a machine fetches jars and compiles the kernel


class Headrace:
    """A `headrace` command that runs, with all the processes that it starts."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out = folder / "stdout.txt"
        self._err = folder / "stderr.txt"
        inherited = {name: value for name, value in os.environ.items() if name != "HEADRACE_BOOTSTRAP"}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", *words],
                cwd=PROJECT,
                env={**inherited, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def members(self) -> list[int]:
        """The processes of its session that are still there: a guarded child, a JVM, itself."""
        listed = subprocess.run(
            ["ps", "-e", "-o", "pid=,sid=,stat="], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split() for line in listed.splitlines()]
        return [int(pid) for pid, session, state in rows if int(session) == self.process.pid and state[0] != "Z"]

    def until_told(self, text: str) -> None:
        """Until it has printed that, on either stream."""
        wait_for(lambda: text in self.out + self.err or self.process.poll() is not None, repr(text), DEADLINE)
        assert text in self.out + self.err, f"it ended with {self.process.returncode}: {self.err}"

    def kill(self) -> None:
        """Kills the command's own process, and nothing else: what it started has to see for itself."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE)

    def interrupt(self) -> None:
        """What Ctrl-C does: the terminal sends the signal to everything in the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def until_gone(self) -> None:
        wait_for(lambda: not self.members(), "every process to be gone", 60)

    def end(self) -> None:
        """Clears up after a test, whatever has happened in it."""
        deadline = time.monotonic() + 30
        while self.members() and time.monotonic() < deadline:
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):  # it may have ended by itself since it was listed
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        self.process.wait(30)


def headrace(folder: Path, *words: str, **environment: str) -> Headrace:
    """Runs a command to its end."""
    command = Headrace(folder, *words, **environment)
    try:
        command.process.wait(DEADLINE)
    finally:
        command.end()
    return command
