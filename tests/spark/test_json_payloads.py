"""JSON in and out: the quick reader reads as the one that takes everything does, and numbers are written short."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from headrace.kernel import doorway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLAT = "s STRING, n BIGINT, i INT, h SMALLINT, b TINYINT, d DOUBLE, t TIMESTAMP, f BOOLEAN, `ü x` STRING"
# A column of a type that the quick reader does not know: with it, nothing is read by it.
WITH_ANOTHER = f"{FLAT}, another DATE"
EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "4"))  # of a hundred payloads each; `make fuzz` has more
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

names = st.sampled_from(["s", "n", "i", "h", "b", "d", "t", "f", "ü x", "unknown", "S", "", "é"])
whole = st.one_of(
    st.integers(-200, 200),
    st.sampled_from([2**15, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 10**18 - 1, 10**18, 2**63 - 1, 2**63, 10**30]),
)
numbers = st.one_of(
    whole.map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=2, allow_nan=False).map(str),
    st.sampled_from(
        ["-0", "-0.0", "0.0", "1e5", "1E-3", "1e400", "1.", ".5", "01", "+1", "0.1e", "1.7976931348623157e309"]
    ),
    st.sampled_from(["9007199254740993.0", "0.1000000000000000055511151231257827", "123456789012345678.5", "4.9e-324"]),
)
times = st.one_of(
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(lambda t: t.isoformat(timespec="milliseconds") + "Z"),
    st.sampled_from(
        [
            "2024-02-29T10:00:00Z",
            "2023-02-29T10:00:00Z",
            "2024-01-01 10:00:00.123456Z",
            "2024-01-01T10:00:00.1Z",
            "2024-01-01T10:00:00.Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T10:00:00+02:00",
            "2024-01-01",
            "soon",
        ]
    ),
).map(json.dumps)
texts = st.one_of(
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text(max_size=12).map(json.dumps),
    st.sampled_from(['"a\tb"', '"\\u0041"', '"\\x"', '"open', '"\x7f"']),
)
others = st.sampled_from(["null", "true", "false", "nul", "True", "[1, 2]", "{}", '{"a": [1]}', "", "NaN"])
values = st.one_of(numbers, times, texts, others)
space = st.sampled_from(["", "", "", " ", "\n\t\r ", "\x0b"])


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Objects as producers write them, and as they should not."""
    fields = draw(st.lists(st.tuples(names, values), max_size=5))
    inner = ",".join(
        f"{draw(space)}{json.dumps(n, ensure_ascii=False)}{draw(space)}:{draw(space)}{v}" for n, v in fields
    )
    text = f"{draw(space)}{{{inner}{draw(space)}}}{draw(space)}".encode()
    return draw(
        st.sampled_from([text, text, text, text, text[:-1], text + b"\xff", text + b"{}", b"\xef\xbb\xbf" + text])
    )


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An object with one byte changed."""
    whole_object = bytearray(b'{"s":"plain","n":12,"d":1.5,"t":"2024-01-01T10:00:00.000Z","f":true}')
    whole_object[draw(st.integers(0, len(whole_object) - 1))] = draw(st.integers(0, 255))
    return bytes(whole_object)


def decoded(spark: SparkSession, given_payloads: Sequence[bytes], schema: str) -> list[dict[str, Any]]:
    rows = [(number, bytearray(payload)) for number, payload in enumerate(given_payloads)]
    df = spark.createDataFrame(rows, "number INT, value BINARY").coalesce(1)
    parsed = df.select("number", doorway.from_json(spark, F.col("value"), schema, "why").alias("p")).select(
        "number", "p.*"
    )
    # Bits, since NaN and -0.0 are told apart by nothing else.
    read = parsed.withColumn("d", F.hex(F.expr("CAST(d AS STRING)"))).withColumn("t", F.expr("unix_micros(t)"))
    return [row.asDict() for row in read.orderBy("number").collect()]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(payloads(), damaged()), min_size=1, max_size=200))
@example([b'{"s":"a"}\xff', b'{"s":"a"}', b"{}", b" { } ", b"", b"[]", b"\xff"])
@example([b'{"n":1,"n":null}', b'{"n":1,"n":2}', b'{"n":null,"n":"x"}', b'{"S":"other","s":"own"}'])
@example([b'{"d":-0}', b'{"d":-0.0}', b'{"d":9007199254740993}', b'{"d":12345678901234567890}', b'{"d":0.1e1}'])
@example(
    [b'{"s":"\xc3\xa9"}', b'{"s":"\xc3"}', b'{"s":"\xed\xa0\x80"}', b'{"s":"\xf0\x9f\x98\x80"}', b'{"s":"\xc0\x80"}']
)
@example(
    [
        '{"t":"2024-01-01T10:00:00😀"}'.encode(),
        ('{"t":"' + "😀" * 11 + '"}').encode(),
        '{"t":"2024-01-01T10:00:0éZ"}'.encode(),
    ]
)
@example([b'{"%s":1,"s":"a"}' % (b"x" * length) for length in (40_000, 49_990, 50_000, 60_000)])
def test_the_quick_reader_reads_as_the_other_one(spark: SparkSession, payloads: list[bytes]) -> None:
    quick = decoded(spark, payloads, FLAT)
    slow = decoded(spark, payloads, WITH_ANOTHER)
    for payload, row, expected in zip(payloads, quick, slow, strict=True):
        assert row == {name: value for name, value in expected.items() if name != "another"}, payload


def test_what_is_no_time_is_a_misfit_whatever_is_in_it(spark: SparkSession) -> None:
    no_times = [f"2024-01-01T10:00:00{odd}" for odd in ("😀", "é", "Zé", "😀😀Z")] + ["😀" * 11]
    for schema in (FLAT, WITH_ANOTHER):
        rows = decoded(spark, [json.dumps({"t": text}, ensure_ascii=False).encode() for text in no_times], schema)
        assert {row["why"] for row in rows} == {"field `t` is not a timestamp"}


@pytest.mark.parametrize("text", ["12:30:00", "T12:30", " 12:30:00.5", "T12:30:00Z", "12:30:00+02:00", "1:2:3"])
def test_a_time_without_a_day_is_no_timestamp(spark: SparkSession, text: str) -> None:
    """Spark takes the day on which it reads it: a replay on another one would have other results."""
    for schema in (FLAT, WITH_ANOTHER):
        (row,) = decoded(spark, [json.dumps({"t": text}).encode()], schema)
        assert (row["t"], row["why"]) == (None, "field `t` is not a timestamp")


edges = ["0.005", "0.00499", "-0.005", "0.0005", "5e-3", "9e-4", "99999999.994", "99999999.995", "99999999.99"]
edges += [
    "1e8",
    "1e7",
    "12345678.9e0",
    "0e500000000",
    "0e-500000000",
    "-0",
    "1e500000000",
    "1e-500000000",
    "-1e-2147483647",
]
decimals = st.one_of(
    st.decimals(-(10**9), 10**9, places=3, allow_nan=False).map(str),
    st.tuples(st.integers(-(10**40), 10**40), st.integers(-60, 20)).map(lambda parts: f"{parts[0]}e{parts[1]}"),
    st.tuples(st.integers(-(10**6), 10**6), st.integers(-(10**9), 10**9)).map(lambda parts: f"{parts[0]}e{parts[1]}"),
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(decimals, min_size=1, max_size=200), st.sampled_from([(10, 2), (38, 0), (5, 5), (38, 18)]))
@example(edges, (10, 2))
@example(edges, (5, 5))
def test_decimals_are_rounded_half_up_or_do_not_fit(
    spark: SparkSession, texts: list[str], size: tuple[int, int]
) -> None:
    """However large their exponent is: ten to the power of a billion is never computed."""
    precision, scale = size
    rows = [(number, bytearray(b'{"m":%s}' % text.encode())) for number, text in enumerate(texts)]
    df = spark.createDataFrame(rows, "number INT, value BINARY").coalesce(1)
    parsed = doorway.from_json(spark, F.col("value"), f"m DECIMAL({precision},{scale})", "why")
    read = df.select("number", parsed.alias("p")).select("p.*", "number").orderBy("number").collect()
    for text, row in zip(texts, read, strict=True):
        expected = rounded(text, precision, scale)
        assert row["m"] == expected, text
        assert (row["why"] is None) == (expected is not None), text


def rounded(text: str, precision: int, scale: int) -> Decimal | None:
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    # Python would compute it, too: nothing beyond these changes what comes out.
    near = Decimal((sign, digits, max(min(exponent, 100), -200)))
    with localcontext(prec=500, rounding=ROUND_HALF_UP):
        value = near.quantize(Decimal(1).scaleb(-scale))
    return value if abs(value) < Decimal(10) ** (precision - scale) else None


def test_an_ordinary_event_is_read(spark: SparkSession) -> None:
    payload = (
        '{"s":"smör","n":12,"i":-3,"h":4,"b":5,"d":23.15,"t":"2026-11-18T00:00:00.003Z","f":true,"ü x":"y","unknown":1}'
    )
    (row,) = decoded(spark, [payload.encode()], FLAT)
    assert row.pop("d") == b"23.15".hex().upper()
    at = datetime(2026, 11, 18, 0, 0, 0, 3000, tzinfo=UTC)
    expected = {"number": 0, "s": "smör", "n": 12, "i": -3, "h": 4, "b": 5, "f": True, "ü x": "y", "why": None}
    assert row == expected | {"t": (at - EPOCH) // timedelta(microseconds=1)}


def written(spark: SparkSession, values: Sequence[Any], kind: str) -> list[str]:
    df = spark.createDataFrame([(n, v) for n, v in enumerate(values)], f"number INT, v {kind}").coalesce(1)
    made = doorway.select(df, ["number", f"CAST({doorway.TO_JSON}(named_struct('v', v)) AS STRING) AS json"])
    return [row["json"] for row in made.orderBy("number").collect()]


doubles = st.one_of(
    st.floats(),
    st.integers(-(10**13), 10**13).map(lambda n: n / 10**6),
    st.integers(-(10**9), 10**9).map(lambda n: n / 100),
    st.sampled_from(
        [0.0, -0.0, 0.001, 0.0009999999, 1e7, 9999999.999999, 9999999.9999999, 0.1 + 0.2, 5.0, 100.0, 1e-5]
    ),
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(doubles, min_size=1, max_size=300))
def test_doubles_are_written_in_the_shortest_form(spark: SparkSession, values: list[float]) -> None:
    for value, text in zip(values, written(spark, values, "DOUBLE"), strict=True):
        again = json.loads(text)["v"]
        if not math.isfinite(value):
            assert again in ("NaN", "Infinity", "-Infinity")
            continue
        assert math.copysign(1, again) == math.copysign(1, value)
        assert again == value
        if 1e-3 <= abs(value) < 1e7:
            assert text == f'{{"v":{value!r}}}', "Python writes it in as few digits as can be"


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=200))
@example([0, 9, 10, 99, 100, -1, -10, 10**18, 10**18 - 1, 2**63 - 1, -(2**63)])
def test_integers_are_written_as_they_are(spark: SparkSession, values: list[int]) -> None:
    assert written(spark, values, "BIGINT") == [f'{{"v":{value}}}' for value in values]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(), min_size=1, max_size=100))
@example(["", '"', "\\", "\n", 'a"b\\c\x01\x1f\x7f', "smörgås", "\U0001f600", "plain"])
def test_strings_are_written_so_that_they_can_be_read(spark: SparkSession, values: list[str]) -> None:
    assert [json.loads(text)["v"] for text in written(spark, values, "STRING")] == values


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=12), st.text(max_size=6).map(str.encode)), min_size=1, max_size=200))
@example([b"\xff", b"a\xc3", b'"\xe2\x82"', b"\xed\xa0\x80", b"\xc0\x80\n", "smörgås\n".encode(), b"plain", b'"'])
def test_a_string_that_is_no_utf_8_is_written_as_spark_writes_it(spark: SparkSession, values: list[bytes]) -> None:
    df = spark.createDataFrame(list(enumerate(map(bytearray, values))), "number INT, b BINARY").coalesce(1)
    row = "named_struct('v', string(b), 'm', map(string(b), 1))"
    made = doorway.select(df, ["number", f"{doorway.TO_JSON}({row}) AS own", f"to_json({row}) AS sparks"])
    for found in made.orderBy("number").collect():
        own = bytes(found["own"]).decode("utf-8", errors="strict")
        assert json.loads(own) == json.loads(found["sparks"])


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), min_size=1, max_size=100))
@example(
    [datetime(1, 1, 1), datetime(999, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29), datetime(1969, 12, 31, 23)]
)
def test_times_are_written_with_milliseconds_in_utc(spark: SparkSession, values: list[datetime]) -> None:
    expected = [f'{{"v":"{value.isoformat(timespec="milliseconds")}Z"}}' for value in values]
    micros = [(value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for value in values]
    df = spark.createDataFrame(list(enumerate(micros)), "number INT, m BIGINT").coalesce(1)
    made = doorway.select(
        df, ["number", f"CAST({doorway.TO_JSON}(named_struct('v', timestamp_micros(m))) AS STRING) AS json"]
    )
    assert [row["json"] for row in made.orderBy("number").collect()] == expected


def test_types_that_the_writer_does_not_know_are_left_to_spark(spark: SparkSession) -> None:
    df = spark.range(1)
    made = doorway.select(
        df, [f"CAST({doorway.TO_JSON}(named_struct('a', INTERVAL '1' DAY, 'b', id)) AS STRING) AS json"]
    )
    assert json.loads(made.collect()[0]["json"]) == {"a": "INTERVAL '1' DAY", "b": 0}
