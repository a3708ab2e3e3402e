"""What stands between the network and the registry: paths as they were sent, and the question who asks."""

from __future__ import annotations

import base64
import secrets

from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.contracts.http_answers import problem


class EncodedPaths:
    """Leaves the path encoded for the router: a subject may have a slash in its name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on with its raw path."""
        if scope["type"] == "http" and scope.get("raw_path"):
            path = scope["raw_path"].decode("ascii", "replace")
            scope = {**scope, "path": path.rstrip("/") or "/"}
        await self._app(scope, receive, send)


class BasicAuth:
    """Lets in who knows the login. Compared in constant time."""

    def __init__(self, app: ASGIApp, login: str) -> None:
        self._app = app
        self._expected = b"basic " + base64.b64encode(login.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers 401."""
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, credentials = given.partition(b" ")
            if not secrets.compare_digest(scheme.lower() + b" " + credentials.strip(), self._expected):
                refused = problem(401, 401, "HTTP 401 Unauthorized", {"WWW-Authenticate": 'Basic realm="headrace"'})
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)
