"""Attempts of tasks, made by hand: the real sink on a real broker, in any order that a scheduler could bring about."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.engine.settings import KAFKA_PRODUCER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sink:
    """The Kafka sink of one query, as the tasks of its batches see it."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        source: str,
        deliveries: Mapping[str, str] | None = None,
        **producer: str,
    ) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self.writer = f"headrace.attempts.{uuid.uuid4().hex[:8]}"
        settings = KAFKA_PRODUCER | {name.replace("_", "."): value for name, value in producer.items()}
        self._package = self._jvm.org.apache.spark.sql.headrace
        self._producers = self._package.TransactionalProducers
        self._settings = self._package.WriterSettings(
            *(self.writer, "0", source, f"{self.writer}-position"),
            self._map(deliveries or {}),
            self._map(settings | {"bootstrap.servers": bootstrap}),
        )

    def attempt(self, batch: int, partition: int = 0, input: str = "the same") -> Attempt:
        """A task begins: one more attempt if there was one before."""
        shares = self._seq([self._map({}), self._map({})])
        factory = self._package.TransactionalKafkaWriterFactory(self._settings, shares, input)
        return Attempt(self, factory.createWriter(partition, 0, batch))

    def forget(self) -> None:
        """What the death of the process does to the producers that wait for their next batch."""
        self._producers.closeAll(self.writer)

    def row(self, topic: str, value: str) -> Any:
        utf8 = self._jvm.org.apache.spark.unsafe.types.UTF8String
        fields = [utf8.fromString(topic), None, bytearray(value.encode()), None]
        return self._jvm.org.apache.spark.sql.catalyst.InternalRow.fromSeq(self._seq(fields))

    def _seq(self, items: list[Any]) -> Any:
        listed = self._jvm.java.util.ArrayList()
        for item in items:
            listed.add(item)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(listed)

    def _map(self, items: Mapping[str, str]) -> Any:
        mapped = self._jvm.java.util.HashMap()
        for name, value in items.items():
            mapped.put(name, value)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(mapped)


class Attempt:
    """One attempt of one task."""

    def __init__(self, sink: Sink, writer: Any) -> None:
        self._sink = sink
        self._writer = writer

    def write(self, topic: str, *values: str) -> Attempt:
        for value in values:
            self._writer.write(self._sink.row(topic, value))
        return self

    def commit(self) -> None:
        self._writer.commit()

    def abort(self) -> None:
        self._writer.abort()
