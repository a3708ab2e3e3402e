"""Who may talk to the dashboard: this machine, or whoever has the token; never a page from somewhere else."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "headrace-session"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_OPEN = ("/login", "/page/", "/health", "/")
"""What anybody may load: it shows no number."""


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host of a Host header or an Origin, without scheme and port.

    >>> host_of("localhost:8080"), host_of("http://[::1]:80"), host_of("https://evil.example")
    ('localhost', '::1', 'evil.example')
    """
    rest = header.rpartition("://")[2].strip().lower()
    if rest.startswith("["):
        return rest[1:].partition("]")[0]
    return rest.partition(":")[0]


def session_of(token: str) -> str:
    """What the cookie holds: it proves the token and does not tell it."""
    return hmac.new(token.encode(), b"headrace dashboard session", hashlib.sha256).hexdigest()


class Guard:
    """Checks every request before anything else sees it, and puts the strict headers on every answer."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._hosts = {h.lower() for h in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            status, text = refusal
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": text})
                return
            await PlainTextResponse(text + "\n", status)(scope, receive, _strict(send))
            return
        await self._app(scope, receive, _strict(send) if scope["type"] == "http" else send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A page elsewhere may give its own name this address (DNS rebinding); the browser still says the name.
        if self._token is None and not (is_loopback(host_of(host)) or host_of(host) in self._hosts):
            return 421, "this dashboard answers to localhost only"
        source = headers.get("origin")
        if source is not None and source.rpartition("://")[2].lower() != host.lower():
            return 403, "requests from other sites are refused"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            return 403, "requests from other sites are refused"
        path = scope["path"]
        if self._token is None or any(
            path == p or (p.endswith("/") and p != "/" and path.startswith(p)) for p in _OPEN
        ):
            return None
        return None if self._knows(headers, self._token) else (401, "a token is needed")

    @staticmethod
    def _knows(headers: Headers, token: str) -> bool:
        given = headers.get("authorization", "")
        if given.lower().startswith("bearer "):
            return hmac.compare_digest(given[7:].strip().encode(), token.encode())
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), session_of(token).encode())


def _strict(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            del headers["server"]
        await send(message)

    return with_headers
