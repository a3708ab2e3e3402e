"""The dashboard as a web server: on loopback unless a token protects it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib.metadata
import socket
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from headrace.errors import DashboardError, PortTakenError
from headrace.ops.watch import Watch
from headrace.ops.web.api import endpoints
from headrace.ops.web.push import Push
from headrace.ops.web.security import COOKIE, Guard, is_loopback, session_of

PAGE = Path(__file__).with_name("page")
DEFAULT_PORT = 8430
_LEAST_TOKEN = 16
_START_SECONDS = 20.0
_MOST_BODY = 4096


@dataclass(frozen=True)
class Address:
    """Where the dashboard listens, and what opens it."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 takes a free one."""
    token: str | None = None

    def check(self) -> None:
        """Raises unless this is safe."""
        if self.token is not None and len(self.token) < _LEAST_TOKEN:
            raise DashboardError(
                "the dashboard's token is too short.",
                why=f"It has {len(self.token)} characters; less than {_LEAST_TOKEN} can be guessed.",
                fix="make one: python -c 'import secrets; print(secrets.token_urlsafe())'",
            )
        if self.token is None and not is_loopback(self.host):
            raise DashboardError(
                f"the dashboard does not listen on {self.host} without a token.",
                why="Whoever reaches this address would see every pipeline, its topics and newest results.",
                fix="set HEADRACE_TOKEN, or leave out --host to listen on this machine only",
            )


def application(watch: Watch, token: str | None = None) -> Any:
    """The ASGI application."""
    push = Push(watch)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        under_way: set[asyncio.Task[None]] = set()

        def start() -> None:
            # The loop itself makes it, so that none is made for a loop that is closed; and keeps it until it ends.
            task = loop.create_task(push.announce())
            under_way.add(task)
            task.add_done_callback(under_way.discard)

        def announce() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server ends
                loop.call_soon_threadsafe(start)

        watch.on_look(announce)
        yield

    async def page(request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def login(request: Request) -> Response:
        """Takes the token once, and gives a cookie that no script can read."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BODY:
                return JSONResponse({"error": "too long"}, 413)
        if token is None or not hmac.compare_digest(body.strip(), token.encode()):
            await asyncio.sleep(0.5)  # a guess costs time
            return JSONResponse({"error": "this is not the token"}, 401)
        answer = JSONResponse({"ok": True})
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, session_of(token), httponly=True, samesite="strict", secure=secure, path="/")
        return answer

    routes = [Route(e.path, e.handler, name=e.name) for e in endpoints(watch, _version())]
    routes += [Route("/", page), Route("/login", login, methods=["POST"])]
    app = Starlette(
        routes=[*routes, WebSocketRoute("/ws", push.serve), Mount("/page", StaticFiles(directory=PAGE))],
        lifespan=lifespan,
    )
    return Guard(app, token=token)


class Dashboard:
    """A running dashboard: a watch and its server, on a thread of its own."""

    def __init__(self, watch: Watch, address: Address | None = None) -> None:
        self._address = address or Address()
        self._address.check()
        self._watch = watch
        self._socket = _listen(self._address.host, self._address.port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(watch, self._address.token),
                log_level="critical",  # addresses and headers of visitors are nobody's business
                access_log=False,
                server_header=False,
                date_header=False,
                ws="websockets-sansio",
                ws_max_size=4096,
                timeout_graceful_shutdown=2,
                limit_concurrency=200,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="headrace-dashboard", daemon=True)

    @property
    def url(self) -> str:
        """Where to open it."""
        host, port = self._socket.getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{shown}:{port}/"

    def start(self) -> None:
        """Begin to watch and to serve; returns when pages are answered."""
        self._watch.start()
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise DashboardError("the dashboard did not start.", fix="try again, or another --port")
            time.sleep(0.02)

    def close(self) -> None:
        """Stop serving and watching."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(10)
        self._socket.close()
        self._watch.close()

    def __enter__(self) -> Dashboard:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as problem:
        raise PortTakenError(
            f"the dashboard can't listen on {host}, port {port}.",
            why=str(problem.strerror or problem),
            fix="give another with --port, or --port 0 for a free one",
        ) from problem
    return found


def _version() -> str:
    try:
        return importlib.metadata.version("headrace")
    except importlib.metadata.PackageNotFoundError:
        return "0"
