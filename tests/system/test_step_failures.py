"""A row on which a step fails is a dead letter in every mode, counted, and comes back repaired."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.engine.settings import Mode
from headrace.log.dead_letters import DeadLetter, DeadLetters, Filter
from tests.system.records import Record, Sent, produce
from tests.system.running import Engine, fresh, wait_for

Topic = Callable[..., str]


def one_part(letter: DeadLetter) -> bytes:
    """Repairs what can't be divided by."""
    return json.dumps(json.loads(letter.value or b"") | {"parts": 1}).encode()


@pytest.mark.parametrize("mode", [Mode.REPLAY, Mode.MICROBATCH, Mode.REALTIME])
def test_a_step_that_fails_on_some_rows(engine: Engine, topic: Topic, tmp_path: Path, mode: Mode) -> None:
    source, out = topic("parts", partitions=1), topic("parts-out", partitions=1)
    pipeline = hr.Pipeline(fresh("parts"))
    letters = f"{pipeline.name}.dead-letters"
    timed = pipeline.read(source, schema="id STRING, who STRING, parts INT, at TIMESTAMP").event_time("at")
    shares = timed.with_column("share", "1 / parts").key_by("who").dedupe("id")
    seen = shares.rolling("seen", n=hr.last("1h").count())
    # A function of which Spark can't tell before that it fails.
    seen.where("parts < 2 OR raise_error('two parts') IS NULL").select("id", "share", "n").write(out)
    rows = [{"id": f"o{i}", "who": "a", "parts": i % 3, "at": "2026-01-01T10:00:00Z"} for i in range(6)]

    def results() -> list[tuple[str, float, int]]:
        return [(r.row["id"], float(r.row["share"]), int(r.row["n"])) for r in engine.read(out)]

    def dead() -> list[Record]:
        return [r for r in engine.read(letters) if r.value is not None]

    if mode is Mode.REPLAY:
        produce(engine.bootstrap, source, map(Sent.row, rows))
        batches = engine.replay(pipeline, tmp_path)
    else:
        with engine.live(pipeline, mode, tmp_path) as told:
            produce(engine.bootstrap, source, map(Sent.row, rows))
            wait_for(lambda: len(results()) == 2 and len(dead()) == 4, "two results and four letters")
            told.until(lambda told: sum(batch.input_rows for batch in told.batches) == 6, "the progress")
        batches = told.batches
    assert results() == [("o1", 1.0, 1), ("o4", 1.0, 3)], "o2 was counted before it failed, o0 and o3 were not"
    assert sum(batch.dead_letters for batch in batches) == 4
    reasons = {letter.row["id"]: letter.headers["headrace-reason"].split(":")[0] for letter in dead()}
    early, late = "with_column `share` failed", "where failed"
    assert reasons == {"o0": early, "o2": late, "o3": early, "o5": late}

    replayed = DeadLetters(engine.bootstrap, letters).replay(Filter(reason="share"), fix=one_part)
    assert replayed.done == 2
    batches = engine.replay(pipeline, tmp_path)
    assert sorted(id for id, *_ in results()) == ["o0", "o1", "o3", "o4"], "the dedupe had not seen them before"
    assert sum(batch.dead_letters for batch in batches) == 0
