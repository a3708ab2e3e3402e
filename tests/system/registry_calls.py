"""Calls of a registry's REST API as any client makes them, with nothing of ours between."""

from __future__ import annotations

import itertools
import json
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_numbers = itertools.count(1)
_opener = build_opener(ProxyHandler({}))


class Answer(NamedTuple):
    status: int
    body: Any
    kind: str

    @property
    def code(self) -> int:
        """The error code."""
        return int(self.body["error_code"])


def call(url: str, method: str, path: str, body: Any = None, kind: str = CONTENT_TYPE, **headers: str) -> Answer:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = Request(
        url + path, data, {**({"Content-Type": kind} if data is not None else {}), **headers}, method=method
    )
    try:
        with _opener.open(request, timeout=60) as answer:
            return Answer(answer.status, _read(answer.read()), answer.headers["Content-Type"])
    except HTTPError as error:
        with error:
            return Answer(error.code, _read(error.read()), error.headers["Content-Type"])


def _read(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


def subject(name: str = "subject") -> str:
    """A subject that no other test has."""
    return f"{name}-{next(_numbers)}-value"


def avro(*fields: str, **more: Any) -> str:
    """A record with these fields; `id` is a string without a default, `n=0` an int with one."""
    listed: list[dict[str, Any]] = []
    for field in fields:
        name, equals, default = field.partition("=")
        kind = "int" if equals else "string"
        listed.append({"name": name, "type": kind, **({"default": int(default)} if equals else {})})
    return json.dumps({"type": "record", "name": "Card", "fields": listed, **more}, separators=(",", ":"))
