"""A registry of schemas by id that a test can take down: what the kernel asks for, and no more."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StubRegistry:
    """Schemas by id; while `failing` is set, it answers everything with that status."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.failing: int | None = None
        self.asked: list[str] = []
        self.authorizations: set[str | None] = set()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.authorizations.add(self.headers.get("Authorization"))
                status, body = registry._answer(self.path)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            # The handshake is made when the connection is read from: one that fails ends only that connection.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def add(self, id: int, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        self.schemas[id] = {"schema": text, "schemaType": kind, "references": references or []}
        return id

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if self.failing is not None:
            return self.failing, {"error_code": self.failing, "message": "on purpose"}
        parts = path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["schemas", "ids"] and int(parts[2]) in self.schemas:
            return 200, self.schemas[int(parts[2])]
        if parts[0] == "subjects" and (parts[1], int(parts[3])) in self.versions:
            return 200, self.versions[parts[1], int(parts[3])]
        return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def stub_registry(tls: ssl.SSLContext | None = None) -> Iterator[StubRegistry]:
    registry = StubRegistry(tls)
    try:
        yield registry
    finally:
        registry.close()
