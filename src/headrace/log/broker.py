"""A real Kafka broker, embedded: a KRaft node on this machine, started and stopped by Headrace."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.errors import BrokerStartError, BrokerUnavailableError, PortTakenError
from headrace.jvm.class_archive import archive_of, using
from headrace.jvm.jars import resolve
from headrace.jvm.java import find_java
from headrace.jvm.once import exclusive
from headrace.jvm.process import ChildProcess, command_line, start_attached, start_detached, stop_process
from headrace.jvm.progress import Progress, silent
from headrace.log.settings import GC_LOGGING, HEAP, JVM_OPTIONS, LOG4J2, Node, server_properties
from headrace.log.topics import Topics
from headrace.paths import state_dir

HOST = "127.0.0.1"
NODES = "nodes"
"""The folder that has one for each node of a cluster."""
_START_SECONDS = 90.0
_ATTEMPTS = 3


@dataclass(frozen=True)
class RunningBroker:
    """An embedded broker that runs, started by this process or by another."""

    pid: int
    bootstrap: str
    started: str
    attached: bool
    data_dir: Path

    def alive(self) -> bool:
        """Whether that pid is still this broker, and not another process that was given the number since."""
        return _token(self.data_dir) in command_line(self.pid)

    def stop(self) -> None:
        """Stops it, whoever started it. Returns when it is gone."""
        stop_process(self.pid, _token(self.data_dir))
        _forget(self)


def default_data_dir() -> Path:
    """Where the broker of this project keeps its data."""
    return state_dir() / "broker"


def running_broker(data_dir: Path | None = None) -> RunningBroker | None:
    """The broker that runs on this data folder, if one does. What a crash left behind is not taken for a broker.

    >>> import tempfile
    >>> running_broker(Path(tempfile.mkdtemp())) is None
    True
    """
    folder = (data_dir or default_data_dir()).resolve()
    try:
        noted = json.loads(_note(folder).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    found = RunningBroker(noted["pid"], noted["bootstrap"], noted["started"], noted["attached"], folder)
    return found if found.alive() else None


def default_bootstrap() -> str:
    """The broker to talk to when none is named: $HEADRACE_BOOTSTRAP, else the embedded broker of this project.

    >>> os.environ["HEADRACE_BOOTSTRAP"] = "localhost:9092"
    >>> default_bootstrap()
    'localhost:9092'
    """
    named = os.environ.get("HEADRACE_BOOTSTRAP")
    if named:
        return named
    running = running_brokers()
    if not running:
        raise BrokerUnavailableError(
            "no broker is named, and the embedded broker of this project does not run.",
            why=f"Its data folder is {default_data_dir()}.",
            fix="headrace broker start\nor name one with --bootstrap HOST:PORT or HEADRACE_BOOTSTRAP",
        )
    return ",".join(broker.bootstrap for broker in running)


def running_brokers(data_dir: Path | None = None) -> list[RunningBroker]:
    """The broker that runs on this data folder, or all nodes of the cluster that does.

    >>> import tempfile
    >>> running_brokers(Path(tempfile.mkdtemp()))
    []
    """
    folder = (data_dir or default_data_dir()).resolve()
    nodes = [folder, *sorted((folder / NODES).glob("*"))]
    return [found for node in nodes if (found := running_broker(node)) is not None]


class EmbeddedBroker:
    """One Kafka node.

    Attached, it dies with this process, however that ends. Detached, it stays until someone stops it. Data stays in
    `data_dir` either way and is there again at the next start.

    >>> import tempfile
    >>> with EmbeddedBroker(Path(tempfile.mkdtemp())) as broker:
    ...     Topics(broker.bootstrap).create("clicks", partitions=2)
    True
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        attached: bool = True,
        node: Node | None = None,
        heap: str = HEAP,
    ) -> None:
        self.data_dir = (data_dir or default_data_dir()).resolve()
        self.port = port
        self.attached = attached
        self.node = node or Node()
        self.heap = heap
        self._running: RunningBroker | None = None
        self._child: ChildProcess | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, as `host:port`."""
        return self._started().bootstrap

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM."""
        return self._started().pid

    @property
    def log_file(self) -> Path:
        """The broker's own log."""
        return self.data_dir / "logs" / "broker.log"

    def start(self, progress: Progress | None = None) -> Self:
        """Starts the broker and returns when it answers. Detached, it takes over one that runs already."""
        report = progress or silent
        jars = resolve("kafka-broker", progress)
        java = [str(find_java().executable), *using(broker_archive(jars)), *JVM_OPTIONS, "-cp", f"{jars[0].parent}/*"]
        with exclusive(self.data_dir / "broker.lock", lambda: report("broker: another process starts it, waiting")):
            running = running_broker(self.data_dir)
            if running is not None:
                self._take_over(running)
                return self
            self._format(java, report)
            report("broker: starting")
            self._launch(java)
        report(f"broker: ready at {self.bootstrap}")
        return self

    def stop(self) -> None:
        """Stops the broker; nothing happens if it does not run. Returns when it is gone."""
        if self._child is not None:
            self._child.stop()
        if self._running is not None:
            self._running.stop()
        self._child = self._running = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _started(self) -> RunningBroker:
        if self._running is None:
            raise BrokerUnavailableError("this broker is not started.", fix="call .start() or use it in a `with`")
        return self._running

    def _take_over(self, running: RunningBroker) -> None:
        if self.attached or (self.port is not None and running.bootstrap != f"{HOST}:{self.port}"):
            raise BrokerStartError(
                f"a broker runs already on this data folder, at {running.bootstrap} (process {running.pid}).",
                why=f"Two brokers can't share {self.data_dir}.",
                fix=f"use the one that runs (--bootstrap {running.bootstrap}), or stop it: headrace broker stop",
            )
        self._running = running
        self._await_ready(self._log_size())

    def _format(self, java: list[str], report: Progress) -> None:
        """Gives a new data folder its cluster id. In a folder of its own first: a crash midway leaves no half of it."""
        (self.data_dir / "logs").mkdir(parents=True, exist_ok=True)
        (self.data_dir / "log4j2.xml").write_text(LOG4J2, encoding="utf-8")
        if (self.data_dir / "data").is_dir():
            return
        report("broker: formatting its storage")
        shutil.rmtree(self.data_dir / "unformatted", ignore_errors=True)
        self._write_properties(9092, 9093, "unformatted")
        cluster_id = self.node.cluster_id or new_cluster_id()
        tool = subprocess.run(
            [
                *(*java, "kafka.tools.StorageTool", "format"),
                f"--cluster-id={cluster_id}",  # in one word: an id may begin with a dash
                "--config=server.properties",
            ],
            cwd=self.data_dir,
            capture_output=True,
            text=True,
            check=False,
        )
        if tool.returncode != 0:
            raise BrokerStartError(
                f"the broker's storage in {self.data_dir} can't be formatted.",
                why=(tool.stderr or tool.stdout).strip(),
                fix="check that the folder may be written and that the disk has room",
            )
        (self.data_dir / "unformatted").rename(self.data_dir / "data")

    def _launch(self, java: list[str]) -> None:
        """Starts the JVM. A port chosen as free may be taken before the broker binds it: then with others, again."""
        for attempt in range(1, _ATTEMPTS + 1):
            port = free_port() if self.port is None else _check_free(self.port)
            self._write_properties(port, self.node.controllers.get(self.node.id) or free_port(), "data")
            log_size = self._log_size()
            start = start_attached if self.attached else start_detached
            self._child = start(
                [
                    *(*java, _token(self.data_dir), f"-Xmx{self.heap}", GC_LOGGING),
                    *shlex.split(os.environ.get("HEADRACE_BROKER_OPTS", "")),
                    *("kafka.Kafka", "server.properties"),
                ],
                folder=self.data_dir,
                console=self.data_dir / "logs" / "console.log",
            )
            started = datetime.now(UTC).isoformat(timespec="seconds")
            self._running = RunningBroker(self._child.pid, f"{HOST}:{port}", started, self.attached, self.data_dir)
            try:
                # Noted before it is ready: if this process dies now, the next one must find the broker.
                _remember(self._running)
                self._await_ready(log_size)
                return
            except BaseException as error:
                self.stop()
                if attempt == _ATTEMPTS or not (isinstance(error, BrokerStartError) and "in use" in str(error.why)):
                    raise

    def _await_ready(self, log_size: int) -> None:
        running = self._started()
        topics = Topics(running.bootstrap, timeout=1)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            alive = running.alive() if self._child is None else self._child.alive()
            if alive:
                try:
                    topics.list()
                    return
                except BrokerUnavailableError:
                    if time.monotonic() < deadline:
                        time.sleep(0.05)
                        continue
            cause = self._cause(log_size)
            if "UnsupportedVersionException" in cause:
                raise BrokerStartError(
                    f"the data in {self.data_dir} was written by a newer Kafka than this Headrace brings.",
                    why=cause,
                    fix=f"start it with the Headrace that wrote it, or begin anew: "
                    f"mv {self.data_dir / 'data'} {self.data_dir / 'data-newer'}",
                )
            what = "did not answer in time" if alive else "ended while it started"
            raise BrokerStartError(
                f"the embedded broker {what}.",
                why=f"{cause}\nIts log: {self.log_file}",
                fix=f"see the log; if the data may go, delete {self.data_dir / 'data'} and start again",
            )

    def _cause(self, log_size: int) -> str:
        """The reason that the log of this start gives: the innermost exception, else the last error, else its end."""
        log = self.log_file.read_bytes() if self.log_file.is_file() else b""
        fresh = log[log_size:] if len(log) >= log_size else log  # the log has rolled over since
        console = (self.data_dir / "logs" / "console.log").read_bytes()
        lines = (console + fresh).decode(errors="replace").splitlines()
        for pattern in (r"Caused by: (.+)", r"([\w.$]+(?:Exception|Error)\b.*)", r"\S+ +(?:ERROR|FATAL) \S+ (.+)"):
            found = [match[1] for line in lines if (match := re.match(pattern, line))]
            if found:
                return found[-1]
        return "\n".join(lines[-5:]) or "It said nothing."

    def _log_size(self) -> int:
        return self.log_file.stat().st_size if self.log_file.is_file() else 0

    def _write_properties(self, port: int, controller_port: int, log_dir: str) -> None:
        text = server_properties(port=port, controller_port=controller_port, log_dir=log_dir, node=self.node)
        (self.data_dir / "server.properties").write_text(text, encoding="utf-8")


