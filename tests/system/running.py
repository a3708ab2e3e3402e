"""Running a pipeline in this process, on the shared Spark session."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import headrace as hr
from headrace.engine.progress import Event, Progress
from headrace.engine.progress import Record as ProgressRecord
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from tests.system.records import DEADLINE, Record, read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_numbers = itertools.count(1)


def fresh(name: str) -> str:
    """A name that no other test has."""
    return f"{name}-{next(_numbers)}"


@dataclass
class Told:
    """What a run tells about itself, as it comes."""

    records: list[ProgressRecord] = field(default_factory=list)

    @property
    def batches(self) -> list[Progress]:
        return [record for record in self.records if isinstance(record, Progress)]

    def has_all(self, checkpoint: Path) -> bool:
        """Whether it has told of every batch that its checkpoint has last committed."""
        told = {(batch.query, batch.batch) for batch in self.batches}
        for query in checkpoint.glob("queries/*"):
            last = max(int(file.name) for file in (query / "commits").iterdir() if file.name.isdigit())
            if (query.name, last) not in told:
                return False
        return True

    @property
    def events(self) -> list[Event]:
        return [record for record in self.records if isinstance(record, Event)]

    def until(self, condition: Callable[[Told], bool], what: str, deadline: float = DEADLINE) -> None:
        wait_for(lambda: condition(self), what, deadline)


def wait_for(condition: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
    """Until the condition holds."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"waited {deadline:g} s for {what}"
        time.sleep(0.05)


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Work that goes on in a thread until the block ends."""
    stopping = threading.Event()
    thread = threading.Thread(target=work, args=(stopping,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@dataclass(frozen=True)
class Engine:
    """The session and the broker that pipelines under test run on."""

    spark: SparkSession
    bootstrap: str

    def replay(
        self,
        pipeline: hr.Pipeline,
        checkpoint: Path,
        *,
        max_rows: int = 500_000,
        state_partitions: int = 2,
        settings: RunSettings | None = None,
    ) -> list[Progress]:
        """Runs over all that is in the log now; returns the progress of its batches."""
        told = Told()
        few = RunSettings(max_rows_per_batch=max_rows, state_partitions=state_partitions)
        with Run(
            pipeline,
            bootstrap=self.bootstrap,
            mode=Mode.REPLAY,
            checkpoint=checkpoint,
            settings=settings or few,
            on_progress=told.records.append,
            spark=self.spark,
        ) as run:
            run.wait()
            told.until(lambda told: told.has_all(checkpoint), "the progress of its last batch")
        return told.batches

    @contextmanager
    def live(
        self,
        pipeline: hr.Pipeline,
        mode: Mode,
        checkpoint: Path,
        *,
        max_rows: int = 500_000,
        interval_ms: int = 5_000,
        switch_lag: int = 5_000,
        first: Callable[[], None] = lambda: None,
    ) -> Iterator[Told]:
        """Runs until the block ends. Real-time batches last five seconds, the least that Spark allows.

        What is to be done `first` is done when the queries have started, and before the run is waited for: until then
        auto mode does not look whether it has caught up. That goes by `switch_lag` rows alone, not by how quick it was.
        """
        told = Told()
        run = Run(
            pipeline,
            bootstrap=self.bootstrap,
            mode=mode,
            checkpoint=checkpoint,
            settings=RunSettings(
                checkpoint_interval_ms=interval_ms,
                max_rows_per_batch=max_rows,
                state_partitions=2,
                switch_lag_rows=switch_lag,
                switch_lag_ms=0,
            ),
            on_progress=told.records.append,
            spark=self.spark,
        )
        failures: list[Exception] = []

        def wait() -> None:
            try:
                run.wait()
            except Exception as problem:  # noqa: BLE001 - raised again below, in the thread of the test
                failures.append(problem)

        with run:
            first()
            waiting = threading.Thread(target=wait)
            waiting.start()
            try:
                yield told
            finally:
                run.stop()
                waiting.join()
        if failures:
            raise failures[0]

    def queries(self, pipeline: str) -> list[StreamingQuery]:
        """The queries of a pipeline that run now."""
        return [query for query in self.spark.streams.active if pipeline in query.name]

    def read(self, *topics: str) -> list[Record]:
        """All that is committed in the topics, in the order of what it was made from: tasks write side by side."""
        return sorted(read_all(self.bootstrap, *topics), key=lambda record: (record.topic, record.source))


def shuffles_and_stores(query: StreamingQuery) -> tuple[int, int]:
    """How often the plan of a query's last batch shuffles its rows, and how many steps with state Spark sees in it."""
    plan: str = query._jsq.explainInternal(False)
    progress = query.lastProgress
    assert progress is not None
    return len(re.findall(r"\bExchange\b", plan)), len(json.loads(progress.json)["stateOperators"])
