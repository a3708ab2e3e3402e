"""Decoding of the demo's transactions: Avro under a contract, against Spark's `from_json` and `from_avro`.

All read the same rows from memory and hand them to a sink that drops them, so that decoding is most of what is timed.
`from_avro` gets the bytes without a header and one schema; the contract finds its schema by the id of each record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from bench.harness import broker, by_turns, emit, median, note, options, ratio, seconds
from examples.fraud.generator import Kind, Traffic, Transactions
from headrace.contracts import RegistryClient
from headrace.contracts.embedded import EmbeddedRegistry
from headrace.engine.session import open_session
from headrace.jvm.jars import resolve
from headrace.kernel import doorway
from headrace.pipeline.contracts import ContractSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = "txn_id STRING, card_id STRING, amount DOUBLE, merchant STRING, lat DOUBLE, lon DOUBLE, occurred_at TIMESTAMP"
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Transaction",
    "fields": [
        {"name": "txn_id", "type": "string"},
        {"name": "card_id", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "merchant", "type": "string"},
        {"name": "lat", "type": "double"},
        {"name": "lon", "type": "double"},
        {"name": "occurred_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
OLDER: dict[str, Any] = {
    **AVRO,
    "fields": [*AVRO["fields"][:3], {"name": "gone", "type": "string"}, *AVRO["fields"][3:]],
}


def transactions(spark: SparkSession, count: int, id: int, older: int) -> DataFrame:
    """The same rows as JSON, as bare Avro, and under a contract; kept in memory, eight times over to have enough."""
    traffic = Transactions(Traffic(rate=500.0), start_ms=1_700_000_000_000)
    normal = (e.value for e in traffic if e.kind is Kind.NORMAL)
    made = [(value,) for value in islice(normal, count // 8)]
    rows = spark.createDataFrame(made, "json BINARY").withColumn("t", F.from_json(F.col("json").cast("string"), SCHEMA))
    both = rows.withColumn("o", F.col("t").withField("gone", F.lit("x")))
    encoded = doorway.to_contract(both, F.col("t"), ContractSchema("AVRO", json.dumps(AVRO)).spec(), id)
    second = doorway.to_contract(both, F.col("o"), ContractSchema("AVRO", json.dumps(OLDER)).spec(), older)
    framed = both.select(
        "json", encoded.getField("value").alias("framed"), second.getField("value").alias("older"), F.rand(7).alias("r")
    )
    table = framed.select(
        "json",
        "framed",
        F.expr("substring(framed, 6)").alias("avro"),
        F.when(F.col("r") < 0.5, F.col("older")).otherwise(F.col("framed")).alias("mixed"),
    ).crossJoin(spark.range(8))
    table = table.repartition(2).persist()
    note(f"{table.count():,} transactions")
    return table


def decoding(table: DataFrame, value: Column) -> float:
    """How long it takes to decode all, with every field taken out of the result."""
    fields = table.select(value.alias("p")).select("p.*")
    return seconds(lambda: fields.write.format("noop").mode("overwrite").save())


def main() -> None:
    a = options(rows=1_000_000, rounds=5)
    with broker() as (bootstrap, folder), EmbeddedRegistry(bootstrap, folder / "registry") as registry:
        client = RegistryClient(registry.url)
        client.set_compatibility("NONE", "transactions-value")
        older = client.register("transactions-value", json.dumps(OLDER))
        id = client.register("transactions-value", json.dumps(AVRO))
        jars = ",".join(map(str, resolve("spark-avro", progress=note)))
        spark = open_session(
            "bench", slots=2, state_partitions=2, log_file=folder / "spark.log", report=note, extra={"spark.jars": jars}
        )
        table = transactions(spark, a.rows, id, older)
        agreed = ContractSchema("AVRO", json.dumps(AVRO))
        contract, columns = agreed.spec(), ", ".join(f"`{c.name}` {c.type}" for c in agreed.columns().columns)
        access: dict[str, Any] = {**client.access(), "patienceMs": 10_000}

        def under_contract(column: str) -> Column:
            return doorway.from_contract(spark, F.col(column), contract, columns, "reason", access)

        wrong = table.select(under_contract("mixed").alias("p")).where("p.reason IS NOT NULL").count()
        assert wrong == 0, f"{wrong} payloads did not decode"
        ways: dict[str, Callable[[], object]] = {
            "contract": lambda: decoding(table, under_contract("framed")),
            "contract_mixed": lambda: decoding(table, under_contract("mixed")),
            "from_json": lambda: decoding(table, F.from_json(F.col("json").cast("string"), SCHEMA)),
            "own_json": lambda: decoding(table, doorway.from_json(spark, F.col("json"), SCHEMA, "reason")),
            "from_avro": lambda: decoding(table, _from_avro(F.col("avro"))),
        }
        times = by_turns(a.rounds, ways)
        spark.stop()
    ratios = {name: ratio(took, times["contract"]) for name, took in times.items()}
    emit(
        bench="contracts",
        rows=a.rows,
        rows_per_second={name: round(a.rows / median(took)) for name, took in times.items()},
        times_from_json=ratios["from_json"],
        target_from_json=1.0,
        times_from_avro=ratios["from_avro"],
        target_from_avro=0.9,
        times_own_json=ratios["own_json"],
        times_mixed_versions=ratios["contract_mixed"],
    )


def _from_avro(value: Column) -> Column:
    from pyspark.sql.avro.functions import from_avro

    return from_avro(value, json.dumps(AVRO))


if __name__ == "__main__":
    main()
