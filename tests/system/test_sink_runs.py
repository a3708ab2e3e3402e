"""Pipelines with sinks of every kind, as they run: repeated batches, real time beside them, tables that batch reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headrace as hr
from examples.lakehouse.generator import Shop, orders
from examples.lakehouse.pipeline import lakehouse
from headrace.cli.main import main
from headrace.engine.settings import Mode
from headrace.log.topics import Topics
from tests.system.records import Sent, produce
from tests.system.running import Engine, fresh, wait_for
from tests.system.sink_stores import Endpoint, Redis

Topic = Callable[..., str]
USERS = ("ann", "bob b/50%", "é=ü")
SCHEMA = "id INT, user STRING, amount DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>"


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    server = Redis()
    yield server
    server.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.stop()


def payments(start: int, stop: int) -> list[Sent]:
    return [
        Sent.row(
            {
                "id": i,
                "user": USERS[i % 3],
                "amount": Decimal(f"{i}.50"),
                "at": f"2024-01-01T10:{i // 60:02}:{i % 60:02}Z",
                "tags": [f"t{i}"],
            },
            key=USERS[i % 3],
            partition=i % 3 % 2,
        )
        for i in range(start, stop)
    ]


def forget_the_last_commit(checkpoint: Path, sink: str) -> None:
    """As after a crash at the worst moment: the store has the last batch, but Spark has not noted it yet."""
    (commits,) = checkpoint.glob(f"sinks/*-to-{sink}/*/spark/commits")
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in commits.iterdir():
        if file.name.strip(".").removesuffix(".crc") == str(last):
            file.unlink()


def test_one_stream_into_every_kind_of_store_and_each_row_once_though_batches_repeat(
    engine: Engine, topic: Topic, redis: Redis, endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, name, lake = topic("payments", partitions=2), fresh("payments"), tmp_path / "lake"
    pipeline = hr.Pipeline(name)
    rows = pipeline.read(source, schema=SCHEMA)
    rows.write(hr.sinks.delta(lake / "payments", partition_by="user"))
    rows.select("user", "id", "amount").write(hr.sinks.delta(lake / "latest", key="user"))
    rows.write(hr.sinks.files(lake / "files"))
    rows.write(hr.sinks.redis(redis.url, key="id", prefix=f"{name}:"))
    rows.write(endpoint.sink(name, key="user"))
    rows.write(hr.sinks.console(rows=2))
    checkpoint = tmp_path / "checkpoint"
    produce(engine.bootstrap, source, payments(0, 30))
    engine.replay(pipeline, checkpoint)
    for sink in ("delta-payments", "delta-latest", "files-files", f"redis-{name}", f"webhook-127.0.0.1-{name}"):
        forget_the_last_commit(checkpoint, sink)
    produce(engine.bootstrap, source, payments(30, 40))
    engine.replay(pipeline, checkpoint)

    table = hr.sinks.delta.read(engine.spark, lake / "payments")
    assert sorted(row.id for row in table.collect()) == list(range(40))
    assert {row.user for row in table.collect()} == set(USERS)
    first = table.where("id = 7").collect()[0]
    assert (first.user, first.amount, first.tags) == ("bob b/50%", Decimal("7.50"), ["t7"])
    assert sorted(row.id for row in hr.sinks.delta.read(engine.spark, lake / "payments", version=1).collect()) == [
        *range(30)
    ]
    latest = hr.sinks.delta.read(engine.spark, lake / "latest").orderBy("user").collect()
    assert [(row.user, row.id) for row in latest] == [("ann", 39), ("bob b/50%", 37), ("é=ü", 38)]
    stored = engine.spark.read.parquet(str(lake / "files"))
    assert sorted(row.id for row in stored.collect()) == list(range(40))
    assert sorted(row["id"] for row in redis.rows(name)) == list(range(40))
    assert endpoint.ids(name) == list(range(40))
    assert "amount" in capsys.readouterr().out


def test_a_table_is_widened_compacted_and_cleaned(
    engine: Engine, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, path = topic("bronze", partitions=2), tmp_path / "bronze"

    def run(schema: str, rows: list[Sent]) -> None:
        pipeline = hr.Pipeline("widened")
        pipeline.read(source, schema=schema).write(hr.sinks.delta(path))
        produce(engine.bootstrap, source, rows)
        engine.replay(pipeline, tmp_path / "checkpoint", max_rows=4)

    run("id INT", payments(0, 12))
    before = len(list(path.glob("*.parquet")))
    run("id INT, amount DECIMAL(10,2)", payments(12, 14))
    widened = hr.sinks.delta.read(engine.spark, path)
    assert widened.columns == ["id", "amount"]
    assert widened.where("amount is null").count() == 12
    assert widened.where("id = 13").collect()[0].amount == Decimal("13.50")

    (path / "headrace-orphan.zstd.parquet").write_bytes(b"left behind by a task that died")
    done = hr.sinks.delta.compact(path)
    assert done.removed >= before
    assert done.added == 1
    assert sorted(row.id for row in hr.sinks.delta.read(engine.spark, path).collect()) == list(range(14))
    with pytest.raises(SystemExit):
        main(["tables", "vacuum", str(path), "--older-than", "0s", "--dry-run", "--output", "json"])
    told = json.loads(capsys.readouterr().out)
    assert "headrace-orphan.zstd.parquet" in told["files"]
    assert (path / "headrace-orphan.zstd.parquet").exists()
    hr.sinks.delta.vacuum(path, older_than="0s")
    assert len(list(path.glob("*.parquet"))) == 1
    assert sorted(row.id for row in hr.sinks.delta.read(engine.spark, path).collect()) == list(range(14))
    with pytest.raises(SystemExit):
        main(["tables", "history", str(path), "--output", "json"])
    versions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "OPTIMIZE" in {version["operation"] for version in versions}


def test_small_files_are_compacted_on_the_way(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    source, path = topic("small", partitions=1), tmp_path / "small"
    pipeline = hr.Pipeline(fresh("small"))
    pipeline.read(source, schema="id INT").write(hr.sinks.delta(path, compact_every=5))
    produce(engine.bootstrap, source, [Sent.row({"id": i}) for i in range(12)])
    engine.replay(pipeline, tmp_path / "checkpoint", max_rows=1)
    from deltalake import DeltaTable

    table = DeltaTable(path)
    assert len(table.file_uris()) < 8
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(12))


def test_a_pipeline_in_real_time_feeds_a_store_beside_it(
    engine: Engine, topic: Topic, redis: Redis, tmp_path: Path
) -> None:
    source, name = topic("realtime", partitions=1), fresh("realtime")
    pipeline = hr.Pipeline(name)
    timed = pipeline.read(source, schema="id INT, user STRING, at TIMESTAMP").event_time("at")
    activity = timed.key_by("user").rolling("activity", n=hr.last("1h").count())
    activity.select("user", "id", "n", double=F.col("n") * 2).write(
        hr.sinks.redis(redis.url, key="id", prefix=f"{name}:", every="50ms")
    )
    with engine.live(pipeline, Mode.REALTIME, tmp_path, interval_ms=60_000) as told:
        produce(
            engine.bootstrap,
            source,
            [Sent.row({"id": i, "user": "ann", "at": "2024-01-01T10:00:00Z"}) for i in range(5)],
        )
        wait_for(lambda: len(held(redis, name)) == 5, "the rows in Redis")
    assert held(redis, name)["4"] == {"user": "ann", "id": "4", "n": "5", "double": "10"}
    modes = {record.query: record.mode for record in told.records}
    assert modes[f"{name}-to-redis-{name}"] == "microbatch"


def held(redis: Redis, name: str) -> dict[str, dict[str, str]]:
    import redis as client

    with client.Redis.from_url(redis.url, decode_responses=True) as connection:
        return {key.split(":")[1]: connection.hgetall(key) for key in connection.keys(f"{name}:*")}


@pytest.mark.soak
def test_the_lakehouse_example_agrees_with_a_batch_over_the_same_orders(engine: Engine, tmp_path: Path) -> None:
    Topics(engine.bootstrap).create("orders", partitions=2)
    sent = list(orders(Shop(count=200)))
    rows = [{**o._asdict(), "at": o.at.isoformat()} for o in sent]
    produce(engine.bootstrap, "orders", [Sent.row(r, key=r["id"], partition=i % 2) for i, r in enumerate(rows)])
    pipeline = lakehouse(tmp_path / "lake")
    engine.replay(pipeline, tmp_path / "checkpoint", max_rows=60)

    def table(name: str) -> DataFrame:
        return hr.sinks.delta.read(engine.spark, tmp_path / "lake" / name)

    assert Counter(row.id for row in table("bronze/orders").collect()) == Counter(o.id for o in sent)
    valid = {o.id: o for o in sent if o.customer is not None and o.total > 0}
    late = {r.row["id"] for r in engine.read("lake.late")}
    assert sorted(row.id for row in table("silver/orders").collect()) == sorted(set(valid) - late)
    closed = {(r.country, r.window_start.date()): (r.orders, r.revenue) for r in table("gold/revenue").collect()}
    expected: dict[tuple[str, date], tuple[int, Decimal]] = {}
    for order in valid.values():
        count, total = expected.get((order.country, order.at.date()), (0, Decimal(0)))
        expected[order.country, order.at.date()] = count + 1, total + order.total
    assert closed
    assert {day: figures for day, figures in expected.items() if day in closed} == closed
