"""`dedupe` and `rolling` on random streams, in any batches, with any watermark, and within a batch in any order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from hypothesis import Phase, example, given, note, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from tests.system import model
from tests.system.model import Arrival
from tests.system.records import Position, Record, to_json
from tests.system.wide_stream import ROUTES, START, Shape, WideStream, declare, wrong_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 250
NO_WATERMARK = -(2**60)

# The seed stands for a whole run, of some seconds. `make test` has the same few every time; `make fuzz` has others.
EXAMPLES = os.environ.get("HEADRACE_EXAMPLES")
runs = settings(
    max_examples=int(EXAMPLES or 1),
    derandomize=EXAMPLES is None,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@dataclass(frozen=True)
class Batch:
    events: slice
    watermark: int
    """While these are taken in."""


def batches(random: Random, stream: WideStream) -> Iterator[Batch]:
    """The stream in pieces of any size, a single event among them, with watermarks on the way."""
    ends = {*random.sample(range(2, EVENTS), random.choice((1, 3, 6))), EVENTS}
    ends.add(random.choice(sorted(ends)) - 1)
    watermark, start = NO_WATERMARK, 0
    for end in sorted(ends):
        yield Batch(slice(start, end), watermark)
        watermark = max(watermark, some_watermark(random, stream.arrivals[:end], stream.shape))
        start = end


def some_watermark(random: Random, arrivals: Sequence[Arrival], shape: Shape) -> int:
    """So far behind that nothing is late, or so close that much is, at the very edge of what events are judged by."""
    latest = max(arrival.time for arrival in arrivals)
    if random.random() < 0.2:
        return latest - shape.tolerance_ms
    late = random.choice(sorted(arrival.time for arrival in arrivals)[-20:])
    return min(late + random.choice((0, 0, 1, shape.within_ms)), latest)


def on_routes(
    arrivals: Sequence[tuple[Arrival, int]], within_ms: int
) -> tuple[dict[str, set[Position]], list[Arrival]]:
    """Where each event goes, given the watermark at its arrival; and those that count, in their order."""
    routes: dict[str, set[Position]] = {route: set() for route in ROUTES}
    counted = []
    remembered: dict[tuple[str, str], int] = {}
    for arrival, watermark in arrivals:
        identity = (arrival.key, arrival.row["id"])
        seen = remembered.get(identity, NO_WATERMARK)
        known = seen > watermark - within_ms
        if arrival.time <= watermark - within_ms:
            routes["late"].add(arrival.position)  # nobody can tell whether it is a duplicate
        elif known and abs(arrival.time - seen) < within_ms:
            routes["duplicates"].add(arrival.position)
        else:
            remembered[identity] = arrival.time
            routes["late" if arrival.time < watermark else "results"].add(arrival.position)
            if arrival.time >= watermark:
                counted.append(arrival)
    return routes, counted


@runs
@example(seed=275)  # in these two some event lies at the very edge of everything: late, remembered, kept, in a window
@example(seed=321)
@given(seed=st.integers(0, 2**32))
def test_every_event_is_where_the_model_says_with_the_results_of_the_model(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    shape = Shape.random(random)
    note(str(shape))
    stream = WideStream.random(seed, EVENTS, 1, shape)
    arrivals: list[tuple[Arrival, int]] = []
    with Driver(
        declare("properties", "events", shape=shape), spark=spark, state_partitions=random.choice((1, 2))
    ) as driver:
        for batch in batches(random, stream):
            if batch.watermark != NO_WATERMARK:
                driver.advance_watermark(batch.watermark)
            driver.send("events", *(record.value for record in stream.sent[batch.events]))
            arrivals += [(arrival, batch.watermark) for arrival in stream.arrivals[batch.events]]
        found = {
            route: [Record(r.topic, None, r.value, r.headers) for r in driver.records(f"properties-{route}")]
            for route in ROUTES
        }
    routes, counted = on_routes(arrivals, shape.within_ms)
    for route, positions in routes.items():
        assert sorted(record.source for record in found[route]) == sorted(positions), route
    expected = {arrival.position: results for arrival, results in model.rolling(counted, shape.aggregates)}
    assert wrong_results(found["results"], expected) == {}


class ScatteredDriver(Driver):
    """Has several partitions in a batch, and their records in any order: as a shuffle may bring them."""

    def scatter(self, topic: str, rows: Sequence[tuple[int, int, str]]) -> None:
        """Sends rows with their partitions and offsets, as one batch."""
        for partition, offset, row in rows:
            for query in self._readers(topic):
                query.log.add(topic, partition, offset, 0, None, row.encode())
        self._work()


def test_within_a_batch_a_key_is_taken_in_the_order_of_partition_and_offset(spark: SparkSession) -> None:
    pipeline = hr.Pipeline("scattered")
    timed = pipeline.read("events", schema="k STRING, at BIGINT").event_time("at").key_by("k")
    timed.rolling("counted", n=hr.last("1h").count()).write("counts")
    places = [(partition, offset) for partition in range(3) for offset in range(12)]
    # All at one time, so that each result tells how many of its key were taken before it.
    rows = [(partition, offset, to_json({"k": "ab"[offset % 2], "at": START})) for partition, offset in places]
    Random(1).shuffle(rows)
    driver = ScatteredDriver(pipeline, spark=spark, state_partitions=2)
    with driver:
        driver.scatter("events", rows)
        found = [Record(r.topic, None, r.value, r.headers) for r in driver.records("counts")]
    taken = {record.source: record.row["n"] for record in found}
    assert taken == {(partition, offset): partition * 6 + offset // 2 + 1 for partition, offset in places}
