"""The examples can be declared and checked, and what docstrings show is what happens, without a JVM."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr

PIPELINES = [
    "examples.fraud:fraud",
    "examples.retail:retail",
    "examples.retail.pipeline:by_arrival",
    "examples.drivers:drivers",
    "examples.pageviews:pageviews",
]
PROJECT = Path(__file__).parents[2]
# The examples that start a JVM, or a broker in one. tests/system/test_java_from_pypi.py runs them.
NEED_A_JVM = (
    "headrace.jvm.jars.resolve",
    "headrace.kernel.build.kernel_jar",
    "headrace.log.broker.EmbeddedBroker",
    "headrace.testing.driver.Driver",
)
# The examples of every module of `headrace`, each in the environment that it finds. In a fresh interpreter, where no
# Spark session is: some examples are of Columns, and others set variables of the environment.
RUN_EXAMPLES = """
import doctest, importlib, json, os, pkgutil, sys
import headrace

left_out = json.loads(sys.argv[1])
only = json.loads(sys.argv[2])
modules = [found.name for found in pkgutil.walk_packages(headrace.__path__, "headrace.")]
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
environment = dict(os.environ)
run = []
for name in ["headrace", *modules]:
    if name == "headrace.__main__":  # to import it is to run it
        continue
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        if example.examples and example.name not in left_out and (not only or example.name in only):
            runner.run(example)
            run.append(example.name)
            os.environ.clear()
            os.environ.update(environment)
print(json.dumps({"run": run, "failed": runner.failures}))
"""
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


def run_examples(*, left_out: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> list[str]:
    """Runs the examples in the docstrings of the package; says whose they are."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_EXAMPLES, json.dumps(left_out), json.dumps(only)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["failed"] == 0, done.stdout
    assert isinstance(told["run"], list)
    return told["run"]


def test_the_examples_in_the_docstrings_of_the_package_run() -> None:
    run = run_examples(left_out=NEED_A_JVM)
    assert len(run) > 200
    assert set(run).isdisjoint(NEED_A_JVM)


def test_no_example_in_a_docstring_is_skipped() -> None:
    sources = [*PROJECT.glob("src/headrace/**/*.py"), *PROJECT.glob("examples/**/*.py")]
    assert [str(file) for file in sources if re.search(r"doctest:.*SKIP", file.read_text(encoding="utf-8"))] == []
