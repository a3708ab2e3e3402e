"""From Kafka records to rows with a route: parsed data, dead letters, quarantined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.engine import hidden, sql
from headrace.engine.expressions import spelled, unknown_column
from headrace.engine.plan import QueryPlan, Route
from headrace.kernel import doorway
from headrace.pipeline.nodes import Apply, EventTime, Read

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
    All rows have their original bytes with them: `without_bytes` takes them off those that are no dead letters.
    """
    control = "false" if control_topic is None else _CONTROL
    ids = [hidden.ID] if hidden.ID in records.columns else []
    more = [*([] if control_topic is None else [hidden.CLAIM]), *ids]
    schema = query.read.schema
    most = query.read.max_bytes
    small = F.expr("value" if most is None else sql.case([(f"octet_length(value) <= {most}", "value")]))
    parsed = doorway.select(
        records,
        [*_taken(control_topic), *ids],
        [_decoded(records.sparkSession, small, query.read, contracts).alias(_PARSED)],
    )
    payload = _coalesced(
        sql.case([(f"{hidden.RAW} IS NULL", sql.text(hidden.NO_PAYLOAD))]),
        *([] if most is None else [_too_large(most)]),
        f"{_PARSED}.{_MISFIT}",
        *(_missing(c.name) for c in schema.columns if not c.nullable),
    )
    if not query.takes_side_rows:
        # Another query of the same topic sends these on; what only this query can't do without is its own matter.
        kept = f"{hidden.RAW} IS NULL" if tombstones else "false"
        parsed = parsed.where(f"{control} OR {payload} IS NULL OR {kept}")
    own = (_missing(c.name) for c in schema.columns if c.nullable and c.name in _needed(query))
    reason = sql.case([(f"NOT {control}", _coalesced(payload, *own))])
    rows = doorway.select(
        parsed,
        [
            *(f"{_field(c.name)} AS {sql.name(c.name)}" for c in schema.columns),
            f"{reason} AS {hidden.INTAKE_REASON}",
            *_ORIGIN,
            hidden.RAW,
            f"{control} AS {_CONTROL}",
            *more,
        ],
    )
    dead = f"{hidden.INTAKE_REASON} IS NOT NULL"
    route = sql.case([(_CONTROL, str(Route.CONTROL.value)), (dead, str(Route.DEAD_LETTER.value))], _RESULT)
    return doorway.select(
        rows,
        [
            *(sql.name(c.name) for c in schema.columns),
            f"{route} AS {hidden.ROUTE}",
            f"CAST(NULL AS BIGINT) AS {hidden.TIME}",
            *_ORIGIN,
            hidden.RAW,
            hidden.INTAKE_REASON,
            *more,
        ],
    )


def _decoded(spark: SparkSession, value: Column, read: Read, contracts: Contracts | None) -> Column:
    if read.contract is not None:
        assert contracts is not None
        return contracts.decode(spark, value, read, _MISFIT)
    columns = ", ".join(f"{sql.name(c.name)} {c.type}" for c in read.schema.columns)
    return doorway.from_json(spark, value, columns, _MISFIT)


def _taken(control_topic: str | None) -> list[str]:
    """What is taken from a record as it is."""
    taken = [
        f"value AS {hidden.RAW}",
        f"key AS {hidden.RECORD_KEY}",
        f"partition AS {hidden.PARTITION}",
        f"offset AS {hidden.OFFSET}",
        f"unix_millis(timestamp) AS {hidden.TIMESTAMP}",
    ]
    if control_topic is None:
        return taken
    control = f"topic = {sql.text(control_topic)}"
    claim = sql.case([(control, "CAST(CAST(value AS STRING) AS BIGINT)")])
    return [*taken, f"{claim} AS {hidden.CLAIM}", f"{control} AS {_CONTROL}"]


