"""One real broker and one schema registry for all system tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.contracts import RegistryClient
from headrace.contracts.embedded import EmbeddedRegistry
from headrace.log.broker import EmbeddedBroker
from headrace.log.topics import Topics
from tests.system.running import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """An embedded broker with data of its own, which dies with the tests."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def topic(broker: EmbeddedBroker) -> Callable[..., str]:
    """Creates a topic with a name that no other test has: `topic("clicks", partitions=2)`."""
    topics = Topics(broker.bootstrap, timeout=30)

    def create(name: str = "topic", partitions: int = 4, **config: str) -> str:
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        topics.create(unique, partitions, config={key.replace("_", "."): value for key, value in config.items()})
        return unique

    return create


@pytest.fixture(scope="session")
def registry(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRegistry]:
    """A schema registry on that broker, in a process of its own."""
    with EmbeddedRegistry(broker.bootstrap, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def client(registry: EmbeddedRegistry) -> Iterator[RegistryClient]:
    """The tests' registry, which the pipelines here find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_REGISTRY", registry.url)
        yield RegistryClient(registry.url)


@pytest.fixture(scope="session")
def engine(spark: SparkSession, broker: EmbeddedBroker) -> Engine:
    """Runs pipelines in this process."""
    return Engine(spark, broker.bootstrap)
