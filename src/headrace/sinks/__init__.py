"""Stores that a stream can be written to: `stream.write(hr.sinks.postgres(url, table="alerts", key="id"))`.

These are declarations: nothing is connected, and no client library loaded, before the pipeline runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from headrace.pipeline.arguments import Reading
from headrace.pipeline.durations import Duration
from headrace.sinks import delta_tables
from headrace.sinks.console import ConsoleSink
from headrace.sinks.delta_store import DeltaSink
from headrace.sinks.parquet_files import FilesSink
from headrace.sinks.postgres_store import PostgresSink
from headrace.sinks.redis_store import RedisSink
from headrace.sinks.webhook import WebhookSink, WhenDown

__all__ = ["console", "delta", "files", "postgres", "redis", "webhook"]

Key = str | Sequence[str] | None


def postgres(
    url: str,
    table: str,
    key: Key = None,
    *,
    create: bool = True,
    add_columns: bool = False,
    every: Duration = "1s",
    name: str | None = None,
) -> PostgresSink:
    """A table in Postgres, exactly once: `url` is `postgresql://user:password@host:port/database`.

    With a `key`, rows replace each other by it, and a changelog's deletes delete. Without, rows are added, each once,
    told apart by a column `headrace_id`. A missing table is made from the stream's columns (`create`), missing columns
    are added only with `add_columns`. There is at most one batch `every` second.

    >>> import headrace as hr
    >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
    >>> clicks.write(hr.sinks.postgres("postgresql://localhost/shop", table="last_click", key="user"))
    """
    reading = Reading("hr.sinks.postgres")
    if not url.startswith(("postgresql://", "postgres://")):
        fix = 'pass one like "postgresql://user:password@localhost:5432/shop".'
        reading.refuse("hr.sinks.postgres(...) needs the URL of a database.", "It begins with postgresql://.", fix)
    return PostgresSink(
        name or f"postgres-{table}",
        reading.names(key, "key"),
        reading.duration(every, "every", zero=True),
        None,
        url,
        table,
        create,
        add_columns,
        problems=reading.problems,
    )


class _Delta:
    """`hr.sinks.delta`: a sink when called, and what is done with its tables beside the stream."""

    read = staticmethod(delta_tables.read)
    history = staticmethod(delta_tables.history)
    compact = staticmethod(delta_tables.compact)
    vacuum = staticmethod(delta_tables.vacuum)

    def __call__(
        self,
        path: str | Path,
        key: Key = None,
        *,
        partition_by: Key = None,
        add_columns: bool = True,
        compact_every: int = 100,
        every: Duration = "10s",
        name: str | None = None,
    ) -> DeltaSink:
        """A Delta table in a folder, exactly once. It is made if it is not there.

        Without a `key` rows are appended. With one they are merged: rows replace each other, and a changelog's deletes
        delete. A column that the table does not have is added (`add_columns`). Every `compact_every` commits small
        files are written together (0: never). `hr.sinks.delta.read(spark, path)` is the table as a DataFrame.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP, day DATE")
        >>> clicks.write(hr.sinks.delta("lake/clicks", partition_by="day", every="1m"))
        >>> clicks.write(hr.sinks.delta("lake/last_click", key="user"))
        """
        reading = Reading("hr.sinks.delta")
        if "://" in str(path):
            fix = "write to a folder of this machine, or one that is mounted."
            reading.refuse(f"hr.sinks.delta({str(path)!r}) is no folder.", "Object stores are not supported yet.", fix)
        if compact_every < 0:
            reading.refuse(f"hr.sinks.delta(..., compact_every={compact_every}) can't be.", None, "pass 0 or more.")
        return DeltaSink(
            name or f"delta-{_slug(Path(path).name)}",
            reading.names(key, "key"),
            reading.duration(every, "every", zero=True),
            None,
            str(path),
            reading.names(partition_by, "partition_by"),
            add_columns,
            compact_every,
            problems=reading.problems,
        )


delta = _Delta()


def redis(
    url: str,
    key: Key,
    *,
    prefix: str = "",
    ttl: Duration | None = None,
    every: Duration = "200ms",
    name: str | None = None,
) -> RedisSink:
    """Redis, exactly once: each row is a hash under `prefix` and its key, and replaces the one before it.

    Values are text, as in a topic; a null is a field that is not there. A changelog's deletes delete. With a `ttl` a
    hash vanishes so long after it was last written.

    >>> import headrace as hr
    >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
    >>> clicks.write(hr.sinks.redis("redis://localhost", key="user", prefix="last-click:", ttl="24h"))
    """
    reading = Reading("hr.sinks.redis")
    if not url.startswith(("redis://", "rediss://", "unix://")):
        fix = 'pass one like "redis://:password@localhost:6379/0" or "unix:///run/redis.sock".'
        reading.refuse("hr.sinks.redis(...) needs the URL of a server.", None, fix)
    columns = reading.names(key, "key")
    if not columns:
        reading.refuse("hr.sinks.redis(...) needs a key.", "A hash is found by it.", 'pass key="<column>".')
    return RedisSink(
        name or f"redis-{_slug(prefix or '-'.join(columns))}",
        columns,
        reading.duration(every, "every", zero=True),
        None,
        url,
        prefix,
        None if ttl is None else reading.duration(ttl, "ttl"),
        problems=reading.problems,
    )


def webhook(
    url: str,
    *,
    key: Key = None,
    headers: Mapping[str, str] | None = None,
    concurrency: int = 8,
    timeout: Duration = "5s",
    budget: Duration = "30s",
    breaker: int = 5,
    when_down: str = "pause",
    max_rows: int = 1_000,
    every: Duration = "200ms",
    name: str | None = None,
) -> WebhookSink:
    """An HTTP endpoint, at least once: a POST for each row, its JSON as the body, its id as the `Idempotency-Key`.

    Up to `concurrency` requests are under way per partition; rows of one `key` go one after the other. A request may
    take `timeout`, a row with all its attempts `budget`; then the query pauses and begins again (`when_down="pause"`),
    or the row goes to the dead letters ("dead_letter"). What the endpoint refuses with 4xx goes there at once. When
    `breaker` rows have failed and none is taken, nobody asks for a second.

    >>> import headrace as hr
    >>> alerts = hr.Pipeline("demo").read("alerts", schema="card_id STRING, amount DOUBLE")
    >>> alerts.write(hr.sinks.webhook("https://hooks.example/fraud", key="card_id", headers={"Authorization": "..."}))
    """
    reading = Reading("hr.sinks.webhook")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        reading.refuse("hr.sinks.webhook(...) needs a URL.", None, 'pass one like "https://hooks.example/fraud".')
    for option, value in (("concurrency", concurrency), ("breaker", breaker), ("max_rows", max_rows)):
        if value < 1:
            reading.refuse(f"hr.sinks.webhook(..., {option}={value}) can't be.", None, "pass 1 or more.")
    return WebhookSink(
        name or f"webhook-{_slug(f'{parts.hostname}{parts.path}')}",
        reading.names(key, "key"),
        reading.duration(every, "every", zero=True),
        max_rows,
        url,
        tuple((headers or {}).items()),
        concurrency,
        reading.duration(timeout, "timeout"),
        reading.duration(budget, "budget"),
        breaker,
        reading.choice(when_down, WhenDown.PAUSE, "when_down"),
        problems=reading.problems,
    )


def files(path: str | Path, *, every: Duration = "10s", name: str | None = None) -> FilesSink:
    """A folder of Parquet files, exactly once: a file for each batch and partition, which appears when it is whole.

    >>> import headrace as hr
    >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
    >>> clicks.write(hr.sinks.files("lake/clicks", every="1m"))
    """
    reading = Reading("hr.sinks.files")
    interval = reading.duration(every, "every", zero=True)
    folder = str(path)
    return FilesSink(name or f"files-{_slug(Path(path).name)}", (), interval, None, folder, problems=reading.problems)


def console(*, rows: int = 20, every: Duration = "1s", name: str = "console") -> ConsoleSink:
    """The terminal, as JSON lines: the first `rows` of each batch.

    >>> import headrace as hr
    >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
    >>> clicks.write(hr.sinks.console())
    """
    reading = Reading("hr.sinks.console")
    return ConsoleSink(name, (), reading.duration(every, "every", zero=True), None, rows, problems=reading.problems)


def _slug(text: str) -> str:
    """What a name may be made of."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:80] or "sink"
