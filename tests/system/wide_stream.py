"""A random stream that holds what makes windows hard: disorder, ties, nulls, doubles of all sizes, repeated ids."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import headrace as hr
from headrace.pipeline.nodes import Latest, WindowAggregate
from tests.system import model
from tests.system.model import Arrival, timestamp
from tests.system.records import LogReader, Number, Position, Record, Sent, positions, produce
from tests.system.running import Engine

SCHEMA = """
    id STRING NOT NULL, k STRING NOT NULL, at TIMESTAMP NOT NULL, d DOUBLE, wild DOUBLE, f FLOAT, n BIGINT, i INT,
    m DECIMAL(20,4), s STRING, ts TIMESTAMP, day DATE
"""
START = 1_714_564_800_000  # 2024-05-01 12:00 UTC
WITHIN_MS = 15 * 60_000
ROUTES = ("results", "duplicates", "late")


def _aggregates(windows: tuple[str, str, str], reaches: tuple[str, str]) -> dict[str, Any]:
    short, middle, long = map(hr.last, windows)
    return {
        "count_short": short.count(),
        "count_long": long.count(),
        "count_d": middle.count("d"),
        "sum_short": short.sum("d"),
        "sum_d": middle.sum("d"),
        "avg_d": middle.avg("d"),
        "min_d": long.min("d"),
        "max_d": short.max("d"),
        "stddev_d": long.stddev("d"),
        "stddev_n": middle.stddev("n"),
        "sum_wild": long.sum("wild"),
        "avg_wild": middle.avg("wild"),
        "min_wild": middle.min("wild"),
        "max_wild": long.max("wild"),
        "sum_f": long.sum("f"),
        "sum_n": long.sum("n"),
        "avg_n": middle.avg("n"),
        "max_n": long.max("n"),
        "sum_i": middle.sum("i"),
        "min_i": long.min("i"),
        "sum_m": long.sum("m"),
        "avg_m": middle.avg("m"),
        "min_m": middle.min("m"),
        "min_s": long.min("s"),
        "max_s": middle.max("s"),
        "max_ts": long.max("ts"),
        "min_day": long.min("day"),
        "distinct_s": long.approx_count_distinct("s"),
        "distinct_n": long.approx_count_distinct("n"),
        "itself": hr.latest("id", "d", back=0),
        "before": hr.latest("id", "s", "ts", "m"),
        "third": hr.latest("id", back=3, within=reaches[0]),
        "long_ago": hr.latest("id", "n", back=2, within=reaches[1]),
    }


_WORDS = ("", "a", "A", "ab", "é", "e", "z", "~", "\ufb01", "\U0001f600", "ümlaut")  # UTF-8 and UTF-16 order differ


@dataclass(frozen=True)
class Shape:
    """What a random stream is like, and the windows that are laid over it. Of disorders, repeats and nulls, keys have
    what there is in turn.
    """

    keys: int = 40
    step_ms: int = 5_000
    """Time moves on by so much for each event."""
    disorders: tuple[int, ...] = (300_000,)
    """So many milliseconds an event is behind at most."""
    repeats: tuple[float, ...] = (0.1,)
    """How many have an id that their key has had before; half of these are the very same event once more."""
    echo_ms: int = 0
    """The others come at any time, or less than this after the one whose id they have."""
    nulls: tuple[float, ...] = (0.15,)
    grains: tuple[int, ...] = (1, 1, 10_000, 60_000)
    """Coarse clocks, of which each key has one: many events at one time."""
    within_ms: int = WITHIN_MS
    """How long `dedupe` remembers."""
    windows: tuple[str, str, str] = ("30s", "5m", "20m")
    reaches: tuple[str, str] = ("10m", "40m")
    """How far `latest` looks back."""

    @staticmethod
    def random(rng: random.Random) -> Shape:
        """Few keys or many, dense or sparse, in disorder. Times and spans are mostly multiples of one tick, so that
        events lie at the very edges of windows and of what is remembered.
        """
        tick = rng.choice((10, 50, 1_000, 60_000))

        def span(*ticks: int) -> str:
            return f"{tick * rng.choice(ticks) + rng.choice((0, 0, 0, 1))}ms"

        within_ms = tick * rng.choice((1, 3, 8, 20))
        return Shape(
            keys=rng.choice((4, 12, 40)),
            step_ms=rng.choice((tick // 10, tick // 3, 2 * tick)),
            disorders=tuple(tick * n for n in rng.sample((1, 4, 15, 60), k=3)),
            repeats=tuple(rng.sample((0.0, 0.2, 0.4, 0.6), k=2)),
            echo_ms=rng.choice((0, within_ms + tick, within_ms + tick)),
            nulls=tuple(rng.sample((0.0, 0.15, 0.6, 1.0), k=3)),
            grains=rng.choice(((tick,), (tick, 1), (tick, 4 * tick))),
            within_ms=within_ms,
            windows=(span(1, 2), span(1, 5), span(2, 10, 25)),
            reaches=(span(1, 5, 100), span(2, 25, 100)),
        )

    @property
    def aggregates(self) -> Mapping[str, WindowAggregate | Latest]:
        return _aggregates(self.windows, self.reaches)

    @property
    def tolerance_ms(self) -> int:
        """What is behind the latest event of its partition by no more than this is on time."""
        return max(self.disorders) + max(self.grains)


AGGREGATES = Shape().aggregates


@dataclass(frozen=True)
class WideStream:
    """Events of many keys, each key in one partition."""

    sent: list[Sent]
    arrivals: list[Arrival]
    shape: Shape

    @cached_property
    def expected(self) -> dict[Position, dict[str, Any]]:
        """By position, the results of what passes `dedupe`."""
        results = model.rolling(self._judged[0], self.shape.aggregates)
        return {arrival.position: result for arrival, result in results}

    @property
    def duplicates(self) -> set[Position]:
        return {arrival.position for arrival in self._judged[1]}

    @cached_property
    def _judged(self) -> tuple[list[Arrival], list[Arrival]]:
        return model.first_of_each_id(self.arrivals, "id", self.shape.within_ms)

    @staticmethod
    def random(seed: int, events: int = 1500, partitions: int = 2, shape: Shape | None = None) -> WideStream:
        rng, shape = random.Random(seed), shape or Shape()
        keys, step_ms = shape.keys, shape.step_ms
        weights = [1 / (1 + k) ** 0.7 for k in range(keys)]  # a few busy keys, many quiet ones
        grain = [rng.choice(shape.grains) for _ in range(keys)]
        kept: list[list[dict[str, Any]]] = [[] for _ in range(keys)]
        sent, rows = [], []
        for number in range(events):
            k = rng.choices(range(keys), weights)[0]
            disorder, repeats = shape.disorders[k % len(shape.disorders)], shape.repeats[k % len(shape.repeats)]
            behind = rng.choice((0, 0, rng.randrange(max(1, disorder // 15)), rng.randrange(disorder)))
            time = (START + number * step_ms - behind) // grain[k] * grain[k]
            row = _values(rng, shape.nulls[k % len(shape.nulls)]) | {"id": f"e{number}", "k": f"key-{k}", "at": time}
            if kept[k] and rng.random() < repeats:
                again = rng.choice(kept[k][-8:])
                row["id"] = again["id"]
                recent = START + number * step_ms - again["at"] < disorder
                if rng.random() < 0.5 and recent:
                    row = again  # the very same event once more
                elif recent and shape.echo_ms:
                    echo = again["at"] + rng.randrange(shape.echo_ms) // grain[k] * grain[k]
                    row["at"] = min(echo, START + number * step_ms)
            kept[k].append(row)
            rows.append(row)
            fields = {name: value for name, value in row.items() if value is not None or rng.random() < 0.5}
            sent.append(Sent.row(fields | {"at": timestamp(row["at"])}, key=row["k"], partition=k % partitions))
        arrivals = [
            Arrival(position, row["k"], row["at"], row) for position, row in zip(positions(sent), rows, strict=True)
        ]
        return WideStream(sent, arrivals, shape)


def _values(rng: random.Random, nulls: float) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < nulls else value

    wild = rng.choice((-1, 1)) * rng.random() * 10.0 ** rng.choice((-320, -308, -20, 0, 1, 16, 17, 150, 300))
    return {
        "d": maybe(rng.choice((round(rng.uniform(-500, 5000), 2), rng.gauss(0, 1), 1e8 + rng.random(), 0.1, -0.0))),
        "wild": maybe(wild),
        "f": maybe(rng.choice((0.5, -1.25, 3.0, 16777216.0, 2.0**-20))),  # exact in 32 bits
        "n": maybe(rng.choice((rng.randrange(-5, 5), rng.randrange(-(10**15), 10**15)))),
        "i": maybe(rng.randrange(-(2**31), 2**31)),
        "m": maybe(Decimal(rng.randrange(-(10**19), 10**19)).scaleb(-4)),
        "s": maybe(rng.choice(_WORDS)),
        "ts": maybe(timestamp(START + rng.randrange(10**9))),
        "day": maybe(f"2024-0{rng.randrange(1, 10)}-1{rng.randrange(10)}"),
    }


def declare(name: str, source: str, out_of_order: str = "30m", shape: Shape | None = None) -> hr.Pipeline:
    """The pipeline under test; its outputs are `<name>-results`, `-duplicates` and `-late`."""
    shape = shape or Shape()
    pipeline = hr.Pipeline(name)
    results = (
        pipeline.read(source, schema=SCHEMA)
        .event_time("at", out_of_order=out_of_order)
        .dedupe("id", within=f"{shape.within_ms}ms")
        .key_by("k")
        .rolling("activity", **shape.aggregates)
    )
    results.write(f"{name}-results")
    results.duplicates.write(f"{name}-duplicates")
    results.late.write(f"{name}-late")
    return pipeline


def outputs(engine: Engine, name: str) -> dict[str, list[Record]]:
    """The records of each output of a pipeline that `declare` made."""
    return {kind: engine.read(f"{name}-{kind}") for kind in ROUTES}


def reader_of(engine: Engine, name: str) -> LogReader:
    """Reads all outputs of a pipeline that `declare` made."""
    return LogReader(engine.bootstrap, *(f"{name}-{kind}" for kind in ROUTES))


def produce_and_await(engine: Engine, reader: LogReader, source: str, sent: list[Sent], total: int) -> None:
    """Writes to the source, then waits until every event so far has come out at one end or another."""
    produce(engine.bootstrap, source, sent)
    reader.until(lambda records: len({record.source for record in records}) == total, f"{total} events to come out")


def value_of(name: str, row: Mapping[str, Any]) -> Any:
    """A result as the type that its column has."""
    value = row.get(name)
    if isinstance(value, dict):
        return {field: value_of(field, value) for field in value}
    decimal = name in ("m", "sum_m", "min_m")
    if isinstance(value, Number) or (decimal and isinstance(value, int)):
        return Decimal(value) if decimal else float(value)
    return value


def wrong_results(records: Iterable[Record], expected: Mapping[Any, Mapping[str, Any]]) -> dict[Any, Any]:
    """By position, what is not as expected."""
    found = {record.source: differences(record, expected[record.source]) for record in records}
    return {position: what for position, what in found.items() if what}


def differences(record: Record, expected: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is not as expected in a result; doubles to the last bit, `stddev` to 14 digits."""
    row = record.row
    wrong = {}
    for name, wanted in expected.items():
        if isinstance(wanted, model.Distinct):
            continue
        found = value_of(name, row)
        same = found == wanted
        if name.startswith("stddev") and found is not None and wanted is not None:
            same = abs(found - wanted) <= 1e-14 * wanted
        if not same:
            wrong[name] = (found, wanted)
    return wrong
