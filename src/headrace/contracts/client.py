"""A client of any registry that speaks Confluent's REST API, ours among them. Schemas are cached by id for ever: an id
never changes its meaning.
"""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from headrace.contracts.breaks import reasons
from headrace.contracts.schemas import Reference, RegisteredSchema, Schema, SchemaType, resolve_references
from headrace.errors import (
    ContractError,
    ContractNotFoundError,
    IncompatibleContractError,
    InvalidContractError,
    RegistryLoginError,
    RegistryRefusedError,
    RegistryUnavailableError,
)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2
_MOST_BYTES = 64 * 1024 * 1024
_AGAIN = {408, 429, 502, 503, 504}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def registry_url(named: str | None = None) -> str:
    """The registry to talk to: the one named, else $HEADRACE_REGISTRY, else the embedded one of this project.

    >>> os.environ["HEADRACE_REGISTRY"] = "http://localhost:8081"
    >>> registry_url()
    'http://localhost:8081'
    """
    found = named or os.environ.get("HEADRACE_REGISTRY")
    if found:
        return found
    from headrace.contracts.embedded import default_registry_dir, running_registry

    running = running_registry()
    if running is None:
        raise RegistryUnavailableError(
            "no schema registry is named, and the embedded one of this project does not run.",
            why=f"Its folder is {default_registry_dir()}.",
            fix="headrace registry start\nor name one with --registry URL or HEADRACE_REGISTRY",
        )
    return running.url


