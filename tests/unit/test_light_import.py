"""Importing headrace is quick: it loads nothing heavy, and leaves PySpark as it is until PySpark is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headrace

SOURCES = Path(headrace.__file__).parents[1]
HEAVY = ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "grpc", "confluent_kafka", "rich", "typer")
CLIENTS = ("psycopg", "deltalake", "redis")


def run(script: str) -> str:
    """The output of a script in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n{script}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_headrace_loads_nothing_heavy() -> None:
    loaded = run("import headrace\nprint(*sys.modules)").split()
    assert "headrace" in loaded
    assert [name for name in loaded if name.split(".")[0] in HEAVY] == []


def test_a_pipeline_without_columns_is_declared_checked_and_drawn_without_spark() -> None:
    script = """
import headrace as hr
from headrace.pipeline.draw import describe, draw
from dataclasses import dataclass
from datetime import datetime

@dataclass
class Click:
    user: str
    at: datetime

pipeline = hr.Pipeline("clicks")
clicks = pipeline.read("clicks", schema=Click).event_time("at").key_by("user")
counts = clicks.rolling("counts", n=hr.last("1m").count())
counts.where("n > 5").write("busy-users")
per_day = clicks.window("per-day", hr.tumbling("1d", time_zone="Europe/Berlin"), n="count(*)",
                        trigger=hr.after_watermark(early=hr.repeat(hr.when("n > 100")), late=hr.each()))
per_day.write("clicks-per-day")
per_day.write(hr.sinks.postgres("postgresql://localhost/shop", table="per_day", key=("user", "window_start")))
clicks.write(hr.sinks.delta("lake/clicks"))
counts.write(hr.sinks.redis("redis://localhost", key="user"))
pipeline.check()
draw(pipeline), describe(pipeline)
print(*sys.modules)
"""
    loaded = run(script).split()
    assert [name for name in loaded if name.split(".")[0] in (*HEAVY, *CLIENTS)] == []


COLUMNS_WITHOUT_SESSION = """
column = F.when((F.col("n") > 5) & F.col("ok"), F.lit("x")).otherwise(F.concat_ws("-", "a", F.expr("b")))
print(type(column).__module__)
"""


def test_columns_need_no_session_if_headrace_is_imported_first() -> None:
    script = "import headrace\nfrom pyspark.sql import functions as F\n" + COLUMNS_WITHOUT_SESSION
    assert run(script).split() == ["pyspark.sql.connect.column"]


def test_columns_need_no_session_if_pyspark_is_imported_first() -> None:
    script = "from pyspark.sql import functions as F\nfrom pyspark.sql.functions import col\nimport headrace\n"
    assert run(script + COLUMNS_WITHOUT_SESSION + "print(col('x'))").split() == [
        "pyspark.sql.connect.column",
        "Column<'x'>",
    ]


def test_the_import_hook_leaves_no_trace() -> None:
    script = """
before = list(sys.meta_path)
import headrace, headrace.deferred
headrace.deferred.install()
print(len(sys.meta_path) - len(before))
import pyspark.sql.utils as utils
print(sys.meta_path == before)
print(type(utils.__loader__).__name__, type(utils.__spec__.loader).__name__, utils.__name__)
changed = utils.is_remote
headrace.deferred.install()
print(utils.is_remote is changed)
"""
    assert run(script).splitlines() == [
        "1",
        "True",
        "SourceFileLoader SourceFileLoader pyspark.sql.utils",
        "True",
    ]


def test_only_functions_that_make_columns_see_the_change() -> None:
    script = """
import headrace
from pyspark.sql import SparkSession, functions as F, is_remote
from pyspark.sql.types import LongType
import pyspark.sql.utils
print(is_remote(), pyspark.sql.utils.is_remote(), SparkSession.getActiveSession())
print(type(F.col("x")).__module__)
print(F.udf(lambda x: x, LongType()).__module__, type(F.udf(lambda x: x, LongType()).returnType).__name__)
"""
    assert run(script).splitlines() == ["False False None", "pyspark.sql.connect.column", "__main__ LongType"]


def test_the_examples_in_the_docstrings_run() -> None:
    script = """
import doctest, importlib, pkgutil
import headrace.pipeline, headrace.sinks
packages = (headrace.pipeline, headrace.sinks)
names = [f"{p.__name__}.{found.name}" for p in packages for found in pkgutil.iter_modules(p.__path__)]
total = 0
for name in ["headrace", "headrace.deferred", "headrace.functions", "headrace.sinks", *names]:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert not result.failed, name
    total += result.attempted
print(total)
"""
    assert int(run(script)) > 50
