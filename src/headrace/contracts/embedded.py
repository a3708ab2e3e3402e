"""The schema registry of a project: a process beside the embedded broker, started and stopped by Headrace.

The process itself notes where it listens, as the last step of its start: it binds a free port and nobody else can have
it, and a start that died halfway leaves no note.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.errors import RegistryUnavailableError
from headrace.jvm.once import exclusive
from headrace.jvm.process import ChildProcess, command_line, start_attached, start_detached, stop_process
from headrace.jvm.progress import Progress, silent
from headrace.paths import state_dir

HOST = "127.0.0.1"
_START_SECONDS = 60.0
_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class RunningRegistry:
    """A registry that runs, started by this process or by another."""

    pid: int
    url: str
    bootstrap: str
    started: str

    def note(self, folder: Path) -> None:
        """Writes it down, for those who look for it."""
        draft = folder / "registry.draft"
        draft.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        draft.replace(folder / "registry.json")


def default_registry_dir() -> Path:
    """Where the registry of this project keeps its log and its note. Its schemas are in Kafka."""
    return state_dir() / "registry"


def running_registry(folder: Path | None = None) -> RunningRegistry | None:
    """The registry that runs for this folder, if one does.

    >>> import tempfile
    >>> running_registry(Path(tempfile.mkdtemp())) is None
    True
    """
    place = (folder or default_registry_dir()).resolve()
    try:
        found = RunningRegistry(**json.loads((place / "registry.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    return found if token_of(place) in command_line(found.pid) else None


def stop_registry(folder: Path | None = None) -> RunningRegistry | None:
    """Stops the registry of this folder, whoever started it; returns what it was, or None if none ran."""
    place = (folder or default_registry_dir()).resolve()
    running = running_registry(place)
    if running is not None:
        stop_process(running.pid, token_of(place), _GRACE_SECONDS)
        (place / "registry.json").unlink(missing_ok=True)
    return running


def token_of(folder: Path) -> str:
    """Marks the command line of the process, so that its pid is never mistaken for another's."""
    return f"--token={hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


class EmbeddedRegistry:
    """One registry on a Kafka cluster. Attached, it dies with this process; detached, it stays until it is stopped.

    >>> from headrace.errors import BrokerUnavailableError
    >>> EmbeddedRegistry("127.0.0.1:1", Path("/nowhere")).url
    Traceback (most recent call last):
        ...
    headrace.errors.RegistryUnavailableError: this registry is not started.
      Fix: call .start() or use it in a `with`
    """

    def __init__(
        self,
        bootstrap: str,
        folder: Path | None = None,
        port: int | None = None,
        *,
        host: str | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        attached: bool = True,
    ) -> None:
        self.bootstrap = bootstrap
        self.folder = (folder or default_registry_dir()).resolve()
        self.port = port
        # Absolute: the process runs in its own folder.
        files = {"--certificate": certificate, "--key": key}
        self._options = [word for name, file in files.items() if file for word in (name, str(file.resolve()))]
        self._options += ["--host", host] if host else []
        self.attached = attached
        self._running: RunningRegistry | None = None
        self._child: ChildProcess | None = None

    @property
    def running(self) -> RunningRegistry:
        """Where it runs."""
        if self._running is None:
            raise RegistryUnavailableError("this registry is not started.", fix="call .start() or use it in a `with`")
        return self._running

    @property
    def url(self) -> str:
        """The address for clients."""
        return self.running.url

    def start(self, progress: Progress | None = None) -> Self:
        """Starts it and returns when it answers. Detached, it takes over one that runs already for this cluster."""
        report = progress or silent
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(self.folder / "registry.lock", lambda: report("registry: another process starts it, waiting")):
            found = running_registry(self.folder)
            if found is not None and not self.attached and self._fits(found):
                self._running = found
                return self
            if found is not None and found.bootstrap == self.bootstrap:
                raise RegistryUnavailableError(
                    f"a registry runs already for this project, at {found.url} (process {found.pid}).",
                    why=f"It serves the same cluster, and its folder is {self.folder}.",
                    fix="use that one, or stop it: headrace registry stop",
                )
            stop_registry(self.folder)  # it serves a cluster that this project no longer uses
            report("registry: starting")
            self._launch()
        report(f"registry: ready at {self.url}")
        return self

    def stop(self) -> None:
        """Stops it; nothing happens if it does not run. Returns when it is gone."""
        if self._child is not None:
            self._child.stop()
        if self._running is not None:
            stop_registry(self.folder)
        self._child = self._running = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _fits(self, found: RunningRegistry) -> bool:
        return found.bootstrap == self.bootstrap and self.port in (None, int(found.url.rpartition(":")[2]))

    def _launch(self) -> None:
        (self.folder / "registry.json").unlink(missing_ok=True)
        log = self.folder / "registry.log"
        start = start_attached if self.attached else start_detached
        self._child = start(
            [
                *(sys.executable, "-m", "headrace.contracts.service", token_of(self.folder)),
                *("--bootstrap", self.bootstrap, "--port", str(self.port or 0), "--folder", str(self.folder)),
                *self._options,
            ],
            folder=self.folder,
            console=log,
            grace=_GRACE_SECONDS,
        )
        deadline = time.monotonic() + _START_SECONDS
        try:
            while (found := running_registry(self.folder)) is None:
                alive = self._child.alive()
                if not alive or time.monotonic() > deadline:
                    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                    raise RegistryUnavailableError(
                        f"the schema registry {'did not answer in time' if alive else 'ended while it started'}.",
                        why="\n".join(said[-5:]) or "It said nothing.",
                        fix=f"see its log: {log}",
                    )
                time.sleep(0.02)
        except BaseException:
            self.stop()
            raise
        self._running = found
