"""Streams of random shapes through Kafka: every mode gives the results of the model, however the batches fall.

`tests/spark/test_rolling_properties.py` has many more of them, without a broker and with late events.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import headrace as hr
from headrace.engine.settings import Mode
from tests.system.records import Record, Sent, produce
from tests.system.running import Engine, fresh
from tests.system.wide_stream import (
    Shape,
    WideStream,
    declare,
    outputs,
    produce_and_await,
    reader_of,
    wrong_results,
)

Topic = Callable[..., str]
EVENTS = 400
# The same ones every time, unless more are asked for; the seed is in the name of the test.
SEEDS = range(1, 1 + int(os.environ.get("HEADRACE_EXAMPLES", "1")))


@dataclass(frozen=True)
class Example:
    """A random stream, and the pipeline for it. In one partition, so that its tolerance is that of its disorder."""

    rng: Random
    stream: WideStream
    name: str
    source: str

    @staticmethod
    def of(seed: int, mode: Mode, topic: Topic) -> Example:
        rng = Random(f"{mode} {seed}")
        stream = WideStream.random(seed, EVENTS, 1, Shape.random(rng))
        name = fresh(f"random-{mode}")
        return Example(rng, stream, name, topic(name, partitions=1))

    def pipeline(self) -> hr.Pipeline:
        shape = self.stream.shape
        return declare(self.name, self.source, f"{shape.tolerance_ms}ms", shape)

    def parts(self, number: int) -> list[list[Sent]]:
        """The stream in parts of random sizes."""
        sent = self.stream.sent
        cuts = [0, *sorted(self.rng.sample(range(1, len(sent)), number - 1)), len(sent)]
        return [sent[start:end] for start, end in pairwise(cuts)]


def assert_as_the_model_says(example: Example, found: dict[str, list[Record]]) -> None:
    stream = example.stream
    assert found["late"] == [], stream.shape
    assert [record.source for record in found["duplicates"]] == sorted(stream.duplicates), stream.shape
    assert [record.source for record in found["results"]] == sorted(stream.expected), stream.shape
    assert wrong_results(found["results"], stream.expected) == {}, stream.shape


@pytest.mark.parametrize("seed", SEEDS)
def test_replay(engine: Engine, topic: Topic, tmp_path: Path, seed: int) -> None:
    example = Example.of(seed, Mode.REPLAY, topic)
    produce(engine.bootstrap, example.source, example.stream.sent)
    engine.replay(example.pipeline(), tmp_path, max_rows=example.rng.randint(40, 150))
    assert_as_the_model_says(example, outputs(engine, example.name))


@pytest.mark.parametrize("seed", SEEDS)
def test_micro_batches(engine: Engine, topic: Topic, tmp_path: Path, seed: int) -> None:
    example, total = Example.of(seed, Mode.MICROBATCH, topic), 0
    with engine.live(example.pipeline(), Mode.MICROBATCH, tmp_path, max_rows=example.rng.randint(40, 400)):
        reader = reader_of(engine, example.name)
        for part in example.parts(4):
            total += len(part)
            produce_and_await(engine, reader, example.source, part, total)
        reader.close()
    assert_as_the_model_says(example, outputs(engine, example.name))


@pytest.mark.parametrize("seed", SEEDS)
def test_real_time(engine: Engine, topic: Topic, tmp_path: Path, seed: int) -> None:
    example, total = Example.of(seed, Mode.REALTIME, topic), 0
    with engine.live(example.pipeline(), Mode.REALTIME, tmp_path) as told:
        reader = reader_of(engine, example.name)
        for part in example.parts(2):
            produced = len(told.batches)
            total += len(part)
            produce_and_await(engine, reader, example.source, part, total)
            told.until(lambda told, done=produced: len(told.batches) > done, "a checkpoint")  # type: ignore[misc]
        reader.close()
    assert_as_the_model_says(example, outputs(engine, example.name))
