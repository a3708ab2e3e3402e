"""Rows to an HTTP endpoint: one POST each, with an idempotency key, a few at a time, within a budget.

Rows of one key go one after the other, in order; others side by side. What the endpoint refuses (4xx) is the row's
fault and becomes a dead letter. What it can't take now (5xx, 429, no answer) is tried again with back-off and jitter
until the row's budget is spent; then the sink pauses, or, if the user prefers to go on, the row becomes a dead letter
too.
"""

from __future__ import annotations

import http.client
import random
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from headrace.errors import SinkUnavailableError
from headrace.pipeline.schema import Schema
from headrace.pipeline.sink import Guarantee
from headrace.sinks.protocol import ID, Batch, Refuse, StoreSink
from headrace.sinks.text import is_nested, to_json

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_COOL_OFF = 1.0
_RETRY = (408, 425, 429)


class WhenDown(StrEnum):
    """What becomes of a row whose budget is spent."""

    PAUSE = "pause"
    DEAD_LETTER = "dead_letter"


class _Unreachable(Exception):
    """The endpoint does not take the row now."""


class _Refused(Exception):
    """The endpoint will never take the row."""


@dataclass(frozen=True, repr=False)
class WebhookSink(StoreSink):
    """See `hr.sinks.webhook`."""

    kind: ClassVar[str] = "webhook"

    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    concurrency: int
    timeout_ms: int
    budget_ms: int
    breaker: int
    """So many rows that fail in a row, and none is tried for a while."""
    when_down: WhenDown

    @property
    def target(self) -> str:
        """The endpoint without user, password and query, which may be secrets."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"

    def secrets(self) -> tuple[str, ...]:
        """The values of the headers, and what the URL holds beside its place."""
        parts = urlsplit(self.url)
        held = (parts.password, parts.query, *(value for _, value in self.headers))
        return tuple(secret for secret in held if secret)

    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """At least once, with an id."""
        down = "the query pauses" if self.when_down is WhenDown.PAUSE else "the row goes to the dead letters"
        return Guarantee(
            "at least once",
            "a row counts as delivered when the endpoint answers 2xx; it comes again after a crash, with the same"
            f" Idempotency-Key; what is refused (4xx) goes to the dead letters; if the endpoint is down, {down}",
            "an endpoint that answers 2xx before it has kept the row; to get each row once it must know the keys",
        )

    def check(self, columns: Schema | None) -> None:
        """Whether something listens there."""
        connection = self._connect()
        try:
            connection.connect()
        except OSError as problem:
            raise SinkUnavailableError(
                f"nothing answers at the endpoint of sink `{self.name}`: {self.target}.",
                why=self.mask(str(problem)),
                fix="start it, or correct the URL in hr.sinks.webhook(...).",
            ) from None
        finally:
            connection.close()

    def write(
        self, batch: Batch, partition: int, rows: Iterator[pa.RecordBatch], refuse: Refuse
    ) -> dict[str, Any] | None:
        """In lanes: the rows of a key are in one lane, and a lane sends one row at a time."""
        breaker = _Breaker(min(self.breaker, self.concurrency))
        sent = 0
        with ThreadPoolExecutor(self.concurrency) as pool:
            for chunk in rows:
                lanes: list[list[int]] = [[] for _ in range(self.concurrency)]
                listed = chunk.to_pylist()
                for number, row in enumerate(listed):
                    key = hash(tuple(str(row[name]) for name in self.key)) if self.key else number
                    lanes[key % self.concurrency].append(number)
                work = [pool.submit(self._lane, batch, listed, lane, breaker) for lane in lanes if lane]
                for lane_refused in [future.result() for future in work]:
                    for number, reason in lane_refused:
                        refuse(chunk.slice(number, 1), reason)
                sent += chunk.num_rows
        return {"rows": sent}

    def _lane(
        self, batch: Batch, rows: list[dict[str, Any]], lane: list[int], breaker: _Breaker
    ) -> list[tuple[int, str]]:
        """Send the lane's rows; returns those that will never be taken."""
        nested = [c.name for c in batch.columns if is_nested(c)]
        refused: list[tuple[int, str]] = []
        connection = self._connect()
        try:
            for number in lane:
                row = rows[number]
                body = to_json({name: row[name] for name in batch.names}, nested).encode()
                try:
                    self._deliver(connection, row[ID], body, breaker)
                except _Refused as problem:
                    refused.append((number, str(problem)))
                except _Unreachable as problem:
                    if self.when_down is WhenDown.PAUSE:
                        raise RuntimeError(f"{self.target} {problem}") from problem
                    refused.append((number, f"{self.target} {problem}"))
        finally:
            connection.close()
        return refused

    def _deliver(self, connection: http.client.HTTPConnection, id: str, body: bytes, breaker: _Breaker) -> None:
        """Send one row until it is taken or refused, or its budget is spent."""
        end = time.monotonic() + (0 if breaker.spent else self.budget_ms / 1000)
        wait = _FIRST_WAIT
        while True:
            problem = breaker.problem() or self._post(connection, id, body)
            if problem is None:
                breaker.succeeded()
                return
            breaker.failed(id, problem)
            left = end - time.monotonic()
            if left <= 0:
                breaker.gave_up()
                raise _Unreachable(problem)
            # Full jitter: clients that failed together do not come back together.
            time.sleep(min(left, random.uniform(0, wait)))
            wait = min(wait * 2, _LONGEST_WAIT)

    def _post(self, connection: http.client.HTTPConnection, id: str, body: bytes) -> str | None:
        """One attempt: None if the row was taken, else what was wrong."""
        parts = urlsplit(self.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json", **dict(self.headers), "Idempotency-Key": id}
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as problem:
            connection.close()
            return f"does not answer ({type(problem).__name__}: {problem})"
        if 200 <= answer.status < 300:
            return None
        if 400 <= answer.status < 500 and answer.status not in _RETRY:
            raise _Refused(f"the endpoint refuses the row: {answer.status} {answer.reason}")
        return f"answers {answer.status} {answer.reason}"

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        seconds = self.timeout_ms / 1000
        host = parts.hostname or "localhost"
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, parts.port, timeout=seconds)


class _Breaker:
    """Opens when several rows fail and none is taken: for a while nobody asks an endpoint that is down.

    It counts rows, not attempts: one row that the endpoint always fails at must not stop the others.
    """

    def __init__(self, rows: int) -> None:
        self._limit = max(2, rows)
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._open_until = 0.0
        self._last = ""
        self.spent = False
        """Whether a row has waited for all of its budget while it was open: then others need not."""

    def problem(self) -> str | None:
        """Why not to ask now; None if asking is allowed."""
        with self._lock:
            return self._last if time.monotonic() < self._open_until else None

    def failed(self, id: str, problem: str) -> None:
        """Take note of a failure."""
        with self._lock:
            self._failing.add(id)
            self._last = problem
            if len(self._failing) >= self._limit and time.monotonic() >= self._open_until:
                self._open_until = time.monotonic() + _COOL_OFF

    def gave_up(self) -> None:
        """Take note of a row whose budget is spent."""
        with self._lock:
            self.spent = len(self._failing) >= self._limit

    def succeeded(self) -> None:
        """Close it."""
        with self._lock:
            self._failing.clear()
            self._open_until = 0.0
            self.spent = False
