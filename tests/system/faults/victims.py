"""What the harness kills, and how each comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from headrace.log.broker import EmbeddedBroker
from tests.system.faults.worker import Job
from tests.system.postgres_server import PostgresServer
from tests.system.processes import PROJECT
from tests.system.running import wait_for


class Victim(Protocol):
    """Something that can die at any moment."""

    name: str

    def kill(self) -> bool:
        """Kill it without a word of warning; False if there was nothing to kill just now."""

    def restore(self) -> None:
        """Bring it back, as whoever looks after it would. Returns when it is there."""

    def ready(self) -> bool:
        """Whether it works again, so that the next blow meets it at work."""


class Driver:
    """The process of the job: Python, and the JVM with it."""

    name = "driver"

    def __init__(self, job: Job, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._starts = 0
        self._process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        self.restore()

    @property
    def batches(self) -> int:
        """Batches since its last start."""
        return sum(1 for line in self.lines if line.startswith("batch"))

    def kill(self) -> bool:
        assert self._process is not None
        # All of its session: a machine that goes down takes the JVM with it in the same moment.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return True

    def restore(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._starts += 1
        self.lines = lines = []
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"worker-{self._starts}.err").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.faults.worker", json.dumps(asdict(self._job))],
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        process = self._process

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.strip())

        threading.Thread(target=read, daemon=True).start()

    def ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:  # a failure that it can't ride out: whoever looks after it starts it again
            self.restore()
        return self.batches > 0

    def last_words(self) -> str:
        """What its last start said, for whoever looks for the reason why it does not work."""
        errors = (self._folder / f"worker-{self._starts}.err").read_text(errors="replace")
        return f"start {self._starts} of the job said {self.lines[-10:]}, and as errors: {errors[-2000:]}"

    def order(self, word: str, answers: tuple[str, ...]) -> str | None:
        """Tell the process something; its answer, or None if it is not there to answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        lines, seen = self.lines, len(self.lines)
        try:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self._process.poll() is None:
            found = next((line for line in lines[seen:] if line.startswith(answers)), None)
            if found is not None:
                return found
            time.sleep(0.01)
        return None

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class Task:
    """A running task of the job: what the death of an executor does to it."""

    name = "task"

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def kill(self) -> bool:
        return (self._driver.order("task", ("killed", "none")) or "none") != "none"

    def restore(self) -> None:
        """Spark does it."""

    def ready(self) -> bool:
        return self._driver.ready()


class Broker:
    """The one node of the log."""

    name = "broker"

    def __init__(self, broker: EmbeddedBroker) -> None:
        assert broker.port is not None, "it must come back where its clients look for it"
        self._broker = broker

    def kill(self) -> bool:
        os.kill(self._broker.pid, signal.SIGKILL)
        running = self._broker
        wait_for(lambda: running._child is None or not running._child.alive(), "the broker to be dead", 20)
        return True

    def restore(self) -> None:
        self._broker.start()

    def ready(self) -> bool:
        return True


class Database:
    """The server that a sink writes to."""

    name = "database"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def kill(self) -> bool:
        self._server.kill()
        return True

    def restore(self) -> None:
        self._server.start()

    def ready(self) -> bool:
        return True
