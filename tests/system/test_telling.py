"""What a run tells its listener of its batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import headrace as hr
from headrace.engine.progress import Event, Progress, Record
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from tests.system.records import Sent, produce
from tests.system.running import Engine, fresh


def test_a_listener_that_fails_is_reported_and_hears_of_every_other_batch(
    engine: Engine, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, source = fresh("telling"), topic("telling", partitions=1)
    produce(engine.bootstrap, source, [Sent.row({"n": i}) for i in range(30)])
    pipeline = hr.Pipeline(name)
    pipeline.read(source, schema="n INT").write(f"{name}-out")
    heard: list[Record] = []
    reported: list[str] = []

    def listen(record: Record) -> None:
        heard.append(record)
        if isinstance(record, Progress) and record.batch == 0:
            raise ValueError("no room for it")

    with Run(
        pipeline,
        bootstrap=engine.bootstrap,
        mode=Mode.REPLAY,
        checkpoint=tmp_path,
        settings=RunSettings(max_rows_per_batch=10),
        on_progress=listen,
        report=reported.append,
        spark=engine.spark,
    ) as run:
        run.wait()
    batches = [(record.batch, record.input_rows) for record in heard if isinstance(record, Progress)]
    assert batches[:3] == [(0, 10), (1, 10), (2, 10)]
    assert [line for line in reported if "no room for it" in line] == ["a listener failed at batch 0: no room for it"]
    assert isinstance(heard[-1], Event), "the last that is told"
    assert heard[-1].event == "stopped"
