"""The fraud job as a process of its own: `headrace run`, watched through its progress file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from headrace.demo.worker import tail
from headrace.errors import QueryFailedError
from headrace.jvm.process import ChildProcess, start_attached
from headrace.jvm.progress import Progress

PIPELINE = "examples.fraud:fraud"
# Traffic flows before the job starts. So it catches up in micro-batches, which gives it a watermark and warm code, and
# then switches to real time; a watermark moves only at the end of a batch, and in real time that is a minute away.
MODE = "auto"
# The first checkpoint of a young JVM takes a second, in which events wait: a demo of a minute ends before it, and in a
# longer one checkpoints are less than one event in a hundred.
CHECKPOINT_SECONDS = 120
_REALTIME = "realtime"
_START_SECONDS = 240.0
_GRACE_SECONDS = 20.0


class ProgressFile:
    """The records that a run appends to its progress file, one JSON object per line.

    >>> ProgressFile(Path("no-such-file.jsonl")).read_new()
    []
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0

    def read_new(self) -> list[dict[str, Any]]:
        """The records since the last call. A line that is still being written waits for the next."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class Job:
    """A run of the pipeline that ends with this process, however that ends."""

    def __init__(self, bootstrap: str, *, project: Path, folder: Path) -> None:
        self._console = folder / "job.log"
        self._progress_file = ProgressFile(folder / "progress.jsonl")
        self.progress: dict[str, Any] = {}  # the last record of a batch
        self.in_real_time = False
        command = [
            *(sys.executable, "-m", "headrace", "run", PIPELINE),
            *("--mode", MODE),
            *("--bootstrap", bootstrap),
            *("--checkpoint", str(folder / "checkpoint")),
            *("--checkpoint-interval", str(CHECKPOINT_SECONDS)),
            *("--progress-file", str(self._progress_file.path)),
        ]
        self._process: ChildProcess = start_attached(
            command, folder=project, console=self._console, grace=_GRACE_SECONDS
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def await_real_time(self, progress: Progress) -> None:
        """Returns when the query has caught up and runs in real time."""
        deadline = time.monotonic() + _START_SECONDS
        while not self.in_real_time:
            self.check()
            if time.monotonic() > deadline:
                raise self._failed(f"was not in real-time mode within {_START_SECONDS:.0f} s")
            progress(tail(self._console, lines=1))
            time.sleep(0.1)
            self.watch()

    def watch(self) -> None:
        """Takes in what the run has told since."""
        for record in self._progress_file.read_new():
            if record["event"] == "started" and record["mode"] == _REALTIME:
                self.in_real_time = True
            elif record["event"] == "progress":
                self.progress = record

    def check(self) -> None:
        """Raises if it ended by itself."""
        if not self._process.alive():
            raise self._failed("ended by itself")

    def stop(self) -> None:
        """Stops it in good order; by force if that takes too long."""
        self._process.stop()

    def _failed(self, what: str) -> QueryFailedError:
        return QueryFailedError(
            f"the fraud job {what}.",
            why=f"The last that it said:\n{tail(self._console)}",
            fix=f"all that it said is in {self._console}",
        )
