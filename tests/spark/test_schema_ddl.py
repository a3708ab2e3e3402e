"""Spark reads a schema that we give it as we read it ourselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import headrace
from headrace.pipeline.schema import as_schema

SOURCES = Path(headrace.__file__).parents[1]

SCHEMAS = [
    "id LONG NOT NULL, at: Timestamp, name STRING COMMENT 'it''s, a name'",
    "a BOOLEAN, b BYTE, c SHORT, d INTEGER, e BIGINT, f REAL, g DOUBLE, h BINARY, i DATE, j TIMESTAMP_NTZ, k VARIANT",
    "a DEC, b NUMERIC(5), c DECIMAL(38, 18)",
    "place STRUCT<lat: DOUBLE NOT NULL, `odd name`: STRUCT<`x.y`: INT, z ARRAY<STRING>>>",
    "tags MAP<STRING, ARRAY<LONG>>",
    "`a b` INT, `c.d` STRING, `e``f` DATE, `naïve` INT, select INT, timestamp TIMESTAMP, `1st` INT, identifier STRING",
]

SCRIPT = """
import json
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
fields = [[[f.name, f.dataType.jsonValue(), f.nullable] for f in StructType.fromDDL(ddl)] for ddl in DDLS]
print(json.dumps(fields))
"""


def test_spark_reads_our_ddl_as_it_reads_the_users() -> None:
    # What we hand on must mean to Spark what the user's own text means, comments aside, which we drop.
    ours = [as_schema(text).ddl() for text in SCHEMAS]
    users = [text.replace("at: Timestamp", "at Timestamp") for text in SCHEMAS]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(SOURCES)!r})\nDDLS = {[*ours, *users]!r}\n{SCRIPT}",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout.splitlines()[-1])
    assert read[: len(ours)] == read[len(ours) :]
    for text, fields in zip(SCHEMAS, read, strict=False):
        schema = as_schema(text)
        assert [(name, nullable) for name, _, nullable in fields] == [(c.name, c.nullable) for c in schema.columns]
