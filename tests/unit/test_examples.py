"""The examples can be declared and checked, and the sayings of their docstrings hold, without a JVM."""

from __future__ import annotations

import doctest
import importlib

import pytest

import headrace as hr

PIPELINES = [
    "examples.fraud:fraud",
    "examples.retail:retail",
    "examples.retail.pipeline:by_arrival",
    "examples.drivers:drivers",
    "examples.pageviews:pageviews",
]
DOCUMENTED = [
    "examples.retail.generator",
    "examples.drivers.generator",
    "examples.pageviews.generator",
    "examples.pageviews.board",
]


@pytest.mark.parametrize("place", PIPELINES)
def test_a_pipeline_passes_its_checks(place: str) -> None:
    module, _, name = place.partition(":")
    pipeline = getattr(importlib.import_module(module), name)
    assert isinstance(pipeline, hr.Pipeline)
    pipeline.check()


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
