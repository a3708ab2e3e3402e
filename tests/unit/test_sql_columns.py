"""Which columns SQL text uses. That Spark agrees is in tests/spark/test_sql_columns_like_spark.py."""

from __future__ import annotations

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
        ("sum(x) FILTER (WHERE y > 3)", ["x", "y"]),
        ("CASE WHEN a THEN b ELSE c END", ["a", "b", "c"]),
        ("timestampadd(HOUR, 1, at) > at + INTERVAL 5 MINUTES", ["at"]),
        ("extract(DOW FROM at)", ["at"]),
        ("CAST(a AS STRUCT<b: INT>).b", ["a"]),
        ("named_struct('a', b)", ["b"]),
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
        *("?", "", ":x", "a b c", "(" * 5_000),
    ],
)
def test_none_where_only_spark_can_tell(text: str) -> None:
    assert sql_paths(text) is None
