"""Streams into a real Postgres, from the source and through a step with state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine.settings import Mode
from headrace.errors import SinkError, SinkUnavailableError, UnknownColumnError
from tests.system.postgres_server import PostgresServer
from tests.system.records import Sent, produce
from tests.system.running import Engine, fresh, wait_for

Topic = Callable[..., str]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


def orders(start: int, stop: int) -> list[Sent]:
    return [Sent.row({"id": i % 10, "n": i}, partition=i % 2) for i in range(start, stop)]


def table(postgres: PostgresServer, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return postgres.query(f'SELECT {columns} FROM "{name}" ORDER BY 1, 2')


def test_a_source_is_written_by_key_and_each_row_once(
    engine: Engine, topic: Topic, postgres: PostgresServer, tmp_path: Path
) -> None:
    source, upserts, appends = topic("orders", partitions=2), fresh("upserts"), fresh("appends")
    pipeline = hr.Pipeline(fresh("orders"))
    rows = pipeline.read(source, schema="id INT, n INT").where("n <> 5")
    rows.write(hr.sinks.postgres(postgres.url, upserts, key="ID"))
    rows.write(hr.sinks.postgres(postgres.url, appends))
    produce(engine.bootstrap, source, [*orders(0, 30), Sent(b"{", partition=0)])
    engine.replay(pipeline, tmp_path)
    assert table(postgres, upserts) == [(i, 20 + i) for i in range(10)]
    assert sorted(n for (n,) in postgres.query(f'SELECT n FROM "{appends}"')) == [n for n in range(30) if n != 5]
    produce(engine.bootstrap, source, orders(30, 33))
    engine.replay(pipeline, tmp_path)
    assert table(postgres, upserts)[:4] == [(0, 30), (1, 31), (2, 32), (3, 23)]
    # Two queries read the source; one of them tells of what is no row.
    (letter,) = engine.read(f"{pipeline.name}.dead-letters")
    assert (letter.value, letter.source) == (b"{", (0, 15))


def test_a_changelog_with_state_before_it(
    engine: Engine, topic: Topic, postgres: PostgresServer, tmp_path: Path
) -> None:
    source, name = topic("clicks", partitions=2), fresh("clicks")
    pipeline = hr.Pipeline(name)
    clicks = pipeline.read(source, schema="user STRING, at TIMESTAMP").event_time("at", out_of_order="0s")
    counts = clicks.key_by("user").window(
        "per-minute", hr.tumbling("1m"), n="count(*)", trigger=hr.each(), panes="retracting", allowed_lateness="1h"
    )
    counts.select("user", "window_start", "n", "row_kind").write(
        hr.sinks.postgres(postgres.url, name, key=("user", "window_start"))
    )
    produce(
        engine.bootstrap,
        source,
        [Sent.row({"user": u, "at": f"2024-01-01T10:00:{s:02}Z"}, key=u) for s in range(9) for u in ("ann", "bob")],
    )
    engine.replay(pipeline, tmp_path)
    assert table(postgres, name, '"user", n') == [("ann", 9), ("bob", 9)]


def test_tombstones_of_a_source_delete(engine: Engine, topic: Topic, postgres: PostgresServer, tmp_path: Path) -> None:
    source, one, two = topic("tombstones", partitions=1), fresh("one"), fresh("two")
    pipeline = hr.Pipeline(fresh("tombstones"))
    rows = pipeline.read(source, schema="id INT, n INT").where("n < 100")
    rows.write(hr.sinks.postgres(postgres.url, one, key="id"))
    rows.write(hr.sinks.postgres(postgres.url, two, key=("id", "n")))
    sent = [Sent.row({"id": i, "n": i * 10}, key=str(i)) for i in range(5)]
    gone = [Sent(None, b"1"), Sent(None, b'{"id": 2, "n": 20}'), Sent(None, b"what"), Sent(None, None)]
    produce(engine.bootstrap, source, [*sent, *gone, Sent.row({"id": 1, "n": 11})])
    engine.replay(pipeline, tmp_path)
    assert table(postgres, one) == [(0, 0), (1, 11), (3, 30), (4, 40)]
    assert table(postgres, two) == [(0, 0), (1, 10), (1, 11), (3, 30), (4, 40)]
    letters = engine.read(f"{pipeline.name}.dead-letters")
    assert [(letter.key, letter.reason) for letter in letters] == [
        (b"what", "the payload is null"),
        (None, "the payload is null"),
    ]


def test_the_database_goes_away_and_comes_back(
    engine: Engine, topic: Topic, postgres: PostgresServer, tmp_path: Path
) -> None:
    source, name = topic("away", partitions=2), fresh("away")
    pipeline = hr.Pipeline(name)
    rows = pipeline.read(source, schema="id INT, n INT")
    rows.write(hr.sinks.postgres(postgres.url, name, every="50ms"))
    rows.write(f"{name}-copy")
    produce(engine.bootstrap, source, orders(0, 10))
    with engine.live(pipeline, Mode.MICROBATCH, tmp_path) as told:
        wait_for(lambda: bool(postgres.query(f"SELECT to_regclass('\"{name}\"')")[0][0]), "the table")
        wait_for(lambda: len(table(postgres, name)) == 10, "the first rows")
        postgres.kill()
        produce(engine.bootstrap, source, orders(10, 20))
        told.until(lambda t: any(e.event == "paused" for e in t.events), "the sink to pause")
        told.until(lambda t: sum(b.input_rows for b in t.batches if b.query == name) == 20, "the copy to go on")
        postgres.start()
        told.until(lambda t: any(e.event == "resumed" for e in t.events), "the sink to resume")
        wait_for(lambda: len(table(postgres, name)) == 20, "all rows")
    assert sorted(n for (n,) in postgres.query(f'SELECT n FROM "{name}"')) == list(range(20))
    assert "s3cret-pass" not in " ".join(e.message for e in told.events)


def test_a_run_that_ends_while_its_database_is_away_goes_on_later(
    engine: Engine, topic: Topic, postgres: PostgresServer, tmp_path: Path
) -> None:
    source, name = topic("later", partitions=2), fresh("later")

    def pipeline() -> hr.Pipeline:
        declared = hr.Pipeline(name)
        declared.read(source, schema="id INT, n INT").write(hr.sinks.postgres(postgres.url, name, every="50ms"))
        return declared

    produce(engine.bootstrap, source, orders(0, 10))
    engine.replay(pipeline(), tmp_path)
    postgres.kill()
    produce(engine.bootstrap, source, orders(10, 20))
    # It has run before, so it starts without its database, and waits.
    with engine.live(pipeline(), Mode.MICROBATCH, tmp_path) as told:
        told.until(lambda t: any(e.event == "paused" for e in t.events), "the sink to pause")
    postgres.start()
    engine.replay(pipeline(), tmp_path)
    assert sorted(n for (n,) in postgres.query(f'SELECT n FROM "{name}"')) == list(range(20))


def test_what_does_not_fit_is_said_before_anything_starts(
    engine: Engine, topic: Topic, postgres: PostgresServer, tmp_path: Path
) -> None:
    source = topic("misfit", partitions=1)
    postgres.query("CREATE TABLE narrow (id int PRIMARY KEY)")
    postgres.query("CREATE TABLE loose (id int, n int)")

    def writing(sink: object) -> hr.Pipeline:
        pipeline = hr.Pipeline(fresh("misfit"))
        pipeline.read(source, schema="id INT, n INT").write(sink)  # type: ignore[arg-type]
        return pipeline

    nobody = postgres.url.replace(str(postgres.port), "1")
    for sink, kind, words in (
        (hr.sinks.postgres(nobody, "narrow", key="id"), SinkUnavailableError, "does not answer"),
        (hr.sinks.postgres(postgres.url, "narrow", key="id"), UnknownColumnError, "no column `n`"),
        (hr.sinks.postgres(postgres.url, "loose", key="id"), SinkError, "not unique by id"),
        (hr.sinks.postgres(postgres.url, "none", key="id", create=False), SinkError, "no table"),
    ):
        with pytest.raises(kind, match=words) as raised:
            engine.replay(writing(sink), tmp_path / fresh("none"))
        assert "s3cret-pass" not in str(raised.value)
        assert "test_sink_postgres.py" in str(raised.value)


def test_rows_that_the_table_refuses_are_dead_letters(
    engine: Engine, topic: Topic, postgres: PostgresServer, tmp_path: Path
) -> None:
    source, name = topic("refused", partitions=1), fresh("refused")
    postgres.query(f'CREATE TABLE "{name}" (id int PRIMARY KEY, n int CHECK (n < 1000))')
    pipeline = hr.Pipeline(name)
    pipeline.read(source, schema="id INT, n INT").write(hr.sinks.postgres(postgres.url, name, key="id"))
    rows = [{"id": i, "n": 2000 if i in (3, 700) else i} for i in range(900)]
    produce(engine.bootstrap, source, [*map(Sent.row, rows), Sent.row({"id": None, "n": 1})])
    engine.replay(pipeline, tmp_path)
    assert [i for (i,) in postgres.query(f'SELECT id FROM "{name}" ORDER BY id')] == [
        i for i in range(900) if i not in (3, 700)
    ]
    letters = list({letter.id: letter for letter in engine.read(f"{name}.dead-letters")}.values())
    assert [r.value for r in letters] == [b'{"id": 3, "n": 2000}', b'{"id": 700, "n": 2000}', b'{"id": null, "n": 1}']
    assert "check constraint" in letters[0].reason
    assert letters[2].reason == f"the key `id` of sink `postgres-{name}` is null"
