"""The registry with 10,000 schemas: how long it takes to start, and to look one up by its id."""

from __future__ import annotations

import argparse
import http.client
import json
import random
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from bench.harness import broker, emit, median, note, seconds
from headrace.contracts import RegistryClient
from headrace.contracts.embedded import EmbeddedRegistry
from headrace.contracts.records import TOPIC, Version, schema_record
from headrace.contracts.schemas import Schema, SchemaType
from headrace.contracts.store import ensure_topic
from headrace.log.producer import producer_config


def schema(number: int) -> str:
    """A record of a dozen fields, as a table or an event has them."""
    fields = [{"name": f"field_{index}", "type": ["null", "string"], "default": None} for index in range(12)]
    record = {"type": "record", "name": f"Event{number}", "namespace": "bench", "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def load(bootstrap: str, count: int) -> None:
    """Writes the log of a registry in which so many schemas were registered, ten versions to a subject."""
    ensure_topic(bootstrap, TOPIC)
    producer = Producer(producer_config(bootstrap, **{"queue.buffering.max.messages": count + 1}))
    for id in range(1, count + 1):
        version = Version(f"subject-{id // 10}-value", id % 10 + 1, Schema(id, SchemaType.AVRO, schema(id)))
        record = schema_record(version)
        producer.produce(TOPIC, record.value, record.key, partition=0)
    producer.flush()


def look_up(url: str, count: int, looks: int) -> list[float]:
    """Milliseconds of each look-up of a random id over one connection, all of HTTP among it."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"))

    def ask(path: str) -> None:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()

    took = [seconds(partial(ask, f"/schemas/ids/{random.randint(1, count)}")) * 1000 for _ in range(looks)]
    connection.close()
    return took


def measure(url: str, number: int, count: int, looks: int) -> tuple[list[float], float, list[float]]:
    """Look-ups over HTTP, a look-up in the client's cache, and registrations, in milliseconds."""
    client = RegistryClient(url)
    client.schema_by_id(7)
    cached = seconds(lambda: [client.schema_by_id(7) for _ in range(1000)])
    client.register(f"warm-{number}", schema(10**6 + number))  # claims the log
    new = [(f"new-{number}-{each}", schema(10**7 + number * 100 + each)) for each in range(20)]
    registered = [seconds(partial(client.register, *each)) * 1000 for each in new]
    return look_up(url, count, looks), cached, registered


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--looks", type=int, default=2_000)
    options = parser.parse_args()
    with broker() as (bootstrap, folder):
        note(f"registry: writing {options.schemas} schemas")
        load(bootstrap, options.schemas)
        starts: list[float] = []
        looks: list[float] = []
        cached: list[float] = []
        registrations: list[float] = []
        for number in range(options.rounds):
            note(f"registry: round {number + 1} of {options.rounds}")
            registry = EmbeddedRegistry(bootstrap, Path(folder) / f"registry-{number}")
            starts.append(seconds(registry.start))
            try:
                found = measure(registry.url, number, options.schemas, options.looks)
            finally:
                registry.stop()
            looks += found[0]
            cached.append(found[1])
            registrations += found[2]
        looks.sort()
        emit(
            bench="registry",
            schemas=options.schemas,
            start_seconds=round(median(starts), 2),
            look_up_ms_p50=round(median(looks), 3),
            look_up_ms_p99=round(looks[int(len(looks) * 0.99)], 3),
            cached_look_up_us=round(median(cached) * 1000, 2),
            register_ms_p50=round(median(registrations), 1),
        )


if __name__ == "__main__":
    main()