@dataclass(frozen=True)
class RegistryLogin:
    """Who asks, and whom to trust. Nothing of it is ever printed: neither by `repr` nor in an error.

    >>> RegistryLogin(user="ada", password="s3cret")
    RegistryLogin(user='ada', ca=None, certificate=None, key=None)
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def from_environment(cls) -> RegistryLogin:
        """$HEADRACE_REGISTRY_AUTH (`user:password`), $HEADRACE_REGISTRY_CA, ..._CERTIFICATE and ..._KEY (files)."""
        user, _, password = os.environ.get("HEADRACE_REGISTRY_AUTH", "").partition(":")
        return cls(
            user or None,
            password or None,
            _path("HEADRACE_REGISTRY_CA"),
            _path("HEADRACE_REGISTRY_CERTIFICATE"),
            _path("HEADRACE_REGISTRY_KEY"),
        )


class RegistryClient:
    """A registry by its URL; several, separated by commas, are tried in turn.

    Credentials may be in the URL (`https://user:password@host`) or in `login`; they are never shown.

    >>> RegistryClient("https://ada:s3cret@registry.example.com/")
    RegistryClient('https://registry.example.com')
    """

    def __init__(self, url: str, login: RegistryLogin | None = None, timeout: float = 10.0) -> None:
        login = login or RegistryLogin.from_environment()
        shown, user, password = split_login(url, login)
        self._urls = tuple(shown.split(",")) if shown else ()
        if not self._urls:
            raise RegistryUnavailableError(
                "the URL of the registry is empty.", fix="http://localhost:8081, for instance"
            )
        self._login = login
        self._headers = _authorization(user, password)
        self._opener = _opener(self._urls, login)
        self._timeout = timeout
        self._by_id: dict[int, Schema] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RegistryClient({self.url!r})"

    @property
    def url(self) -> str:
        """Where it is, without credentials."""
        return ",".join(self._urls)

    def access(self) -> dict[str, Any]:
        """How another process reaches the same registry. It holds secrets: never to be shown."""
        files = {"ca": self._login.ca, "certificate": self._login.certificate, "key": self._login.key}
        return {
            "urls": list(self._urls),
            "authorization": self._headers.get("Authorization"),
            **{name: None if file is None else str(file.resolve()) for name, file in files.items()},
        }

    def schema_by_id(self, id: int) -> Schema:
        """The schema of an id; asked for once."""
        with self._lock:
            known = self._by_id.get(id)
        if known is not None:
            return known
        schema = _schema(self.request("GET", f"/schemas/ids/{id}"), id)
        with self._lock:
            return self._by_id.setdefault(id, schema)

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """The names of all subjects."""
        return [str(name) for name in self.request("GET", "/subjects", deleted=deleted)]

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject."""
        return [int(version) for version in self.request("GET", f"/subjects/{_quoted(subject)}/versions")]

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> RegisteredSchema:
        """One version of a subject. References may point to versions that are deleted since: hence `deleted`."""
        found = self.request("GET", f"/subjects/{_quoted(subject)}/versions/{version}", deleted=deleted)
        return _registered(found)

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of a subject."""
        return self.version(subject, "latest")

    def register(
        self,
        subject: str,
        text: str,
        type: SchemaType | str = SchemaType.AVRO,
        references: Sequence[Reference] = (),
        *,
        normalize: bool = False,
    ) -> int:
        """Registers a schema, unless it is there already; returns its id."""
        body = _body(text, type, references)
        return int(self.request("POST", f"/subjects/{_quoted(subject)}/versions", body, normalize=normalize)["id"])

    def lookup(
        self,
        subject: str,
        text: str,
        type: SchemaType | str = SchemaType.AVRO,
        references: Sequence[Reference] = (),
        *,
        normalize: bool = False,
    ) -> RegisteredSchema | None:
        """The version under which exactly this schema is registered, if it is."""
        try:
            body = _body(text, type, references)
            return _registered(self.request("POST", f"/subjects/{_quoted(subject)}", body, normalize=normalize))
        except ContractNotFoundError:
            return None

    def compatible(
        self,
        subject: str,
        text: str,
        type: SchemaType | str = SchemaType.AVRO,
        references: Sequence[Reference] = (),
        *,
        version: int | str | None = None,
    ) -> list[str]:
        """What the schema would break under the subject's mode, one sentence each. Empty: nothing.

        Without `version` it is compared with as many versions as the mode asks for. A new subject breaks nobody.
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions" + ("" if version is None else f"/{version}")
        try:
            answer = self.request("POST", path, _body(text, type, references), verbose=True)
        except ContractNotFoundError:
            return []
        if answer["is_compatible"]:
            return []
        return [str(message) for message in answer.get("messages") or ["the registry gives no reason"]]

    def compatibility(self, subject: str | None = None) -> str:
        """The compatibility mode of a subject (that of the registry if it has none of its own), or of the registry."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        return str(self.request("GET", path, defaultToGlobal=True)["compatibilityLevel"])

    def set_compatibility(self, mode: str, subject: str | None = None) -> str:
        """Sets it, for one subject or for all that have none of their own."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        return str(self.request("PUT", path, {"compatibility": mode})["compatibility"])

    def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> list[int]:
        """Deletes a subject or one of its versions; returns what is gone. `permanent` needs a plain delete before."""
        path = f"/subjects/{_quoted(subject)}" + ("" if version is None else f"/versions/{version}")
        gone = self.request("DELETE", path, permanent=permanent)
        return [int(each) for each in gone] if isinstance(gone, list) else [int(gone)]

    def resolve_references(self, schema: Schema) -> dict[str, Schema]:
        """Everything that a schema refers to, by name, each after the ones that it needs itself."""
        return resolve_references(
            schema.references, lambda subject, version: self.version(subject, version, deleted=True)
        )

    def request(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """One call of the REST API; what the registry says is wrong is raised as an error of ours."""
        asked = {name: _flag(value) for name, value in query.items() if value not in (None, False)}
        target = path + (f"?{urlencode(asked)}" if asked else "")
        data = None if body is None else json.dumps(body).encode()
        problem: object = None
        for attempt in range(_ATTEMPTS):
            for url in self._urls:
                try:
                    return self._send(method, url + target, data)
                except HTTPError as error:
                    if error.code not in _AGAIN:
                        raise _translated(error, self.url) from None
                    problem = f"it answers {error.code}"
                except (URLError, OSError) as error:
                    # A certificate that is not trusted does not get better by asking again.
                    if isinstance(getattr(error, "reason", error), ssl.SSLError):
                        raise self._unavailable(getattr(error, "reason", error)) from None
                    problem = getattr(error, "reason", error)
            if attempt + 1 < _ATTEMPTS:
                time.sleep(_PAUSE_SECONDS * 2**attempt)
        raise self._unavailable(problem)

    def _send(self, method: str, url: str, data: bytes | None) -> Any:
        headers = {"Accept": f"{CONTENT_TYPE}, application/json", **self._headers}
        if data is not None:
            headers["Content-Type"] = CONTENT_TYPE
        with self._opener.open(Request(url, data, headers, method=method), timeout=self._timeout) as answer:
            text = answer.read(_MOST_BYTES)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise RegistryRefusedError(
                f"what answers at {self.url} is no schema registry.", why="Its answer is no JSON.", fix="check the URL"
            ) from None

    def _unavailable(self, problem: object) -> RegistryUnavailableError:
        return RegistryUnavailableError(
            f"no schema registry answers at {self.url}.",
            why=f"{problem}".rstrip(".") + ".",
            fix="start the embedded one: headrace registry start\nor check the URL given with --registry",
        )


def _translated(error: HTTPError, url: str) -> ContractError:
    with error:
        text = error.read(_MOST_BYTES)
    try:
        told = json.loads(text)
        code, message = int(told["error_code"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        code, message = error.code, error.reason
    said = f"The registry at {url} says: {message} ({code})"
    if error.code in (401, 403):
        return RegistryLoginError(
            f"the registry at {url} does not let you in.",
            why=said,
            fix="put user and password into HEADRACE_REGISTRY_AUTH, as user:password",
        )
    if error.code == 404:
        return ContractNotFoundError("the registry does not have it.", why=said, fix="headrace contracts list")
    if error.code == 409:
        _, _, details = message.partition("details: ")
        parts = re.split(r"(?<=}),\s*(?={)", details.removeprefix("[").removesuffix("]"))
        return IncompatibleContractError(
            "the schema is not compatible with those before it.",
            why="\n".join(reasons(parts)) if details else said,
            fix="change it so that it is, or register it under another subject",
        )
    if error.code == 422:
        return InvalidContractError("the registry can't take this.", why=said)
    return RegistryRefusedError("the registry refused.", why=said)


def _body(text: str, type: SchemaType | str, references: Sequence[Reference]) -> dict[str, object]:
    body: dict[str, object] = {"schema": text, "schemaType": SchemaType.named(type).value}
    if references:
        body["references"] = [reference.to_json() for reference in references]
    return body


def _schema(found: Mapping[str, Any], id: int) -> Schema:
    references = tuple(Reference.from_json(each) for each in found.get("references") or ())
    return Schema(id, SchemaType.named(found.get("schemaType")), str(found["schema"]), references)


def _registered(found: Mapping[str, Any]) -> RegisteredSchema:
    schema = _schema(found, int(found["id"]))
    return RegisteredSchema(
        id=schema.id,
        type=schema.type,
        text=schema.text,
        references=schema.references,
        subject=str(found["subject"]),
        version=int(found["version"]),
    )


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _flag(value: object) -> str:
    return "true" if value is True else str(value)


def _without_login(url: str) -> str:
    """The URL for requests and messages: what stands before an `@` is neither."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RegistryUnavailableError(
            "that is no URL of a registry.", why="It must start with http:// or https:// and name a host."
        )
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def split_login(url: str, login: RegistryLogin) -> tuple[str, str | None, str | None]:
    """The URLs without credentials, the user and the password: those in the first URL, else those of the login.

    >>> split_login("http://ada:s3cret@localhost:8081", RegistryLogin())
    ('http://localhost:8081', 'ada', 's3cret')
    """
    parts = [part for part in url.split(",") if part.strip()]
    shown = ",".join(_without_login(part) for part in parts)
    first = urlsplit(parts[0].strip()) if parts else urlsplit("")
    user = unquote(first.username) if first.username else login.user
    password = unquote(first.password) if first.password else login.password
    return shown, user, password


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()}


def _opener(urls: Sequence[str], login: RegistryLogin) -> OpenerDirector:
    handlers: list[Any] = []
    if all(urlsplit(url).hostname in _LOOPBACK for url in urls):
        handlers.append(ProxyHandler({}))  # a proxy that the environment names can't reach this machine's loopback
    if any(url.startswith("https:") for url in urls):
        context = ssl.create_default_context(cafile=None if login.ca is None else str(login.ca))
        if login.certificate is not None:
            context.load_cert_chain(login.certificate, login.key)
        handlers.append(HTTPSHandler(context=context))
    return build_opener(*handlers)


def _path(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None