def with_event_time(rows: DataFrame, step: EventTime) -> DataFrame:
    """Add the event time; a row stamped too far ahead of its arrival in the log is quarantined.

    "Ahead" is measured against the record's Kafka timestamp, not this machine's clock, so a replay decides the same.
    """
    column = sql.name(step.column)
    types = {name: type for name, type in rows.dtypes if not name.startswith("__hr_")}
    found = spelled(step.column, types)
    if found is None:
        raise unknown_column(step, step.column, list(types))
    if types[found] == "bigint":
        millis = sql.case([(f"{column} BETWEEN {_CLOCK[0]} AND {_CLOCK[1]}", column)])
    else:
        # Bounds that Spark computes once: a row is compared with two numbers.
        first, end = f"timestamp_millis({_CLOCK[0]})", f"timestamp_millis({_CLOCK[1] + 1})"
        millis = sql.case([(f"{column} >= {first} AND {column} < {end}", f"unix_millis({column})")])
    data = f"{hidden.ROUTE} = {_RESULT}"
    timed = replaced(rows, {hidden.TIME: sql.case([(data, millis)])})
    # In this order: a row without a time is not ahead of anything.
    leaves = [
        (
            Route.DEAD_LETTER,
            f"{data} AND {hidden.TIME} IS NULL",
            sql.text(f"event time `{step.column}` is no time between the years 1 and 9999"),
        )
    ]
    if step.max_skew_ms is not None:
        ahead = f"({hidden.TIME} - {hidden.TIMESTAMP})"
        before = sql.text(f"event time `{step.column}` is ")
        after = sql.text(f" s ahead of the record's own timestamp; max_skew allows {step.max_skew_ms / 1000:g} s")
        told = f"concat({before}, CAST(CAST({ahead} / 1000 AS BIGINT) AS STRING), {after})"
        leaves.append((Route.QUARANTINED, f"{data} AND {ahead} > {step.max_skew_ms}", told))
    return replaced(
        timed,
        {
            hidden.INTAKE_REASON: sql.case([(when, reason) for _, when, reason in leaves], hidden.INTAKE_REASON),
            hidden.ROUTE: sql.case([(when, str(route.value)) for route, when, _ in leaves], hidden.ROUTE),
        },
    )


def with_keys(rows: DataFrame, query: QueryPlan) -> DataFrame:
    """The rows that have a key; others are dead letters. Behind a function of the user only then can it be told."""
    if not any(isinstance(step, Apply) for step in query.before):
        return rows
    for name in query.key:
        lacks = f"{hidden.ROUTE} = {_RESULT} AND {sql.name(name)} IS NULL"
        reason = sql.text(f"required field `{name}` is missing or null")
        rows = replaced(
            rows,
            {
                hidden.ROUTE: sql.case([(lacks, str(Route.DEAD_LETTER.value))], hidden.ROUTE),
                hidden.INTAKE_REASON: sql.case([(lacks, reason)], hidden.INTAKE_REASON),
            },
        )
    return rows


def without_bytes(rows: DataFrame) -> DataFrame:
    """The original bytes only where they are needed: they would otherwise cross the shuffle beside the row."""
    dead = f"{hidden.ROUTE} = {Route.DEAD_LETTER.value}"
    return replaced(rows, {hidden.RAW: sql.case([(dead, hidden.RAW)])})


def replaced(rows: DataFrame, values: dict[str, str], without: tuple[str, ...] = ()) -> DataFrame:
    """The rows with other values in some columns, or columns more, all computed from what was there before."""
    names = [c for c in rows.columns if c not in without]
    names += [c for c in values if c not in names]
    return doorway.select(rows, [f"{values[c]} AS {sql.name(c)}" if c in values else sql.name(c) for c in names])


# Pieces of SQL.

_RESULT = str(Route.RESULT.value)
_ORIGIN = (hidden.PARTITION, hidden.OFFSET, hidden.TIMESTAMP, hidden.RECORD_KEY)


def _field(name: str) -> str:
    return f"{_PARSED}.{sql.name(name)}"


def _coalesced(*values: str) -> str:
    return f"coalesce({', '.join(values)})"


def _missing(name: str) -> str:
    return sql.case([(f"{_field(name)} IS NULL", sql.text(f"required field `{name}` is missing or null"))])


def _too_large(most: int) -> str:
    size = f"octet_length({hidden.RAW})"
    told = f"concat('the payload has ', CAST({size} AS STRING), ' bytes; max_bytes allows {most}')"
    return sql.case([(f"{size} > {most}", told)])


def _needed(query: QueryPlan) -> set[str]:
    """Columns that a row can't be without: its time and its key. A function of the user may fill them."""
    if any(isinstance(step, Apply) for step in query.before):
        return set()
    time = query.event_time
    return {*query.key, *(() if time is None else (time.column,))}
