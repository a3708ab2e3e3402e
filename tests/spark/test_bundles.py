"""Rows of a key travel together: none is lost, none changes its key or its place among those of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A key begins with a hash of eight bytes, by which it is found: some keys have the same, some are shorter.
hashes = st.sampled_from([b"", b"tick", b"hash-one", b"hash-two"])
keys = st.tuples(hashes, st.binary(max_size=2)).map(b"".join)
rows = st.lists(st.tuples(keys, st.binary(min_size=1, max_size=40)), max_size=60)
many_keys = [(b"%08d" % (n % 700), bytes([n % 251])) for n in range(2000)]


def bundled(spark: SparkSession, given_rows: list[tuple[bytes, bytes]], most_bytes: int) -> list[tuple[bytes, bytes]]:
    jvm: Any = spark._jvm
    kernel = jvm.org.apache.spark.sql.headrace
    incoming = jvm.java.util.ArrayList()
    for key, row in given_rows:
        incoming.add(kernel.Incoming(bytearray(key), bytearray(row)))
    bundles = kernel.Bundler(jvm.scala.jdk.javaapi.CollectionConverters.asScala(incoming.iterator()), most_bytes)
    found = []
    while bundles.hasNext():
        bundle = bundles.next()
        found.append((bytes(bundle.key()), bytes(bundle.row())))
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows, most_bytes=st.sampled_from([1, 100, 1 << 20]))
@example(rows=[], most_bytes=100)
@example(rows=many_keys, most_bytes=1 << 20)
def test_each_key_gets_its_rows_in_order(spark: SparkSession, rows: list[tuple[bytes, bytes]], most_bytes: int) -> None:
    found = bundled(spark, rows, most_bytes)
    assert _by_key(found) == _by_key(rows)
    if most_bytes > 100:
        assert len(found) == len(dict(rows)), "one bundle for each key, where all rows have room"


def test_what_waits_is_bounded(spark: SparkSession) -> None:
    rows = [(b"hash-one", b"x" * 40)] * 20
    assert [len(row) for _, row in bundled(spark, rows, 200)] == [160] * 5, (
        "a key and four rows with their links are 200 bytes"
    )


def _by_key(rows: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    joined: dict[bytes, bytes] = {}
    for key, row in rows:
        joined[key] = joined.get(key, b"") + row
    return joined
