"""Fixtures for pytest: `pytest_plugins = ["headrace.testing.plugin"]` in the topmost conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from headrace.pipeline import Pipeline
from headrace.testing.driver import Driver, Moment, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Drive = Callable[..., Driver]
"""What the fixture `drive` is: `drive(pipeline, start=..., state_partitions=..., registry=...)` gives a Driver."""


@pytest.fixture(scope="session")
def headrace_spark() -> SparkSession:
    """The Spark session that all tests share. Override it to bring your own; it needs Headrace's kernel."""
    return session()


@pytest.fixture
def drive(headrace_spark: SparkSession) -> Iterator[Drive]:
    """Runs a pipeline in this test: `driver = drive(pipeline)`. It is closed when the test ends."""
    with ExitStack() as open_drivers:

        def start_driver(
            pipeline: Pipeline,
            *,
            start: Moment | None = None,
            state_partitions: int = 1,
            registry: str | None = None,
        ) -> Driver:
            begin = {} if start is None else {"start": start}
            driver = Driver(
                pipeline, spark=headrace_spark, state_partitions=state_partitions, registry=registry, **begin
            )
            return open_drivers.enter_context(driver)

        yield start_driver
