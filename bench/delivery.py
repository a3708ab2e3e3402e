"""The cost of exactly once: the transactional sink against Spark's own, which is at least once, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import headrace as hr
from bench.harness import by_turns, emit, median, options, ratio, transactions
from headrace.engine.plan import QueryPlan
from headrace.engine.run import Run
from headrace.engine.settings import KAFKA_PRODUCER, Mode, RunSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "txn_id STRING, card_id STRING, amount DOUBLE, merchant STRING, lat DOUBLE, lon DOUBLE, occurred_at TIMESTAMP"


class SparksOwnSink(Run):
    """The same run with the same producer settings, into Kafka by Spark's own sink."""

    def _write(self, records: DataFrame, plan: QueryPlan) -> StreamingQuery:
        assert self._checkpoint is not None
        writer = records.writeStream.queryName(plan.name).outputMode("update").format("kafka")
        writer = writer.option("checkpointLocation", self._checkpoint.location(plan))
        settings = {"bootstrap.servers": self._bootstrap, **KAFKA_PRODUCER}
        del settings["transaction.timeout.ms"]  # it is for transactions only
        for name, value in settings.items():
            writer = writer.option(f"kafka.{name}", value)
        return writer.trigger(availableNow=True).start()


def copying(name: str, delivery: str | None) -> hr.Pipeline:
    """Every transaction out again: nothing but reading, parsing and the sink."""
    pipeline = hr.Pipeline(name)
    pipeline.read("transactions", schema=SCHEMA).write(f"{name}-out", key="card_id", delivery=delivery)
    return pipeline


def replay(
    kind: type[Run], spark: SparkSession, bootstrap: str, folder: Path, max_rows: int, delivery: str | None = None
) -> None:
    name = f"copy-{uuid4().hex[:8]}"
    settings = RunSettings(max_rows_per_batch=max_rows)
    with kind(
        copying(name, delivery),
        bootstrap=bootstrap,
        mode=Mode.REPLAY,
        checkpoint=folder / name,
        settings=settings,
        spark=spark,
    ) as run:
        run.wait()


def main() -> None:
    a = options(rows=1_000_000, rounds=5, max_rows=250_000)
    with transactions(a.rows) as (spark, bootstrap, folder):
        took = by_turns(
            a.rounds,
            {
                "Spark's own": lambda: replay(SparksOwnSink, spark, bootstrap, folder, a.max_rows),
                "exactly once": lambda: replay(Run, spark, bootstrap, folder, a.max_rows),
                "at least once": lambda: replay(Run, spark, bootstrap, folder, a.max_rows, "at_least_once"),
            },
        )
    emit(
        bench="delivery",
        rows=a.rows,
        exactly_once_rows_per_second=round(a.rows / median(took["exactly once"])),
        spark_rows_per_second=round(a.rows / median(took["Spark's own"])),
        ratio=ratio(took["Spark's own"], took["exactly once"]),
        at_least_once_ratio=ratio(took["Spark's own"], took["at least once"]),
        target=0.85,
    )


if __name__ == "__main__":
    main()
