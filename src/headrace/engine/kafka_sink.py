"""The Kafka sink of a query: Headrace's own in micro-batch and replay, Spark's in real time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.engine.checkpoint import Checkpoint
from headrace.engine.delivery import deliveries
from headrace.engine.plan import QueryPlan
from headrace.engine.settings import KAFKA_PRODUCER, KAFKA_PRODUCER_REALTIME, RunSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_OWN = "org.apache.spark.sql.headrace.TransactionalKafka"


def kafka_sink(
    records: DataFrame,
    plan: QueryPlan,
    checkpoint: Checkpoint,
    *,
    bootstrap: str,
    settings: RunSettings,
    realtime: bool,
) -> DataStreamWriter:
    """The records on their way into Kafka; what is missing is when (the trigger)."""
    writer = (
        records.writeStream.queryName(plan.name)
        .outputMode("update")
        .option("checkpointLocation", checkpoint.location(plan))
        .option("kafka.bootstrap.servers", bootstrap)
    )
    producer = {**(KAFKA_PRODUCER_REALTIME if realtime else KAFKA_PRODUCER), **dict(settings.producer)}
    for name, value in producer.items():
        writer = writer.option(f"kafka.{name}", value)
    if realtime:
        # The only Kafka sink that Spark lets into real-time mode: at least once, with ids by which repeats collapse.
        return writer.format("kafka")
    return (
        writer.format(_OWN)
        .option("writer", checkpoint.writer(plan))
        .option("generation", checkpoint.generation)
        .option("marker.topic", plan.read.topic)
        .option("group", plan.name)
        .option("deliveries", json.dumps(deliveries(plan)))
    )
