"""From Kafka records to rows with a route: parsed data, dead letters, quarantined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.engine import hidden
from headrace.engine.plan import QueryPlan, Route
from headrace.kernel import doorway
from headrace.pipeline.nodes import EventTime, Read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.engine.contracts import Contracts

_PACED = "org.apache.spark.sql.headrace.PacedKafka"
_PARSED = "__hr_parsed"
_MISFIT = "__hr_misfit"
_CONTROL = "__hr_control"
_CLOCK = (-62_135_596_800_000, 253_402_300_799_999)
"""Milliseconds of the years 1 to 9999: beyond, arithmetic on times overflows."""


def read_records(
    spark: SparkSession,
    read: Read,
    bootstrap: str,
    max_rows: int | None,
    control_topic: str | None = None,
    intake: str | None = None,
    **options: str,
) -> DataFrame:
    """The topic from its beginning (a checkpoint, once there is one, decides instead).

    `max_rows` bounds a batch; real-time mode has no such bound and refuses the option. An `intake` is the name under
    which the source asks before each batch how much to read, in place of a fixed number.
    """
    reader = (
        spark.readStream.format("kafka" if intake is None else _PACED)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", read.topic if control_topic is None else f"{read.topic},{control_topic}")
        .option("startingOffsets", "earliest")
        # Records that vanished by retention before they were read are a loss: say so and stop, do not go on in silence.
        .option("failOnDataLoss", "true")
        # What an unfinished or aborted transaction wrote, another pipeline's for instance, is nothing.
        .option("kafka.isolation.level", "read_committed")
        # Real time reads the record as soon as it is there; by default the fetch waits for up to half a second.
        .option("kafka.fetch.max.wait.ms", "100")
    )
    if max_rows is not None:
        # Spark asks the broker for the topic's bounds after every poll; with Kafka's default of 500 records a poll,
        # that and the requests themselves took a sixth of a replay's time.
        reader = (
            reader.option("maxOffsetsPerTrigger", max_rows)
            .option("kafka.max.poll.records", "20000")
            .option("kafka.max.partition.fetch.bytes", str(4 * 1024 * 1024))
            # At the end of a partition that question waits behind a fetch, which waits for records nobody asked for.
            .option("kafka.fetch.max.wait.ms", "10")
        )
    return (reader if intake is None else reader.option("reader", intake)).options(**options).load()


def with_ids(records: DataFrame, *, from_headers: bool) -> DataFrame:
    """Each record with its id: its place in the log, or what the `headrace-id` among its headers says."""
    place = F.concat_ws("/", "topic", "partition", "offset")
    if not from_headers:
        return records.withColumn(hidden.ID, place)
    headers = F.filter("headers", lambda header: header["key"] == "headrace-id")
    told = F.get(headers, F.lit(0))["value"].cast("string")
    return records.withColumn(hidden.ID, F.coalesce(told, place))


def to_rows(
    records: DataFrame,
    query: QueryPlan,
    control_topic: str | None = None,
    contracts: Contracts | None = None,
    *,
    tombstones: bool = False,
) -> DataFrame:
    """Parse each record; what does not fit the schema becomes a dead letter with the reason, never an exception.

    Records of the control topic are no data: they go through as they are. `tombstones`: so do records without payload.
    """
    control = F.lit(False) if control_topic is None else F.col(_CONTROL)
    claims = [] if control_topic is None else [hidden.CLAIM]
    ids = [hidden.ID] if hidden.ID in records.columns else []
    schema = query.read.schema
    most = query.read.max_bytes
    small = F.col("value") if most is None else F.when(F.octet_length("value") <= most, F.col("value"))
    parsed = records.select(
        _decoded(records.sparkSession, small, query.read, contracts).alias(_PARSED),
        F.col("value").alias(hidden.RAW),
        F.col("key").alias(hidden.RECORD_KEY),
        F.col("partition").alias(hidden.PARTITION),
        F.col("offset").alias(hidden.OFFSET),
        F.unix_millis("timestamp").alias(hidden.TIMESTAMP),
        *([] if control_topic is None else _control_columns(control_topic)),
        *ids,
    )

    def missing(names: Iterable[str]) -> list[Column]:
        return [F.when(_field(n).isNull(), F.lit(f"required field `{n}` is missing or null")) for n in names]

    required = [c.name for c in schema.columns if not c.nullable]
    payload = F.coalesce(
        F.when(F.col(hidden.RAW).isNull(), F.lit(hidden.NO_PAYLOAD)),
        *([] if most is None else [_too_large(most)]),
        F.col(_PARSED).getField(_MISFIT),
        *missing(required),
    )
    if not query.takes_side_rows:
        # Another query of the same topic sends these on; what only this query can't do without is its own matter.
        kept = F.col(hidden.RAW).isNull() if tombstones else F.lit(False)
        parsed = parsed.where(control | payload.isNull() | kept)
    own = missing(c.name for c in schema.columns if c.nullable and c.name in _needed(query))
    reason = F.when(~control, F.coalesce(payload, *own))
    rows = parsed.select(
        *(_field(c.name).alias(c.name) for c in schema.columns),
        reason.alias(hidden.INTAKE_REASON),
        hidden.RAW,
        hidden.RECORD_KEY,
        hidden.PARTITION,
        hidden.OFFSET,
        hidden.TIMESTAMP,
        control.alias(_CONTROL),
        *claims,
        *ids,
    )
    route = F.when(F.col(_CONTROL), Route.CONTROL.value)
    dead = F.col(hidden.INTAKE_REASON).isNotNull()
    return rows.select(
        *(c.name for c in schema.columns),
        route.when(dead, Route.DEAD_LETTER.value).otherwise(Route.RESULT.value).alias(hidden.ROUTE),
        F.lit(None).cast("bigint").alias(hidden.TIME),
        hidden.PARTITION,
        hidden.OFFSET,
        hidden.TIMESTAMP,
        hidden.RECORD_KEY,
        # The bytes are kept only where they are needed: they would otherwise cross the shuffle twice.
        F.when(dead, F.col(hidden.RAW)).alias(hidden.RAW),
        hidden.INTAKE_REASON,
        *claims,
        *ids,
    )


def _decoded(spark: SparkSession, value: Column, read: Read, contracts: Contracts | None) -> Column:
    if read.contract is not None:
        assert contracts is not None
        return contracts.decode(spark, value, read, _MISFIT)
    columns = ", ".join(f"`{c.name}` {c.type}" for c in read.schema.columns)
    return doorway.from_json(spark, value, columns, _MISFIT)


def _too_large(most: int) -> Column:
    size = F.octet_length(hidden.RAW)
    reason = F.concat(F.lit("the payload has "), size.cast("string"), F.lit(f" bytes; max_bytes allows {most}"))
    return F.when(size > most, reason)


def _control_columns(topic: str) -> list[Column]:
    control = F.col("topic") == topic
    return [F.when(control, F.col("value").cast("string").cast("bigint")).alias(hidden.CLAIM), control.alias(_CONTROL)]


def with_event_time(rows: DataFrame, step: EventTime) -> DataFrame:
    """Add the event time; a row stamped too far ahead of its arrival in the log is quarantined.

    "Ahead" is measured against the record's Kafka timestamp, not this machine's clock, so a replay decides the same.
    """
    column = F.col(step.column)
    data = F.col(hidden.ROUTE) == Route.RESULT.value
    if dict(rows.dtypes)[step.column] == "bigint":
        millis = F.when(column.between(*_CLOCK), column)
    else:
        millis = F.unix_millis(column)
    rows = rows.withColumn(hidden.TIME, F.when(data, millis))
    timeless = data & F.col(hidden.TIME).isNull()
    reason = F.lit(f"event time `{step.column}` is no time between the years 1 and 9999")
    timed = rows.withColumns(
        {
            hidden.INTAKE_REASON: F.when(timeless, reason).otherwise(F.col(hidden.INTAKE_REASON)),
            hidden.ROUTE: F.when(timeless, Route.DEAD_LETTER.value).otherwise(F.col(hidden.ROUTE)),
        }
    )
    data = F.col(hidden.ROUTE) == Route.RESULT.value
    if step.max_skew_ms is None:
        return timed
    ahead = F.col(hidden.TIME) - F.col(hidden.TIMESTAMP)
    skewed = data & (ahead > step.max_skew_ms)
    reason = F.concat(
        F.lit(f"event time `{step.column}` is "),
        (ahead / 1000).cast("bigint").cast("string"),
        F.lit(f" s ahead of the record's own timestamp; max_skew allows {step.max_skew_ms / 1000:g} s"),
    )
    return timed.withColumn(
        hidden.INTAKE_REASON, F.when(skewed, reason).otherwise(F.col(hidden.INTAKE_REASON))
    ).withColumn(hidden.ROUTE, F.when(skewed, Route.QUARANTINED.value).otherwise(F.col(hidden.ROUTE)))


def _field(name: str) -> Column:
    return F.col(_PARSED).getField(name)


def _needed(query: QueryPlan) -> set[str]:
    """Columns that a row can't be without: its time and its key."""
    time = query.event_time
    return {*query.key, *(() if time is None else (time.column,))}
