"""The process that the harness kills: one run of a job, which prints a line per batch and takes orders on its input.

    python -m tests.system.faults.worker '{"job": "ledger", ...}'

Orders: `task` kills a running task (Spark starts it again); the answer is `killed ID`, or `none`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.engine.plan import QueryPlan
from headrace.engine.progress import Progress, Record
from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from tests.system.faults.gate import gated
from tests.system.faults.ledger import ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Job:
    """What to run, as the harness says it on the command line."""

    job: str
    name: str
    bootstrap: str
    source: str
    sink: str
    checkpoint: str
    sparks_own: bool = False
    """Spark's own Kafka sink in place of ours."""
    max_rows: int = 500
    gate: str = ""
    database: str = ""
    lakehouse: str = ""


class SparksOwnSink(Run):
    """The same run, into Kafka by Spark's own sink."""

    def _write(self, records: DataFrame, plan: QueryPlan) -> StreamingQuery:
        assert self._checkpoint is not None
        writer = records.writeStream.queryName(plan.name).outputMode("update").format("kafka")
        writer = writer.option("checkpointLocation", self._checkpoint.location(plan))
        return writer.option("kafka.bootstrap.servers", self._bootstrap).start()


def kill_a_task(spark: SparkSession) -> int | None:
    """Kill one of the tasks that run now, as an executor that dies would; None if none runs."""
    context: Any = spark.sparkContext._jsc.sc()
    latest = int(context.taskScheduler().nextTaskId())  # a number already: Py4J takes it out of its box
    for task in range(latest - 1, max(-1, latest - 9), -1):
        if context.killTaskAttempt(task, True, "killed by the fault harness"):
            return int(task)
    return None


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    kind = SparksOwnSink if job.sparks_own else Run
    pipeline = (
        ledger(job.name, job.source, job.sink, job.database, job.lakehouse)
        if job.job == "ledger"
        else gated(job.name, job.source, job.sink, job.gate)
    )

    def on_record(record: Record) -> None:
        if isinstance(record, Progress):
            print(f"batch {record.batch} {record.input_rows}", flush=True)
        else:
            print(f"{record.event} {record.message}".splitlines()[0], flush=True)

    run = kind(
        pipeline,
        bootstrap=job.bootstrap,
        mode=Mode.MICROBATCH,
        checkpoint=Path(job.checkpoint),
        settings=RunSettings(max_rows_per_batch=job.max_rows),
        on_progress=on_record,
    )

    def obey() -> None:
        for line in sys.stdin:
            if line.strip() == "task":
                killed = None if run._spark is None else kill_a_task(run._spark)
                print("none" if killed is None else f"killed {killed}", flush=True)
        os._exit(1)  # nobody is there any more to give orders, or to clear up

    with run:
        threading.Thread(target=obey, daemon=True).start()
        run.wait()


if __name__ == "__main__":
    main()
