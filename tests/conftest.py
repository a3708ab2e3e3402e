"""What all tests share: one Spark session in this process, the order in which the tests run, and what is told of one
that is stuck.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import stuck

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

STUCK_AFTER_SECONDS = 900.0  # the longest test of `make test` takes less than a minute, of `make soak` some minutes

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


def pytest_configure() -> None:
    stuck.say_on_this_stderr()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """With the fixtures that it makes and clears away, a test has its time; see `stuck`."""
    with stuck.ended(item.nodeid, STUCK_AFTER_SECONDS):
        return (yield)


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
