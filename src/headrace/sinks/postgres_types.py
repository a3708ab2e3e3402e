"""Spark's types in Postgres, and Arrow's rows as the CSV that COPY reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


def postgres_type(spark: str) -> str:
    """The column type for a Spark type; what is nested or otherwise unknown there is JSON.

    >>> postgres_type("decimal(10,2)"), postgres_type("timestamp"), postgres_type("array<string>")
    ('numeric(10,2)', 'timestamptz', 'jsonb')
    """
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", spark)
    return f"numeric({decimal[1]},{decimal[2]})" if decimal else _TYPES.get(spark, "jsonb")


def to_csv(rows: pa.RecordBatch) -> bytes:
    """Rows as CSV without a header, in which null is nothing and an empty text is ""."""
    import pyarrow as pa
    from pyarrow import csv

    columns = [_plain(rows.column(i)) for i in range(rows.num_columns)]
    out = pa.BufferOutputStream()
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    csv.write_csv(pa.RecordBatch.from_arrays(columns, names=rows.schema.names), out, options)
    return bytes(out.getvalue())


def _plain(values: pa.Array) -> pa.Array:
    """Values that Arrow writes as Postgres reads them."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if v is None else "\\x" + v.hex() for v in values.to_pylist()], pa.string())
    if pa.types.is_decimal(kind):
        return values.cast(pa.string())
    return values
