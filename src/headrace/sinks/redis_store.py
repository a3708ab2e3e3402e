"""Rows into Redis: one hash per key, in pipelined transactions that carry how far the batch has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

from headrace.errors import SinkUnavailableError
from headrace.pipeline.schema import Schema
from headrace.pipeline.sink import Guarantee
from headrace.sinks.protocol import TAKES_AWAY, Batch, Refuse, StoreSink, client
from headrace.sinks.text import to_text

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 500
"""Of one transaction: Redis serves nobody else meanwhile."""
_SECONDS = 10


@dataclass(frozen=True, repr=False)
class RedisSink(StoreSink):
    """See `hr.sinks.redis`.

    Each transaction also sets a marker (batch, rows so far). A repeated batch begins after those; a task that wakes up
    late finds that its marker has moved, and its transaction fails as a whole.
    """

    kind: ClassVar[str] = "redis"
    applies_changes: ClassVar[bool] = True

    url: str = field(repr=False)
    prefix: str
    ttl_ms: int | None

    @property
    def target(self) -> str:
        """The keys and the server, without a password."""
        parts = urlsplit(self.url)
        place = parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
        return f"{self.prefix}<{','.join(self.key)}> at {place}"

    def secrets(self) -> tuple[str, ...]:
        """The password, as written and as read."""
        password = urlsplit(self.url).password
        return () if not password else tuple(dict.fromkeys((self.url, password, unquote(password))))

    @property
    def needs_ids(self) -> bool:
        """No: rows have a key."""
        return False

    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """Exactly once, as far as Redis keeps what it has acknowledged."""
        return Guarantee(
            "exactly once",
            "each transaction sets its rows and a marker (query, partition, batch, row); a repeated batch goes on after"
            " it, and a repeated record sets the same hash again",
            "a Redis that loses acknowledged writes in a crash (no appendfsync always); evicted keys; Redis Cluster",
        )

    def check(self, columns: Schema | None) -> None:
        """Whether the server answers."""
        connection = self._connect()
        try:
            connection.ping()
        except client("redis", "redis").RedisError as problem:
            raise SinkUnavailableError(
                f"the Redis of sink `{self.name}` does not answer: {self.target}.",
                why=self.mask(str(problem)),
                fix="start it, or correct the address and password in hr.sinks.redis(...).",
            ) from None
        finally:
            connection.close()

    def write(
        self, batch: Batch, partition: int, rows: Iterator[pa.RecordBatch], refuse: Refuse
    ) -> dict[str, Any] | None:
        """The rows in transactions of a few hundred, in order."""
        connection = self._connect()
        try:
            marker = f"headrace:{batch.writer}:{partition}"
            place = connection.get(marker)
            at, done = (int(n) for n in place.split(b":")) if place else (-1, 0)
            if at > batch.number:
                return {"skipped": True}
            seen = 0
            skip = done if at == batch.number else 0
            for chunk in rows:
                for start in range(0, chunk.num_rows, _ROWS):
                    part = chunk.slice(start, _ROWS)
                    seen += part.num_rows
                    if seen <= skip:
                        continue
                    after = f"{batch.number}:{seen}".encode()
                    self._put(connection, batch, part, marker, place, after)
                    place = after
            return {"rows": seen - skip}
        finally:
            connection.close()

    def _put(
        self, connection: Any, batch: Batch, rows: pa.RecordBatch, marker: str, before: bytes | None, after: bytes
    ) -> None:
        """One transaction; it fails if the marker is not what it was."""
        kind = batch.changes
        names = [name for name in batch.names if name != kind]
        with connection.pipeline(transaction=True) as pipe:
            pipe.watch(marker)
            if pipe.get(marker) != before:
                raise RuntimeError(f"another task writes for {batch.writer}")
            pipe.multi()
            for row in rows.to_pylist():
                name = self.prefix + ":".join(to_text(row[column]) for column in self.key)
                pipe.delete(name)
                if kind is not None and row[kind] in TAKES_AWAY:
                    continue
                pipe.hset(name, mapping={n: to_text(row[n]) for n in names if row[n] is not None})
                if self.ttl_ms is not None:
                    pipe.pexpire(name, self.ttl_ms)
            pipe.set(marker, after)
            pipe.execute()

    def _connect(self) -> Any:
        redis = client("redis", "redis")
        return redis.Redis.from_url(self.url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS)
