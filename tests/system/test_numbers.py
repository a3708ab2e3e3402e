"""Aggregates of numbers at the edges of what a double can hold, through the whole engine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from tests.system import model
from tests.system.model import timestamp
from tests.system.records import Sent, produce
from tests.system.running import Engine, fresh
from tests.system.wide_stream import START

Topic = Callable[..., str]


def _streams() -> dict[str, list[float]]:
    rng = random.Random(3)
    step = math.ulp(1e8)
    return {
        "few bits apart": [1e8 + rng.randrange(4) * step for _ in range(90)],
        "one bit apart": [0.1, math.nextafter(0.1, 1)] * 45,
        "all equal": [0.1] * 90,
        "far apart": [rng.choice((1e15, -1e15, 1e-15)) + rng.random() for _ in range(90)],
        "one large": [1e17, *(rng.random() for _ in range(89))],
        "cancelling": [value for _ in range(30) for value in (1e200, rng.random(), -1e200)],
        "subnormal": [rng.randrange(1, 100) * 5e-324 for _ in range(90)],
        "infinite": [1.0, math.inf, 2.0],
        "no number": [1.0, math.nan, 2.0],
        "opposite infinities": [math.inf, -math.inf],
    }


STREAMS = _streams()


@pytest.fixture(scope="module")
def results(engine: Engine, topic: Topic, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Of each stream, the results of its events in order. Ninety events make a tree of two levels."""
    name, source = fresh("numbers"), topic("numbers", partitions=1)
    sent = []
    for key, values in STREAMS.items():
        for i, value in enumerate(values):
            written = (
                value if math.isfinite(value) else {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(value)]
            )
            sent.append(Sent.row({"k": key, "at": timestamp(START + i), "v": written}))
    produce(engine.bootstrap, source, sent)
    window = hr.last("1h")
    pipeline = hr.Pipeline(name)
    (
        pipeline.read(source, schema="k STRING, at TIMESTAMP, v DOUBLE")
        .event_time("at")
        .key_by("k")
        .rolling("all", sum=window.sum("v"), avg=window.avg("v"), dev=window.stddev("v"), least=window.min("v"))
        .write(f"{name}-out")
    )
    engine.replay(pipeline, tmp_path_factory.mktemp("numbers"))
    found: dict[str, list[dict[str, Any]]] = {key: [] for key in STREAMS}
    for record in engine.read(f"{name}-out"):
        row = record.row
        found[row["k"]].append({field: float(row[field]) for field in ("sum", "avg", "dev", "least") if field in row})
    return found


FINITE = [key for key, values in STREAMS.items() if all(map(math.isfinite, values))]


@pytest.mark.parametrize("key", FINITE)
def test_sums_and_means_are_exact(results: dict[str, list[dict[str, Any]]], key: str) -> None:
    for n, row in enumerate(results[key], start=1):
        total = math.fsum(STREAMS[key][:n])
        assert (row["sum"], row["avg"], row["least"]) == (total, total / n, min(STREAMS[key][:n]))


@pytest.mark.parametrize("key", [key for key in FINITE if key not in ("subnormal", "cancelling")])
def test_no_cancellation_hides_in_a_standard_deviation(results: dict[str, list[dict[str, Any]]], key: str) -> None:
    assert "dev" not in results[key][0], "one value has none"
    for n, row in enumerate(results[key][1:], start=2):
        expected = model.deviation(STREAMS[key][:n])
        assert expected is not None
        assert abs(row["dev"] - expected) <= 1e-12 * expected, n


def test_what_is_no_finite_number_makes_what_follows_none(results: dict[str, list[dict[str, Any]]]) -> None:
    assert [str(row["sum"]) for row in results["infinite"]] == ["1.0", "inf", "inf"]
    assert [str(row["avg"]) for row in results["infinite"]] == ["1.0", "inf", "inf"]
    assert [str(row["sum"]) for row in results["no number"]] == ["1.0", "nan", "nan"]
    assert [str(row["sum"]) for row in results["opposite infinities"]] == ["inf", "nan"]
    for key in ("infinite", "no number", "opposite infinities"):
        assert [str(row["dev"]) for row in results[key][1:]] == ["nan"] * (len(STREAMS[key]) - 1)
