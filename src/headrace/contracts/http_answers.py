"""Answers over HTTP in the form that clients of a registry expect."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from headrace.contracts.client import CONTENT_TYPE


def answer_of(content: Any) -> Response:
    """An answer with JSON, unless it is one already.

    >>> answer_of({"id": 7}).body
    b'{"id":7}'
    """
    if isinstance(content, Response):
        return content
    return Response(json.dumps(content, separators=(",", ":"), ensure_ascii=False), media_type=CONTENT_TYPE)


def text_of(text: str) -> Response:
    """An answer with a schema and nothing around it."""
    return Response(text, media_type=CONTENT_TYPE)


def problem(status: int, code: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that is no.

    >>> problem(404, 40403, "Schema not found").body
    b'{"error_code": 40403, "message": "Schema not found"}'
    """
    body = json.dumps({"error_code": code, "message": message}, ensure_ascii=False)
    return Response(body, status, headers, media_type=CONTENT_TYPE)
