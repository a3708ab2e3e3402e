"""`headrace run` in places and under conditions that are a little out of the ordinary."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from headrace.log.broker import EmbeddedBroker
from headrace.paths import cache_dir
from tests.system.processes import Headrace
from tests.system.records import Sent, produce, read_all
from tests.system.running import wait_for

Topic = Callable[..., str]

DOUBLING = """
import headrace as hr
from pyspark.sql import functions as F


def double(n):
    return 2 * n


doubling = hr.Pipeline("doubling")
rows = doubling.read("{source}", schema="n BIGINT")
rows.apply(lambda df: df.withColumn("n", F.udf(double, "bigint")("n")), schema="n BIGINT").write("{source}-out")
"""


def module(folder: Path, source: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "doubling_of_the_tests.py"
    file.write_text(DOUBLING.format(source=source))
    return file


def test_a_file_anywhere_with_functions_of_its_own(broker: EmbeddedBroker, topic: Topic, tmp_path: Path) -> None:
    """The folder's name has in it what shells, Java and Spark take for their own."""
    source = topic("doubling", partitions=1)
    produce(broker.bootstrap, source, [Sent.row({"n": n}) for n in (1, 2)])
    odd = tmp_path / 'my "job\'s" \\ folder'
    words = ("run", f"{module(odd, source)}:doubling", "--mode", "replay", "--bootstrap", broker.bootstrap)
    job = Headrace(tmp_path / "out", *words, "--checkpoint", str(odd / "checkpoint"))
    try:
        assert job.process.wait(120) == 0, job.err
    finally:
        job.end()
    assert [record.row["n"] for record in read_all(broker.bootstrap, f"{source}-out")] == [2, 4]
    assert (odd / "checkpoint" / "spark.log").exists()


def test_a_jvm_that_does_not_start_is_explained(broker: EmbeddedBroker, topic: Topic, tmp_path: Path) -> None:
    file = module(tmp_path, topic("doubling", partitions=1))
    words = ("run", f"{file}:doubling", "--bootstrap", broker.bootstrap, "--checkpoint", str(tmp_path / "checkpoint"))
    job = Headrace(tmp_path / "out", *words, SPARK_SUBMIT_OPTS="-agentlib:no-such-agent")
    try:
        assert job.process.wait(120) == 1
    finally:
        job.end()
    assert "EnvironmentProblem: Spark's JVM did not start." in job.err
    assert "no-such-agent" in job.err, "what the JVM said"
    assert "Traceback" not in job.err


def test_a_checkpoint_that_can_not_be_a_folder(broker: EmbeddedBroker, topic: Topic, tmp_path: Path) -> None:
    file = module(tmp_path, topic("doubling", partitions=1))
    words = ("run", f"{file}:doubling", "--bootstrap", broker.bootstrap, "--checkpoint", str(file / "checkpoint"))
    job = Headrace(tmp_path / "out", *words)
    try:
        assert job.process.wait(120) == 1
    finally:
        job.end()
    assert "EnvironmentProblem: " in job.err
    assert str(file / "checkpoint") in job.err
    assert "Traceback" not in job.err


def test_ctrl_c_while_the_kernel_is_compiled(broker: EmbeddedBroker, topic: Topic, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_dir() / "jars")  # but no kernel
    file = module(tmp_path, topic("doubling", partitions=1))
    words = ("run", f"{file}:doubling", "--bootstrap", broker.bootstrap, "--checkpoint", str(tmp_path / "checkpoint"))
    job = Headrace(tmp_path / "out", *words, HEADRACE_CACHE=str(cache))
    try:
        job.until_told("compiling")
        wait_for(lambda: len(job.members()) > 1, "the compiler")
        os.killpg(job.process.pid, signal.SIGINT)
        assert job.process.wait(60) == 130, job.err
        job.until_gone()
    finally:
        job.end()
    assert "Error" not in job.err
    assert list((cache / "kernel").glob("*.jar")) == []
