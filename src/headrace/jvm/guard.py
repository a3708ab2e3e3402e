"""Stands between an owner and a child process, so that the child never outlives the owner, however the owner dies.

    python -I -S guard.py OWNER_PID GRACE_SECONDS COMMAND...

The guard starts the command, writes its pid as one line to standard output, and waits. When the owner is gone the guard
stops the command (SIGTERM, and SIGKILL after the grace time). It sees that in two ways: its standard input, a pipe that
only the owner holds, ends; or its parent is another process, for the case that a fork of the owner keeps the pipe open.
If the guard itself is killed, Linux kills the command (PR_SET_PDEATHSIG). The owner does not ask for that signal itself
because it comes when the starting *thread* ends, and an owner may start things from a thread; the guard has one thread.

This file is run by its path and imports nothing of Headrace, to start in an instant.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from types import FrameType
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5


def main(arguments: list[str]) -> int:
    """Runs the command until it ends or the owner is gone. Returns the command's exit code."""
    owner, grace, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    signal.signal(signal.SIGTERM, _leave)
    guard = os.getpid()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=lambda: _die_with(guard))
    try:
        with sys.stdout as reply:
            reply.write(f"{child.pid}\n")
        while child.poll() is None and _owner_lives(owner):
            pass
    finally:
        _stop(child, grace)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _owner_lives(owner: int) -> bool:
    """Waits a moment, then says whether the owner is still there. Returns at once when the pipe ends."""
    ready, _, _ = select.select([sys.stdin], [], [], _POLL_SECONDS)
    if ready and not os.read(sys.stdin.fileno(), 1):
        return False
    return os.getppid() == owner


def _stop(child: subprocess.Popen[bytes], grace: float) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(grace)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _die_with(guard: int) -> None:
    """In the child, before it becomes the command: asks Linux to kill it when the guard dies."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it died before the request
        os._exit(1)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
