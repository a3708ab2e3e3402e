"""The contract of sinks, on real stores: what is promised of every sink is asked of every sink.

Whoever adds a sink adds its store to `sink_stores.all_stores`.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.schema import Column
from tests.system.running import fresh
from tests.system.sink_playing import COLUMNS, POINTS, batch, crash, play, row
from tests.system.sink_stores import KEYED, NAMES, SECRET, Endpoint, Store, all_stores

ROWS = [[row(i) for i in range(8)], [row(i) for i in range(8, 12)]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Store]]:
    with all_stores(tmp_path_factory.mktemp("stores")) as found:
        assert tuple(store.name for store in found) == NAMES
        yield {store.name: store for store in found}


@pytest.fixture(params=NAMES)
def store(stores: dict[str, Store], request: pytest.FixtureRequest) -> Store:
    return stores[request.param]


def test_a_repeated_batch_changes_nothing(store: Store) -> None:
    table = fresh("repeated")
    sink = store.sink(table)
    play(sink, batch(0), ROWS)
    play(sink, batch(0), ROWS)
    play(sink, batch(1), [[row(20)], [row(21)]])
    play(sink, batch(1), [[row(20)], [row(21)]])
    assert store.ids(table) == [*range(12), 20, 21]


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_between_data_and_commit(store: Store, point: str, tmp_path: Path) -> None:
    table = fresh("killed")
    sink = store.sink(table)
    play(sink, batch(0), [[row(100)]])
    crash(tmp_path, sink, batch(1), ROWS, point)
    play(sink, batch(1), ROWS)
    play(sink, batch(2), [[row(200)]])
    assert store.ids(table) == [*range(12), 100, 200]


@pytest.mark.parametrize("store", [name for name in NAMES if name in KEYED], indirect=True)
def test_changes_are_applied_in_their_order(store: Store) -> None:
    columns = (*COLUMNS, Column("row_kind", "string"))
    table = fresh("changes")
    sink = store.sink(table)

    def change(id: int, kind: str, note: str) -> dict[str, Any]:
        return row(id, note=note, row_kind=kind)

    def apply(number: int, *changes: dict[str, Any]) -> None:
        # As the engine does it for stores that want the last change of a key only.
        listed = list({c["id"]: c for c in changes}.values()) if sink.latest_only else list(changes)
        play(sink, batch(number, columns=columns), [listed])

    def held() -> dict[int, str]:
        return {found["id"]: found["note"] for found in store.rows(table)}

    apply(0, change(1, "+I", "a"), change(2, "+I", "b"), change(1, "-U", "a"), change(1, "+U", "a2"))
    assert held() == {1: "a2", 2: "b"}
    apply(1, change(2, "-D", "b"), change(3, "+I", "c"), change(3, "-D", "c"), change(4, "+I", "d"))
    assert held() == {1: "a2", 4: "d"}
    apply(2, change(2, "+I", "again"), change(1, "+U", "a3"), change(1, "-D", "a3"), change(9, "-D", "unknown"))
    assert held() == {2: "again", 4: "d"}


def test_a_store_that_is_down_loses_nothing(store: Store) -> None:
    table = fresh("down")
    sink = store.sink(table)
    play(sink, batch(0), [[row(50)]])
    store.stop()
    try:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - each client has its own
            play(sink, batch(1), ROWS)
        assert SECRET not in sink.mask(str(raised.value))
    finally:
        store.start()
    play(sink, batch(1), ROWS)
    assert store.ids(table) == [*range(12), 50]


def test_values_come_back_as_they_were(store: Store) -> None:
    table = fresh("values")
    rows = [
        row(1),
        row(2, amount=None, at=None, note=None, tags=None),
        row(3, note="", tags=[]),
        row(4, note='a "quote", a\nline, \\N, 日本語 🚀', amount=Decimal("-99999999.99"), tags=['x"y', "z,"]),
    ]
    play(store.sink(table), batch(0), [rows])
    found = sorted(
        ({name: r.get(name) for name in rows[0]} for r in store.rows(table)), key=lambda r: int(r["id"] or 0)
    )
    assert found == rows


def test_a_new_column_is_taken_or_refused_but_never_dropped(store: Store) -> None:
    table = fresh("wider")
    sink = store.sink(table)
    play(sink, batch(0), [[row(1)]])
    wider = (*COLUMNS, Column("extra", "string"))
    if store.name.startswith("postgres"):
        with pytest.raises(Exception, match="no column `extra`"):
            play(sink, batch(1, columns=wider), [[row(2, extra="x")]])
        sink = replace(sink, add_columns=True)  # type: ignore[call-arg]
    play(sink, batch(1, columns=wider), [[row(2, extra="x")]])
    assert store.ids(table) == [1, 2]


def test_no_secret_is_shown(store: Store) -> None:
    sink = store.sink("secrets")
    assert SECRET not in f"{sink} {sink!r} {sink.target} {sink.guarantee(repeats=True, ids=False)} {sink.problems}"
    assert pickle.loads(pickle.dumps(sink)) == sink  # noqa: S301 - made on the same line


def test_a_check_says_that_a_store_is_down_and_not_its_secret(store: Store) -> None:
    sink = store.sink(fresh("checked"))
    sink.check(None)
    store.stop()
    try:
        with pytest.raises(Exception, match="sink `") as raised:
            sink.check(None)
    finally:
        store.start()
    assert SECRET not in str(raised.value)


def test_what_an_endpoint_refuses_is_refused_and_what_it_fails_at_is_tried_again(stores: dict[str, Store]) -> None:
    endpoint = stores["webhook"]
    assert isinstance(endpoint, Endpoint)
    table = fresh("refusing")
    endpoint.failing = {3: 422, 5: 503}
    try:
        played = play(endpoint.sink(table, when_down="dead_letter"), batch(0), ROWS)
        assert [id for id, _ in sorted(played.refused)] == [3, 5]
        assert "422" in dict(played.refused)[3]
        assert "503" in dict(played.refused)[5]
        with pytest.raises(RuntimeError, match="503"):
            play(endpoint.sink(fresh("pausing")), batch(0), ROWS)
    finally:
        endpoint.failing = {}
    assert endpoint.ids(table) == [i for i in range(12) if i not in (3, 5)]


def test_rows_for_an_endpoint_that_is_down_go_to_the_dead_letters_if_so_wished(stores: dict[str, Store]) -> None:
    endpoint = stores["webhook"]
    assert isinstance(endpoint, Endpoint)
    sink = endpoint.sink(fresh("given-up"), when_down="dead_letter", budget="1s", concurrency=2)
    endpoint.stop()
    try:
        played = play(sink, batch(0), ROWS)
    finally:
        endpoint.start()
    assert sorted(id for id, _ in played.refused) == list(range(12))
    assert all("does not answer" in reason for _, reason in played.refused)


def test_rows_of_a_key_reach_an_endpoint_in_their_order(stores: dict[str, Store]) -> None:
    endpoint = stores["webhook"]
    assert isinstance(endpoint, Endpoint)
    table = fresh("ordered")
    rows = [row(i, note=f"key {i % 3}") for i in range(60)]
    play(endpoint.sink(table, key="note", concurrency=4), batch(0), [rows])
    for _, of_key in itertools.groupby(sorted(endpoint.rows(table), key=lambda r: r["note"]), lambda r: r["note"]):
        ids = [r["id"] for r in of_key]
        assert ids == sorted(ids)
    assert len(endpoint.rows(table)) == 60
