"""A test that is stuck: what it waits for is told, and the process is ended, so that a run never hangs.

Ended, not failed: an exception in a test that is stuck would first run its clean-up, which may be stuck as well. What
it started ends by itself (see `headrace.jvm.guard`). What `pytest-timeout` tells is lost in a worker of xdist.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.jvm.java import find_java

_stderr = 2


def say_on_this_stderr() -> None:
    """What stands for standard error now; while a test runs, pytest has put a file in its place."""
    global _stderr
    _stderr = os.dup(2)


@contextmanager
def ended(what: str, seconds: float) -> Iterator[None]:
    """Ends the process if the block takes longer than that."""
    timer = threading.Timer(seconds, _end, [what, seconds])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(what: str, seconds: float) -> None:
    try:
        _say(f"\n{what} is stuck: it has taken {seconds:g} s. Its threads:\n")
        faulthandler.dump_traceback(_stderr, all_threads=True)
        _say(jvm_threads() + f"\n{what} is stuck; its threads and those of its JVMs are above.\n")
    finally:
        os._exit(1)


def _say(text: str) -> None:
    os.write(_stderr, text.encode())


def jvm_threads() -> str:
    """The stacks of all threads of the JVMs below this process; a sentence for each that does not say."""
    beside = Path(find_java().executable).with_name("jcmd")
    jcmd = str(beside) if beside.exists() else shutil.which("jcmd")
    if jcmd is None:
        return "There is no jcmd on this machine to ask the JVMs for their threads."
    return "\n".join(f"== JVM {pid}\n{_threads(jcmd, pid)}" for pid in _jvms_below(os.getpid())) or "No JVM runs."


def _threads(jcmd: str, pid: int) -> str:
    try:
        said = subprocess.run([jcmd, str(pid), "Thread.print"], capture_output=True, text=True, timeout=15, check=False)
    except subprocess.TimeoutExpired:
        return "It does not answer."
    return said.stdout + said.stderr


def _jvms_below(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    below: set[int] = set()
    more = {pid}
    while more:
        below |= more
        more = {int(child) for child, parent, _ in rows if int(parent) in below} - below
    return [int(child) for child, _, command in rows if int(child) in below and command.strip() == "java"]