def broker_archive(jars: Sequence[Path]) -> Path:
    """Where the class archive of brokers with these jars is, or would be."""
    return archive_of("broker", find_java(), jars)


def new_cluster_id() -> str:
    """A name for a cluster that no other has.

    >>> len(new_cluster_id())
    22
    """
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def free_port() -> int:
    """A port of the loopback interface that is free at this moment.

    >>> 0 < free_port() < 65536
    True
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _check_free(port: int) -> int:
    with socket.socket() as probe:
        # As the broker does: connections of a broker that just ended do not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            taken = error.errno == errno.EADDRINUSE
            raise PortTakenError(
                f"port {port} on {HOST} is {'taken' if taken else 'not allowed'}.",
                why="Another process listens there." if taken else "Ports below 1024 are for the system.",
                fix="choose another with --port, or leave it out and a free one is chosen"
                + (f"\n(see who has it with: lsof -i :{port})" if taken else ""),
            ) from error
    return port


def _token(data_dir: Path) -> str:
    """Marks the broker's command line, so that its pid is never mistaken for that of another process."""
    return f"-Dheadrace.broker={hashlib.sha256(str(data_dir).encode()).hexdigest()[:16]}"


def _note(data_dir: Path) -> Path:
    return data_dir / "broker.json"


def _remember(running: RunningBroker) -> None:
    noted = {
        "pid": running.pid,
        "bootstrap": running.bootstrap,
        "started": running.started,
        "attached": running.attached,
    }
    draft = _note(running.data_dir).with_suffix(".draft")
    draft.write_text(json.dumps(noted) + "\n", encoding="utf-8")
    draft.replace(_note(running.data_dir))


def _forget(ended: RunningBroker) -> None:
    """Removes the note of this broker, and leaves that of one that was started on the same folder since."""
    note = _note(ended.data_dir)
    if note.is_file() and json.loads(note.read_text(encoding="utf-8"))["pid"] == ended.pid:
        note.unlink(missing_ok=True)
