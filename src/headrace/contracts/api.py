"""The REST API of Confluent's schema registry, over the operations of `registry`."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.contracts import refusals, rules
from headrace.contracts.client import CONTENT_TYPE
from headrace.contracts.http_answers import answer_of, problem, text_of
from headrace.contracts.http_guards import BasicAuth, EncodedPaths
from headrace.contracts.records import Version, attributes
from headrace.contracts.refusals import Refusal
from headrace.contracts.registry import Asked, Registry, version_number
from headrace.contracts.rules import Rules
from headrace.contracts.schemas import Reference, SchemaType
from headrace.contracts.state import guid_of
from headrace.errors import ContractError, HeadraceError, InvalidContractError

Handler = Callable[[Registry, Request], Any]

_LOG = logging.getLogger(__name__)
_MOST_BODY = 8 * 1024 * 1024
_MOST_ID = 2**31 - 1
_JSON_TYPES = {CONTENT_TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream"}
_LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]


def build_app(registry: Registry, *, login: str | None = None, hosts: list[str] | None = None) -> Starlette:
    """The application. With `login` (`user:password`) every request must carry it.

    `hosts` are the names by which it may be called, those of the loopback interface if left out: a page in a browser
    that was led here by a name of its own is not answered.
    """
    paths: dict[str, dict[str, Handler]] = {
        "/": {"GET": _root},
        "/schemas": {"GET": _schemas},
        "/schemas/types": {"GET": _types},
        "/schemas/ids/{id}": {"GET": _by_id},
        "/schemas/ids/{id}/schema": {"GET": _text_by_id},
        "/schemas/ids/{id}/subjects": {"GET": _subjects_of_id},
        "/schemas/ids/{id}/versions": {"GET": _versions_of_id},
        "/schemas/guids/{guid}": {"GET": _by_guid},
        "/subjects": {"GET": _subjects},
        "/subjects/{subject}": {"POST": _lookup, "DELETE": _delete_subject},
        "/subjects/{subject}/versions": {"GET": _versions, "POST": _register},
        "/subjects/{subject}/versions/{version}": {"GET": _version, "DELETE": _delete_version},
        "/subjects/{subject}/versions/{version}/schema": {"GET": _text},
        "/subjects/{subject}/versions/{version}/referencedby": {"GET": _referenced_by},
        "/compatibility/subjects/{subject}/versions": {"POST": _compatible},
        "/compatibility/subjects/{subject}/versions/{version}": {"POST": _compatible},
        "/config": {"GET": _config, "PUT": _set_config, "DELETE": _delete_config},
        "/config/{subject}": {"GET": _config, "PUT": _set_config, "DELETE": _delete_config},
        "/mode": {"GET": _mode, "PUT": _set_mode, "DELETE": _delete_mode},
        "/mode/{subject}": {"GET": _mode, "PUT": _set_mode, "DELETE": _delete_mode},
        "/contexts": {"GET": _contexts},
        "/v1/metadata/id": {"GET": _metadata_id},
        "/v1/metadata/version": {"GET": _metadata_version},
    }
    routes = [Route(path, _endpoint(registry, handlers), methods=list(handlers)) for path, handlers in paths.items()]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts or _LOOPBACK), Middleware(EncodedPaths)]
    if login is not None:
        middleware.insert(0, Middleware(BasicAuth, login=login))
    problems = {HTTPException: _http_problem, Exception: _unexpected}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=problems)


def _endpoint(registry: Registry, handlers: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        handler = handlers["GET" if request.method == "HEAD" else request.method]
        try:
            request.state.body = await _body(request)
            # The look-up that consumers wait for: answered here and now, if it can be.
            if handler is _by_id and request.query_params.keys() <= {"subject"}:
                found = registry.state.version_of_id(_id(request))
                if found is not None:
                    return answer_of(_content(found, found.schema.text))
            return answer_of(await run_in_threadpool(handler, registry, request))
        except Refusal as refusal:
            return problem(refusal.status, refusal.code, refusal.message)
        except InvalidContractError as error:
            return problem(422, 42201, error.what)
        except ContractError as error:
            _LOG.warning("%s %s: %s", request.method, request.url.path, error)
            return problem(500, 50002, " ".join(filter(None, (error.what, error.why))))
        except HeadraceError as error:
            _LOG.warning("%s %s: %s", request.method, request.url.path, error)
            return problem(500, 50001, error.what)

    return answer


# -- schemas


def _by_id(registry: Registry, request: Request) -> Any:
    found = registry.by_id(_id(request))
    answer = _content(found, registry.formatted(found, request.query_params.get("format", "")))
    if _flag(request, "fetchMaxId"):
        answer["maxId"] = registry.state.highest_id
    return answer


def _text_by_id(registry: Registry, request: Request) -> Response:
    found = registry.by_id(_id(request))
    return text_of(registry.formatted(found, request.query_params.get("format", "")))


def _subjects_of_id(registry: Registry, request: Request) -> Any:
    return _page(request, [each["subject"] for each in _uses(registry, request)])


def _versions_of_id(registry: Registry, request: Request) -> Any:
    return _page(request, _uses(registry, request))


def _uses(registry: Registry, request: Request) -> list[dict[str, Any]]:
    id = registry.by_id(_id(request)).schema.id
    wanted = request.query_params.get("subject")
    found = registry.state.versions_of_id(id, deleted=_flag(request, "deleted"))
    return [{"subject": each.subject, "version": each.version} for each in found if wanted in (None, "", each.subject)]


def _by_guid(registry: Registry, request: Request) -> Any:
    guid = _path(request, "guid").lower()
    try:
        id = registry.state.id_of(bytes.fromhex(guid.replace("-", "")))
    except ValueError:
        id = None
    if id is None:
        raise refusals.schema_not_found(guid[:100])
    found = registry.by_id(id)
    return _content(found, registry.formatted(found, request.query_params.get("format", "")))


def _types(registry: Registry, request: Request) -> Any:
    return [SchemaType.JSON.value, SchemaType.PROTOBUF.value, SchemaType.AVRO.value]


def _schemas(registry: Registry, request: Request) -> Any:
    deleted = _flag(request, "deleted")
    found: list[Version] = []
    for name in registry.state.subjects(request.query_params.get("subjectPrefix", ""), deleted=deleted):
        versions = registry.state.versions(name, deleted=deleted)
        found += versions[-1:] if _flag(request, "latestOnly") else versions
    return [_placed(each) for each in _page(request, found)]


# -- subjects


def _subjects(registry: Registry, request: Request) -> Any:
    only = _flag(request, "deletedOnly")
    prefix = request.query_params.get("subjectPrefix", "")
    return _page(request, registry.state.subjects(prefix, deleted=only or _flag(request, "deleted"), live=not only))


def _lookup(registry: Registry, request: Request) -> Any:
    return _placed(registry.lookup(_path(request, "subject"), _asked(request), deleted=_flag(request, "deleted")))


def _delete_subject(registry: Registry, request: Request) -> Any:
    return registry.delete_subject(_path(request, "subject"), permanent=_flag(request, "permanent"))


def _versions(registry: Registry, request: Request) -> Any:
    only = _flag(request, "deletedOnly")
    deleted = only or _flag(request, "deleted")
    found = registry.versions(_path(request, "subject"), deleted=deleted, live=not only)
    return _page(request, [each.version for each in found])


def _register(registry: Registry, request: Request) -> Any:
    found = registry.register(_path(request, "subject"), _asked(request))
    # Not the schema: clients would keep our text of it in place of what they sent, which may be a descriptor.
    return {"id": found.schema.id, "version": found.version, "guid": guid_of(found)}


def _version(registry: Registry, request: Request) -> Any:
    found = _find(registry, request)
    return {**_placed(found), "schema": registry.formatted(found, request.query_params.get("format", ""))}


def _delete_version(registry: Registry, request: Request) -> Any:
    number = version_number(_path(request, "version"))
    return registry.delete_version(_path(request, "subject"), number, permanent=_flag(request, "permanent"))


def _text(registry: Registry, request: Request) -> Response:
    return text_of(registry.formatted(_find(registry, request), request.query_params.get("format", "")))


def _referenced_by(registry: Registry, request: Request) -> Any:
    number = version_number(_path(request, "version"))
    found = registry.version(_path(request, "subject"), number, deleted=True)
    referrers = registry.state.referrers(found.subject, found.version, deleted=_flag(request, "deleted"))
    return _page(request, sorted({each.schema.id for each in referrers}))


def _find(registry: Registry, request: Request) -> Version:
    number = version_number(_path(request, "version"))
    return registry.version(_path(request, "subject"), number, deleted=_flag(request, "deleted"))


# -- compatibility, config, mode


def _compatible(registry: Registry, request: Request) -> Any:
    version = request.path_params.get("version")
    number = None if version is None else version_number(_path(request, "version"))
    verbose = _flag(request, "verbose")
    try:
        messages = registry.compatible(_path(request, "subject"), _asked(request), number)
    except Refusal as refusal:
        if not verbose or refusal.code != 42201:
            raise
        messages = [refusal.message]
    answer: dict[str, Any] = {"is_compatible": not messages}
    return {**answer, "messages": messages} if verbose else answer


def _config(registry: Registry, request: Request) -> Any:
    subject = _subject(request)
    own = registry.state.config(subject)
    if own is None and subject is not None and not _flag(request, "defaultToGlobal"):
        raise refusals.no_config(subject)
    return Rules(registry.state).config(subject)


def _set_config(registry: Registry, request: Request) -> Any:
    wanted = _object(request)
    registry.change_rules(lambda state: rules.set_config(state, _subject(request), wanted))
    return {name: value for name, value in wanted.items() if value is not None}


def _delete_config(registry: Registry, request: Request) -> Any:
    return registry.change_rules(lambda state: rules.delete_config(state, _subject(request)))


def _mode(registry: Registry, request: Request) -> Any:
    subject = _subject(request)
    if subject is not None and registry.state.mode(subject) is None and not _flag(request, "defaultToGlobal"):
        raise refusals.no_mode(subject)
    return {"mode": Rules(registry.state).mode(subject)}


def _set_mode(registry: Registry, request: Request) -> Any:
    name, force = str(_object(request).get("mode") or ""), _flag(request, "force")
    return {"mode": registry.change_rules(lambda state: rules.set_mode(state, _subject(request), name, force=force))}


def _delete_mode(registry: Registry, request: Request) -> Any:
    return {"mode": registry.change_rules(lambda state: rules.delete_mode(state, _subject(request)))}


# -- the rest


def _root(registry: Registry, request: Request) -> Any:
    return {}


def _contexts(registry: Registry, request: Request) -> Any:
    return ["."]


def _metadata_id(registry: Registry, request: Request) -> Any:
    return {"scope": {"path": [], "clusters": {"schema-registry-cluster": "headrace"}}, "id": ""}


def _metadata_version(registry: Registry, request: Request) -> Any:
    return {"version": "7.9.0-headrace", "commitId": ""}


def _content(version: Version, text: str) -> dict[str, Any]:
    """A schema without its place."""
    return {"schema": text, "guid": guid_of(version), **attributes(version)}


def _placed(version: Version) -> dict[str, Any]:
    place = {"subject": version.subject, "version": version.version, "id": version.schema.id}
    return {**place, **_content(version, version.schema.text)}


def _asked(request: Request) -> Asked:
    body = _object(request)
    text, references = body.get("schema"), body.get("references") or ()
    if not isinstance(text, str):
        raise refusals.invalid_schema("Empty schema" if text is None else "`schema` must be text")
    try:
        return Asked(
            text=text,
            type=SchemaType.named(body.get("schemaType")),
            references=tuple(Reference.from_json(each) for each in references),
            id=-1 if body.get("id") is None else int(body["id"]),
            version=max(0, int(body.get("version") or 0)),
            metadata=body.get("metadata"),
            rule_set=body.get("ruleSet"),
            normalize=_flag(request, "normalize"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise refusals.invalid_schema(f"the request can't be read: {type(error).__name__} {error}") from error


def _object(request: Request) -> dict[str, Any]:
    body = request.state.body
    if not isinstance(body, dict):
        raise Refusal(422, "The body must be a JSON object")
    return body


async def _body(request: Request) -> Any:
    if request.method not in ("POST", "PUT"):
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _JSON_TYPES:
        raise Refusal(415, f"HTTP 415 Unsupported Media Type: send {CONTENT_TYPE}")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MOST_BODY:
            raise Refusal(413, "HTTP 413 Request Entity Too Large")
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise Refusal(400, "HTTP 400 Bad Request: the body is no JSON") from None


def _path(request: Request, name: str) -> str:
    return unquote(str(request.path_params[name]))


def _subject(request: Request) -> str | None:
    return _path(request, "subject") if "subject" in request.path_params else None


def _id(request: Request) -> int:
    text = _path(request, "id")
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > _MOST_ID:
        raise Refusal(404, "HTTP 404 Not Found")
    return int(text)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _page(request: Request, found: list[Any]) -> list[Any]:
    try:
        offset, limit = int(request.query_params.get("offset", "0")), int(request.query_params.get("limit", "-1"))
    except ValueError:
        raise Refusal(404, "HTTP 404 Not Found") from None
    offset = max(0, offset)
    return found[offset:] if limit < 0 else found[offset : offset + limit]


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.status_code, f"HTTP {error.status_code} {error.detail}")


async def _unexpected(request: Request, error: Exception) -> Response:
    """A defect of ours: its trace is in the log."""
    return problem(500, 50001, f"Internal Server Error: {type(error).__name__}")
