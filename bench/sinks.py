"""The Postgres sink: upserts a second from a topic, against COPY into a staging table and one merge, by hand."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from uuid import uuid4

import psycopg
from pyspark.sql import SparkSession

import headrace as hr
from bench.harness import broker, bulk_producer, by_turns, emit, median, note, options, ratio, send, session
from headrace.engine.progress import Progress, Record
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.log.topics import Topics
from tests.system.postgres_server import PostgresServer

SCHEMA = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP, note STRING"
TABLE = "id bigint PRIMARY KEY, customer text, amount numeric(10,2), at timestamptz, note text"
PARTITIONS = 2


def orders(count: int) -> list[dict[str, object]]:
    """Each key twice: half of the upserts insert, half update. Keys come in no order."""
    keys = count // 2
    return [
        {
            "id": i * 7919 % keys,
            "customer": f"customer-{i % 1000}",
            "amount": i % 10_000 / 100,
            "at": f"2024-01-{1 + i % 28:02}T10:00:{i % 60:02}.{i % 1000:03}Z",
            "note": f"order number {i}",
        }
        for i in range(count)
    ]


def load(bootstrap: str, topic: str, rows: list[dict[str, object]]) -> None:
    Topics(bootstrap).create(topic, partitions=PARTITIONS)
    producer = bulk_producer(bootstrap)
    for row in rows:
        send(producer, topic, key=str(row["id"]), value=json.dumps(row), partition=_partition(row))
    producer.flush()


def sink(spark: SparkSession, bootstrap: str, folder: Path, url: str, keys: int, max_rows: int) -> float:
    """The whole way: Kafka, JSON, Arrow, COPY, merge, marker. Seconds in batches, as Spark counts them."""
    table = f"sink_{uuid4().hex[:8]}"
    pipeline = hr.Pipeline(table)
    pipeline.read("orders", schema=SCHEMA).write(hr.sinks.postgres(url, table, key="id"))
    told: list[Record] = []
    with Run(
        pipeline,
        bootstrap=bootstrap,
        mode=Mode.REPLAY,
        checkpoint=folder / table,
        settings=RunSettings(max_rows_per_batch=max_rows),
        on_progress=told.append,
        spark=spark,
    ) as run:
        run.wait()
    with psycopg.connect(url) as connection:
        (written,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
        assert written == keys, f"{written} rows are in the table, not {keys}"
    return sum(record.batch_ms for record in told if isinstance(record, Progress)) / 1000


def bare(url: str, parts: list[list[bytes]]) -> None:
    """COPY and merge by hand: the rows are CSV in memory already, and each partition has a connection of its own."""
    table = f"bare_{uuid4().hex[:8]}"
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE {table} ({TABLE})")
    threads = [threading.Thread(target=_merge, args=(url, table, part)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _merge(url: str, table: str, batches: list[bytes]) -> None:
    with psycopg.connect(url) as connection:
        for batch in batches:
            with connection.transaction():
                connection.execute(f"CREATE TEMP TABLE staging (LIKE {table}) ON COMMIT DROP")
                with connection.cursor().copy("COPY staging FROM STDIN (FORMAT csv)") as copy:
                    for start in range(0, len(batch), 1 << 20):
                        copy.write(batch[start : start + (1 << 20)])
                connection.execute(
                    f"INSERT INTO {table} SELECT * FROM staging ON CONFLICT (id) DO UPDATE SET"
                    " customer = excluded.customer, amount = excluded.amount, at = excluded.at, note = excluded.note"
                )


def csv(rows: list[dict[str, object]]) -> bytes:
    out = io.StringIO()
    for row in rows:
        out.write(",".join(str(value) for value in row.values()) + "\n")
    return out.getvalue().encode()


def parts_of(rows: list[dict[str, object]], max_rows: int) -> list[list[bytes]]:
    """Batches of the same size as the sink's, in which each key is once, as one merge demands."""
    parts: list[list[bytes]] = []
    for partition in range(PARTITIONS):
        own = [row for row in rows if _partition(row) == partition]
        step = max_rows // PARTITIONS
        parts.append([csv(_last(own[start : start + step])) for start in range(0, len(own), step)])
    return parts


def _last(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return list({row["id"]: row for row in rows}.values())


def _partition(row: dict[str, object]) -> int:
    return int(str(row["id"])) % PARTITIONS


def main() -> None:
    a = options(rows=400_000, rounds=3, max_rows=100_000)
    rows = orders(a.rows)
    parts = parts_of(rows, a.max_rows)
    server = PostgresServer()
    try:
        with broker() as (bootstrap, folder):
            note(f"loading {a.rows:,} orders")
            load(bootstrap, "orders", rows)
            spark = session(folder)
            took = by_turns(
                a.rounds,
                {
                    "sink": lambda: sink(spark, bootstrap, folder, server.url, a.rows // 2, a.max_rows),
                    "COPY and merge by hand": lambda: bare(server.url, parts),
                },
            )
            spark.stop()
    finally:
        server.close()
    emit(
        bench="sinks",
        rows=a.rows,
        batch_rows=a.max_rows,
        upserts_per_second=round(a.rows / median(took["sink"])),
        bare_upserts_per_second=round(a.rows / median(took["COPY and merge by hand"])),
        ratio=ratio(took["COPY and merge by hand"], took["sink"]),
        target_per_second=30_000,
    )


if __name__ == "__main__":
    main()
