"""Continuing from a checkpoint: after a crash at the worst moment, after a change of the pipeline, in another mode."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.engine.progress import Progress
from headrace.engine.run import Run
from headrace.engine.settings import Mode
from headrace.errors import CheckpointMismatchError, QueryFailedError
from tests.system.model import timestamp
from tests.system.records import LogReader, Sent, produce
from tests.system.running import Engine, Told, fresh
from tests.system.wide_stream import START

Topic = Callable[..., str]


def events(first: int, last: int) -> list[Sent]:
    return [Sent.row({"k": "a", "at": timestamp(START + i * 1000), "x": i}, key="a") for i in range(first, last)]


def counting(name: str, source: str, x: str = "x * 2") -> hr.Pipeline:
    pipeline = hr.Pipeline(name)
    (
        pipeline.read(source, schema="k STRING, at TIMESTAMP, x BIGINT")
        .event_time("at")
        .with_column("x", x)
        .key_by("k")
        .rolling("counted", count=hr.last("1h").count(), total=hr.last("1h").sum("x"))
        .write(f"{name}-out")
    )
    return pipeline


def forget_the_last_commit(checkpoint: Path, batches: list[Progress]) -> None:
    """As after a crash at the worst moment: the sink has committed the last batch, but Spark has not noted it yet."""
    assert [batch.input_rows for batch in batches] == [5, 5], "what is forgotten had data, and not all is forgotten"
    (query,) = (checkpoint / "queries").iterdir()
    for log in ("commits", "offsets"):
        assert sorted(file.name for file in (query / log).iterdir() if file.name.isdigit()) == ["0", "1"], log
    for file in (query / "commits").glob("*1*"):  # with its checksum
        file.unlink()


def test_a_batch_that_spark_repeats_is_not_written_twice(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("repeated"), topic("repeated", partitions=1)
    produce(engine.bootstrap, source, events(0, 10))
    forget_the_last_commit(tmp_path, engine.replay(counting(name, source), tmp_path, max_rows=5))
    produce(engine.bootstrap, source, events(10, 15))
    batches = engine.replay(counting(name, source), tmp_path, max_rows=5)
    assert [(batch.batch, batch.input_rows) for batch in batches] == [(1, 5), (2, 5)], "the one and the new one"
    assert [record.row["count"] for record in engine.read(f"{name}-out")] == list(range(1, 16))


@pytest.mark.parametrize("batches", [1, 2])
def test_a_checkpoint_that_has_gone_back_is_refused_and_loses_nothing(
    engine: Engine, topic: Topic, tmp_path: Path, batches: int
) -> None:
    """Its next batch has the number of one that was written, but other input: to skip it would lose records."""
    name, source = fresh("restored"), topic("restored", partitions=1)
    folder, copy = tmp_path / "checkpoint", tmp_path / "copy"
    produce(engine.bootstrap, source, events(0, 5))
    engine.replay(counting(name, source), folder)
    shutil.copytree(folder, copy)
    for batch in range(batches):
        produce(engine.bootstrap, source, events(5 + 2 * batch, 7 + 2 * batch))
        engine.replay(counting(name, source), folder)
    written = 5 + 2 * batches
    shutil.rmtree(folder)
    copy.rename(folder)
    produce(engine.bootstrap, source, events(written, written + 3))
    with pytest.raises(QueryFailedError, match="the checkpoint is older than what this pipeline has written") as caught:
        engine.replay(counting(name, source), folder)
    assert f"It goes on at batch 1, and batches up to {batches} are in the output topics" in str(caught.value.why)
    assert len(engine.read(f"{name}-out")) == written
    engine.replay(counting(name, source), tmp_path / "anew")
    assert len({record.source for record in engine.read(f"{name}-out")}) == written + 3


def test_nothing_is_lost_when_real_time_comes_between_a_crash_and_the_repetition(
    engine: Engine, topic: Topic, tmp_path: Path
) -> None:
    """Real time drops the unfinished batch from Spark's log; the next micro-batch has its number, but other input."""
    name, source = fresh("renumbered"), topic("renumbered", partitions=1)
    produce(engine.bootstrap, source, events(0, 10))
    forget_the_last_commit(tmp_path, engine.replay(counting(name, source), tmp_path, max_rows=5))
    with engine.live(counting(name, source), Mode.REALTIME, tmp_path, interval_ms=60_000):
        reader = LogReader(engine.bootstrap, f"{name}-out")
        produce(engine.bootstrap, source, events(10, 12))
        reader.until(lambda records: len({record.source for record in records}) == 12, "real time to come so far")
        reader.close()
    produce(engine.bootstrap, source, events(12, 20))
    engine.replay(counting(name, source), tmp_path)
    assert {record.source[1]: record.row["count"] for record in engine.read(f"{name}-out")} == {
        offset: offset + 1 for offset in range(20)
    }


def test_state_of_a_computed_column_is_not_read_as_another_type(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("retyped"), topic("retyped", partitions=1)
    produce(engine.bootstrap, source, events(1, 4))
    engine.replay(counting(name, source, "x * 2"), tmp_path)
    produce(engine.bootstrap, source, events(4, 5))
    with pytest.raises(CheckpointMismatchError):
        engine.replay(counting(name, source, "x / 2"), tmp_path)
    engine.replay(counting(name, source, "x * 2"), tmp_path)
    assert [record.row["total"] for record in engine.read(f"{name}-out")] == [2, 6, 12, 20]


def test_a_replay_tells_of_every_batch_before_it_is_closed(engine: Engine, topic: Topic, tmp_path: Path) -> None:
    name, source = fresh("told"), topic("told", partitions=1)
    produce(engine.bootstrap, source, [*events(0, 3), Sent(b"{"), *events(4, 6), Sent(b"[")])
    told = Told()
    run = Run(
        counting(name, source),
        bootstrap=engine.bootstrap,
        mode=Mode.REPLAY,
        checkpoint=tmp_path,
        on_progress=told.records.append,
        spark=engine.spark,
    )
    with run:
        run.wait()
    commits = [file.name for file in tmp_path.glob("queries/*/commits/*") if file.name.isdigit()]
    assert sorted(batch.batch for batch in told.batches) == sorted(map(int, commits))
    assert sum(batch.dead_letters for batch in told.batches) == 2
    assert [event.event for event in told.events] == ["started", "stopped"]
