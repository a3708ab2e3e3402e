"""What all tests share: one Spark session in this process, and the order in which the tests run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = ("unit", "spark", "system")
# Files that take minutes come first among their own, so that of two workers none is left with one at the end.
LONG = (
    "test_faults",
    "test_demo",
    "test_kill",
    "test_sink_kill",
    "test_sink_contract",
    "test_dashboard",
    "test_contract_runs",
    "test_window_cases",
    "test_window_properties",
    "test_modes",
    "test_steps",
    "test_cli_errors",
    "test_trigger_transcripts",
    "test_window_runs",
)

# Methods are optimized when they are several times as hot as by default: in the minutes of a test run, the optimizing
# compiler takes more than a quarter of the CPU otherwise (200 s of CPU against 144 s, for 45 tests).
COMPILE_LATE = " ".join(
    f"-XX:Tier4{name}Threshold={value}"
    for name, value in {
        "Invocation": 40_000,
        "MinInvocation": 10_000,
        "Compile": 80_000,
        "BackEdge": 200_000,
    }.items()
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first. Those without a JVM must come first: while a session runs, new Columns belong to it."""
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> tuple[int, bool]:
        folder = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        return (ORDER.index(folder) if folder in ORDER else 0, item.path.stem not in LONG)

    items.sort(key=rank)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with the kernel, wide enough for real-time mode: every task of a query needs a slot of its own."""
    from headrace.engine.session import open_session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with pytest.MonkeyPatch.context() as patch:
        # `make test` has JVMs without an optimizing compiler for jobs that a test starts. This one lives for minutes.
        patch.setenv("SPARK_SUBMIT_OPTS", COMPILE_LATE)
        session = open_session("tests", slots=8, state_partitions=2, log_file=log)
    yield session
    session.stop()
