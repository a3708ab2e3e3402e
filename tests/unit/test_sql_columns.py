"""Which columns SQL text uses. That Spark agrees is in tests/spark/test_sql_columns_like_spark.py."""

from __future__ import annotations

import logging
import threading

import pytest

from headrace.pipeline.sql_columns import sql_paths


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("1", []),
        ("count(*)", []),
        ("amount > 5 -- dear", ["amount"]),
        ("AMOUNT /* dear */ + amount", ["AMOUNT", "amount"]),
        ("a.b.c.d.e.f = 1", ["a.b.c.d.e.f"]),
        ("here['lat'] + `here`.`lon`", ["here.lat", "here.lon"]),
        ("items[0].price + items[i]", ["items", "i"]),
        ("transform(xs, (x, i) -> x.y + i * j)", ["xs", "j"]),
        ("aggregate(xs, 0, (total, x) -> total + x, total -> total / n)", ["xs", "n"]),
        # Spark takes no notice of the case of a lambda's variables.
        ("exists(items, Item -> item.price > 5 AND ITEM['sold'] AND items2.x)", ["items", "items2.x"]),
        ("aggregate(a, 0, (Acc, x) -> acc + X + b)", ["a", "b"]),
        ("transform(xs, X -> transform(ys, Y -> x + y + z)) = x", ["xs", "ys", "z", "x"]),
        ("transform(xs, (x, `odd I`) -> x['n'][`odd i`])", ["xs"]),
        ("sum(x) FILTER (WHERE y > 3)", ["x", "y"]),
        ("any(x) AND every(y) AND z LIKE ANY ('a', t)", ["x", "y", "z", "t"]),
        ("CASE WHEN a THEN b ELSE c END", ["a", "b", "c"]),
        ("timestampadd(HOUR, 1, at) > at + INTERVAL 5 MINUTES", ["at"]),
        ("timediff(HOUR, a, b) + timediff(minute, b, c)", ["a", "b", "c"]),
        ("timediff(hour, b)", ["hour", "b"]),
        ("extract(DOW FROM at)", ["at"]),
        ("CAST(a AS STRUCT<b: INT>).b", ["a"]),
        ("named_struct('a', b)", ["b"]),
        # Collations are no columns.
        ("name COLLATE unicode_ci = x", ["name", "x"]),
        ("name COLLATE system.builtin.unicode_ci = x", ["name", "x"]),
        ("cast(name AS STRING COLLATE UTF8_LCASE)", ["name"]),
        ("try_cast(name AS CHAR(3) COLLATE UTF8_LCASE) = x", ["name", "x"]),
        ("cast(name AS ARRAY<STRING COLLATE UTF8_LCASE>)[i]", ["name", "i"]),
        ("cast(name AS STRUCT<s: STRING COLLATE UTF8_LCASE, v: VARCHAR(3)>).s", ["name"]),
        # Columns that are called as statements, types and clauses begin.
        ("show > set AND end < date", ["show", "set", "end", "date"]),
        ("timestamp > offset AND order = key", ["timestamp", "offset", "order", "key"]),
        ("end > 1", ["end"]),
        ("show = 1", ["show"]),
        ("date > timestamp", ["date", "timestamp"]),
    ],
)
def test_the_columns_of_sql_text(text: str, paths: list[str]) -> None:
    found = sql_paths(text)
    assert found is not None
    assert [".".join(path) for path in found] == paths


@pytest.mark.parametrize(
    "text",
    [
        *("amount >", "a, b", "a) , (b", "a FROM t", "a; b", "(SELECT 1)", "x IN (SELECT y)", "struct(*)", "here.*"),
        *("?", "", ":x", "a b c", "(" * 5_000, "NOT " * 5_000 + "a"),
        *("count(?)", "count(:x)", "count((SELECT 1))", "count(here.*)"),
        # Columns and functions with names that sqlglot takes for something else.
        *("any IS NULL", "not IS NULL", "NOT any IS NULL", "any IS NOT NULL", "is > 1", "any + 1", "end(x)"),
        # What is no SQL of Spark's may make sqlglot fail in any way.
        *("datediff(true, a, b)", "map(x)"),
    ],
)
def test_none_where_only_spark_can_tell(text: str) -> None:
    assert sql_paths(text) is None


@pytest.mark.parametrize("length", [1_000, 20_000])
def test_a_long_chain_is_read(length: int) -> None:
    assert sql_paths(" OR ".join(f"ms = {i}" for i in range(length))) == (("ms",),)
    assert sql_paths(" + ".join(f"x{i % 3}" for i in range(length))) == (("x0",), ("x1",), ("x2",))


def test_the_way_into_a_struct_may_be_long() -> None:
    assert sql_paths("x" + ".y" * 2_000) == (("x", *["y"] * 2_000),)


def test_nothing_is_logged_of_what_is_fine_for_spark(caplog: pytest.LogCaptureFixture) -> None:
    assert sql_paths("get_json_object(name, '$.$ref') IS NULL") == (("name",),)
    assert caplog.records == []
    logging.getLogger("sqlglot").warning("what the user asks of sqlglot, it still answers")
    assert len(caplog.records) == 1


def test_what_another_thread_asks_of_sqlglot_is_logged_meanwhile(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlglot

    parse = sqlglot.parse

    def while_another_thread_warns(*args: object, **options: object) -> object:
        other = threading.Thread(target=logging.getLogger("sqlglot").warning, args=("of the other",))
        other.start()
        other.join()
        return parse(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sqlglot, "parse", while_another_thread_warns)
    sql_paths("get_json_object(another, '$.$ref')")
    assert [record.message for record in caplog.records] == ["of the other"]
