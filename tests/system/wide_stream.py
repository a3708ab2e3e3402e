"""A random stream that holds what makes windows hard: disorder, ties, nulls, doubles of all sizes, repeated ids."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import headrace as hr
from headrace.pipeline.nodes import Latest, WindowAggregate
from tests.system import model
from tests.system.model import Arrival, timestamp
from tests.system.records import Number, Record, Sent, positions

SCHEMA = """
    id STRING NOT NULL, k STRING NOT NULL, at TIMESTAMP NOT NULL, d DOUBLE, wild DOUBLE, f FLOAT, n BIGINT, i INT,
    m DECIMAL(20,4), s STRING, ts TIMESTAMP, day DATE
"""
START = 1_714_564_800_000  # 2024-05-01 12:00 UTC
WITHIN_MS = 15 * 60_000


def _aggregates() -> dict[str, Any]:
    short, middle, long = hr.last("30s"), hr.last("5m"), hr.last("20m")
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
        "third": hr.latest("id", back=3, within="10m"),
        "long_ago": hr.latest("id", "n", back=2, within="40m"),
    }


AGGREGATES: Mapping[str, WindowAggregate | Latest] = _aggregates()
_WORDS = ("", "a", "A", "ab", "é", "e", "z", "~", "\ufb01", "\U0001f600", "ümlaut")  # UTF-8 and UTF-16 order differ


@dataclass(frozen=True)
class WideStream:
    """Events of many keys, each key in one partition."""

    sent: list[Sent]
    arrivals: list[Arrival]
    expected: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """By position, the results of what passes `dedupe`."""
    duplicates: set[Any] = field(default_factory=set)

    @staticmethod
    def random(seed: int, events: int = 1500, keys: int = 40, step_ms: int = 5_000, partitions: int = 2) -> WideStream:
        """Time moves on by `step_ms` for each event, with up to five minutes of disorder."""
        rng = random.Random(seed)
        weights = [1 / (1 + k) ** 0.7 for k in range(keys)]  # a few busy keys, many quiet ones
        grain = [rng.choice((1, 1, 10_000, 60_000)) for _ in range(keys)]  # coarse clocks: many events at one time
        kept: list[list[dict[str, Any]]] = [[] for _ in range(keys)]
        sent, rows = [], []
        for number in range(events):
            k = rng.choices(range(keys), weights)[0]
            behind = rng.choice((0, 0, rng.randrange(20_000), rng.randrange(300_000)))
            time = (START + number * step_ms - behind) // grain[k] * grain[k]
            row = _values(rng) | {"id": f"e{number}", "k": f"key-{k}", "at": time}
            if kept[k] and rng.random() < 0.1:
                again = rng.choice(kept[k][-8:])
                row["id"] = again["id"]
                if rng.random() < 0.5 and START + number * step_ms - again["at"] < 300_000:
                    row = again  # the very same event once more
            kept[k].append(row)
            rows.append(row)
            fields = {name: value for name, value in row.items() if value is not None or rng.random() < 0.5}
            sent.append(Sent.row(fields | {"at": timestamp(row["at"])}, key=row["k"], partition=k % partitions))
        arrivals = [
            Arrival(position, row["k"], row["at"], row) for position, row in zip(positions(sent), rows, strict=True)
        ]
        passed, duplicates = model.first_of_each_id(arrivals, "id", WITHIN_MS)
        expected = {arrival.position: results for arrival, results in model.rolling(passed, AGGREGATES)}
        return WideStream(sent, arrivals, expected, {arrival.position for arrival in duplicates})


def _values(rng: random.Random) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

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


def declare(name: str, source: str, out_of_order: str = "30m") -> hr.Pipeline:
    """The pipeline under test; its outputs are `<name>-results`, `-duplicates` and `-late`."""
    pipeline = hr.Pipeline(name)
    results = (
        pipeline.read(source, schema=SCHEMA)
        .event_time("at", out_of_order=out_of_order)
        .dedupe("id", within=f"{WITHIN_MS}ms")
        .key_by("k")
        .rolling("activity", **AGGREGATES)
    )
    results.write(f"{name}-results")
    results.duplicates.write(f"{name}-duplicates")
    results.late.write(f"{name}-late")
    return pipeline


def value_of(name: str, row: Mapping[str, Any]) -> Any:
    """A result as the type that its column has."""
    value = row.get(name)
    if isinstance(value, dict):
        return {field: value_of(field, value) for field in value}
    decimal = name in ("m", "sum_m", "min_m")
    if isinstance(value, Number) or (decimal and isinstance(value, int)):
        return Decimal(value) if decimal else float(value)
    return value


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
