"""Starts long-lived processes: attached to this one (they die with it) or detached (they stay)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import EnvironmentProblem

_GUARD = Path(__file__).with_name("guard.py")
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ChildProcess:
    """A process that was started here, in a session of its own: Ctrl-C in a terminal passes it by."""

    pid: int
    attached: bool
    _handle: subprocess.Popen[bytes]
    _grace: float

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._handle.poll() is None

    def stop(self) -> None:
        """Asks it to end, and ends it by force after the grace time. Returns when it is gone."""
        if self.alive():
            self._handle.terminate()  # the guard of an attached process passes it on
        try:
            # The guard needs the whole grace time for itself.
            self._handle.wait(self._grace + (5 if self.attached else 0))
        except subprocess.TimeoutExpired:
            self._handle.kill()
            self._handle.wait()
            with contextlib.suppress(ProcessLookupError):  # on Linux it died with its guard
                os.kill(self.pid, signal.SIGKILL)
        if self._handle.stdin is not None:
            self._handle.stdin.close()


def start_attached(command: Sequence[str], *, folder: Path, console: Path, grace: float = 20) -> ChildProcess:
    """Starts a command that ends when this process ends, in any way, SIGKILL included (see guard.py).

    >>> sleeper = start_attached(["sleep", "60"], folder=Path("/"), console=Path(os.devnull))
    >>> sleeper.alive(), sleeper.stop(), sleeper.alive()
    (True, None, False)
    """
    with console.open("wb") as output:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(grace), *command],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    assert guard.stdout is not None
    with guard.stdout as reply:
        line = reply.readline()
    if not line:
        guard.wait()
        raise EnvironmentProblem(
            f"`{command[0]}` can't be started.",
            why=console.read_text(encoding="utf-8", errors="replace").strip(),
            fix="check that the file is there and may be executed",
        )
    return ChildProcess(pid=int(line), attached=True, _handle=guard, _grace=grace)


def start_detached(command: Sequence[str], *, folder: Path, console: Path, grace: float = 20) -> ChildProcess:
    """Starts a command that stays when this process ends.

    >>> sleeper = start_detached(["sleep", "60"], folder=Path("/"), console=Path(os.devnull))
    >>> sleeper.alive(), sleeper.stop(), sleeper.alive()
    (True, None, False)
    """
    with console.open("wb") as output:
        child = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    return ChildProcess(pid=child.pid, attached=False, _handle=child, _grace=grace)


def command_line(pid: int) -> str:
    """The command line of a process, empty if there is none (a zombie has none either). A pid alone may be another's.

    >>> "python" in command_line(os.getpid())
    True
    """
    if sys.platform.startswith("linux"):
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            return ""
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    listed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return "" if "<defunct>" in listed.stdout else listed.stdout.strip()


def stop_process(pid: int, token: str, grace: float = 20) -> None:
    """Stops a process of somebody else, but only while its command line holds the token. Returns when it is gone.

    >>> sleeper = start_detached(["sleep", "61.5"], folder=Path("/"), console=Path(os.devnull))
    >>> stop_process(sleeper.pid, "61.5"); sleeper.alive()
    False
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        sent = False
        while _lives(pid, token):
            # Not before the loop: a process that is just being started has no command line for a moment.
            if not sent and token in command_line(pid):
                with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
                    os.kill(pid, number)
                sent = True
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            return
    raise EnvironmentProblem(
        f"process {pid} does not end, even when killed.",
        why="It may be waiting for a disk that does not answer.",
        fix=f"look at it with: ps -fp {pid}",
    )


def _lives(pid: int, token: str) -> bool:
    said = command_line(pid)
    return token in said if said else _exiting(pid)


def _exiting(pid: int) -> bool:
    """Whether a process without a command line still has threads: it may hold its locks and ports for a moment yet."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X") or threads > 1
