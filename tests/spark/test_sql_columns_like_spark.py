"""What is read from SQL text without Spark is what Spark reads from it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from headrace.pipeline.sql_columns import FUNCTIONS_WITHOUT_PARENTHESES, sql_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "amount DOUBLE, card STRING, at TIMESTAMP, tags ARRAY<STRING>, n INT, `odd name` INT, show INT, date DATE, end INT,"
    "place STRUCT<lat: DOUBLE, city: STRUCT<name: STRING>>, stops ARRAY<STRUCT<lat: DOUBLE>>, attrs MAP<STRING, INT>,"
    "user STRING, key STRING, value STRING, order INT, timestamp TIMESTAMP, left INT, x INT, year INT, hour INT"
)
EXPRESSIONS = [
    "amount > 5 AND card LIKE '4%' -- a comment",
    "AMOUNT * 2 + `odd name`",
    "place.lat + place['lat']",
    "place.city.name || `place`.`city`.`name`",
    "stops[n].lat + stops.lat[0]",
    "attrs['amount'] + attrs[card]",
    "exists(tags, amount -> amount = card)",
    "aggregate(tags, 0, (n, x) -> n + 1, n -> n * 2)",
    "transform(tags, (t, i) -> i + x)",
    "exists(stops, Stop -> stop.lat > 5)",
    "transform(tags, T -> upper(t) || CARD)",
    "aggregate(tags, 0, (Acc, x) -> acc + length(X) + n)",
    "transform(tags, X -> transform(stops, N -> x || n.lat || key))",
    "show + end + left + order",
    "date '2024-01-01' < date",
    "timestamp > timestamp '2024-01-01 00:00:00'",
    "extract(YEAR FROM at) = year",
    "year(at)",
    "datediff(DAY, at, timestamp)",
    "timediff(HOUR, at, timestamp)",
    "timediff(minute, at, timestamp) > hour",
    "date_trunc('day', at) = current_date",
    "user = current_user()",
    "CASE card WHEN 'a' THEN n ELSE x END",
    "if(card IS NOT DISTINCT FROM key, n, x)",
    "cast(value AS INT) :: BIGINT",
    "try_cast(card AS DECIMAL(10, 2)) BETWEEN n AND x",
    "named_struct('amount', n).amount",
    "sum(amount) FILTER (WHERE n > 3)",
    "percentile_approx(amount, 0.5)",
    "max_by(card, at)",
    "count(DISTINCT card, key)",
    "count(*) / sum(x)",
    "first_value(card) IGNORE NULLS",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY amount)",
    "listagg(card, ',') WITHIN GROUP (ORDER BY at DESC)",
    "from_json(value, 'amount INT').amount",
    "parse_json(value) IS NULL",
    "at + INTERVAL 5 MINUTES > at + make_interval(0, 0, 0, n)",
    "trim(BOTH key FROM card)",
    "substring(card FROM 1 FOR n)",
    "position(key IN card)",
    "overlay(card PLACING key FROM n)",
    "n IN (1, x)",
    "card RLIKE key",
    "n <=> x",
    "card COLLATE unicode_ci = key",
    "card COLLATE system.builtin.unicode_ci = key",
    "upper(cast(card AS STRING COLLATE UTF8_LCASE))",
    "cast(card AS CHAR(3) COLLATE UTF8_LCASE)",
    "try_cast(card AS VARCHAR(3) COLLATE UTF8_LCASE)",
    "cast(tags AS ARRAY<STRING COLLATE UTF8_LCASE>)[n]",
    "cast(place.city AS STRUCT<name: STRING COLLATE UTF8_LCASE>).name",
    "any(amount > n)",
    "~n & x | 3 ^ order",
    "n DIV x",
    "NOT (amount > 5)",
    r"r'\d' = card",
    '"card" = card',
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_spark_reads_the_columns_that_are_found_and_no_others(spark: SparkSession, text: str) -> None:
    rows = spark.createDataFrame([], COLUMNS)
    found = sql_paths(text)
    assert found is not None
    functions = FUNCTIONS_WITHOUT_PARENTHESES - set(rows.columns)
    assert {path[0].lower() for path in found} - functions == read_by_spark(rows, text)


def read_by_spark(rows: DataFrame, text: str) -> set[str]:
    references = rows.selectExpr(text)._jdf.queryExecution().analyzed().references().toList()
    return {references.apply(i).name().lower() for i in range(references.size())}


def test_the_examples_of_sparks_functions_use_no_other_columns_than_theirs(spark: SparkSession) -> None:
    registry = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()  # type: ignore[union-attr]
    names = registry.listFunction()
    read, wrong = 0, []
    for i in range(names.size()):
        name = names.apply(i)
        examples = registry.lookupFunction(name).get().getExamples().replace("_FUNC_", name.funcName())
        for example in re.findall(r"> SELECT (.*?);\s*$", examples, re.MULTILINE | re.DOTALL):
            selected, _, source = example.partition(" FROM VALUES ")
            found = sql_paths(f"struct({selected})")
            if found is None or re.search(r"\b(SELECT|GROUP BY)\b", example, re.IGNORECASE):
                continue
            read += 1
            given = re.findall(r"\w+", " ".join(re.findall(r"\w+\(([\w, ]+)\)", source)))
            given += re.findall(r" AS (\w+),", selected)
            theirs = {each.lower() for each in given} | FUNCTIONS_WITHOUT_PARENTHESES
            if not {path[0].lower() for path in found} <= theirs:
                wrong.append((example, found))
    assert wrong == []
    assert read > 1_200, "most can be read"


@pytest.mark.soak
def test_the_functions_that_need_no_parentheses(spark: SparkSession) -> None:
    found = set()
    for (name,) in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        with suppress(AnalysisException):
            spark.sql(f"SELECT {name}")
            found.add(name)
    assert found - {"*"} == FUNCTIONS_WITHOUT_PARENTHESES
