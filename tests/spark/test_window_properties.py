"""Windows of every kind, in all pane modes, with any triggers: what stands in the end is what brute force says.

One run of a Driver has many small streams, each a key of its own, and the three pane modes side by side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from tests.spark.window_oracle import Arrival, Span, Truth, aligned, assigned, everything, local_days, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("accumulating", "discarding", "retracting")
KEYS = [f"key-{n}" for n in range(8)]
MINUTE = 60_000
HOUR = 60 * MINUTE
# Windows of ten minutes over an hour; days around the nights in which Berlin's clocks go on, and back.
AN_HOUR = (1_700_000_000_000, 1_700_000_000_000 + HOUR)
SPRING = (1_711_670_400_000, 1_711_670_400_000 + 96 * HOUR)
AUTUMN = (1_729_814_400_000, 1_729_814_400_000 + 96 * HOUR)


@dataclass(frozen=True)
class Kind:
    """A kind of windows: as declared, by brute force (of arrivals and lateness), and a stretch of time to try it on."""

    windowing: hr.Windowing
    truth: Callable[[Sequence[Arrival], int], Truth]
    stretch: tuple[int, int]
    ends: bool = True


KINDS = {
    "tumbling": Kind(
        hr.tumbling("10m", offset="-3m"),
        lambda a, late: assigned(a, aligned(10 * MINUTE, 10 * MINUTE, -3 * MINUTE), late),
        AN_HOUR,
    ),
    "hopping": Kind(
        hr.hopping("10m", every="4m"), lambda a, late: assigned(a, aligned(10 * MINUTE, 4 * MINUTE), late), AN_HOUR
    ),
    "session": Kind(hr.session("3m"), lambda a, late: sessions(a, 3 * MINUTE, late), AN_HOUR),
    "global": Kind(hr.global_window(), lambda a, late: assigned(a, everything, late), AN_HOUR, ends=False),
    "local day, spring": Kind(
        hr.tumbling("1d", time_zone="Europe/Berlin"),
        lambda a, late: assigned(a, local_days("Europe/Berlin", timedelta()), late),
        SPRING,
    ),
    "local days, autumn": Kind(
        hr.hopping("2d", every="1d", offset="2h30m", time_zone="Europe/Berlin"),
        lambda a, late: assigned(a, local_days("Europe/Berlin", timedelta(hours=2, minutes=30), days=2), late),
        AUTUMN,
    ),
}


def triggers(ends: bool) -> st.SearchStrategy[hr.Trigger]:
    """Triggers that never finish, so that what is late depends on the watermark alone."""
    some = st.one_of(
        st.just(hr.each()),
        st.builds(hr.after_count, st.integers(2, 4)),
        st.sampled_from([hr.every("5s"), hr.after_processing_time("20s")]),
        st.builds(lambda n: hr.any_of(hr.after_count(n), hr.after_processing_time("7s")), st.integers(2, 5)),
        st.builds(lambda n: hr.all_of(hr.after_count(n), hr.after_processing_time("7s")), st.integers(1, 3)),
        st.builds(lambda n: hr.after_each(hr.after_count(n), hr.every("5s")), st.integers(1, 3)),
        st.just(hr.when("n >= 3")),
    )
    if not ends:
        # Nothing but its trigger gets results out of a global window: each of these does when the clock goes on.
        return st.sampled_from(
            [hr.each(), hr.every("5s"), hr.repeat(hr.any_of(hr.after_count(3), hr.after_processing_time("7s")))]
        )
    late = st.one_of(st.just(hr.each()), st.builds(hr.after_count, st.integers(2, 3)))
    return st.one_of(
        st.builds(hr.after_watermark, early=st.none() | some, late=late),
        st.builds(hr.repeat, some),
    )


@st.composite
def actions(draw: st.DrawFn, stretch: tuple[int, int]) -> list[tuple[str, Any]]:
    """Batches of events at any times, some of them twice, between steps of the watermark and of the clock."""
    start, end = stretch
    moments = st.integers(0, 240).map(lambda n: start + (end - start) * n // 240)
    batch = st.lists(st.tuples(st.sampled_from(KEYS), moments), min_size=12, max_size=30)
    watermarks = sorted(draw(st.lists(moments, min_size=3, max_size=3)))
    steps: list[tuple[str, Any]] = []
    for watermark in watermarks:
        events = draw(batch)
        steps.append(("send", events + events[: draw(st.integers(0, 3))]))
        steps.append(draw(st.sampled_from([("clock", "4s"), ("clock", "30s"), ("send", draw(batch))])))
        steps.append(("watermark", watermark))
    return [*steps, ("send", draw(batch))]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_what_stands_in_the_end(kind: Kind, spark: SparkSession, data: st.DataObject) -> None:
    trigger = data.draw(triggers(kind.ends), "trigger")
    lateness = data.draw(st.sampled_from([0, 5 * MINUTE, 30 * MINUTE, 24 * HOUR]), "allowed lateness")
    steps = data.draw(actions(kind.stretch), "steps")
    arrivals: list[Arrival] = []
    watermark: int | None = None
    with Driver(pipeline(kind.windowing, trigger, lateness), spark=spark) as driver:
        for step, value in steps:
            if step == "send":
                new = [Arrival(len(arrivals) + n, key, at, watermark) for n, (key, at) in enumerate(value)]
                arrivals += new
                driver.send("events", *({"k": e.key, "id": e.id, "at": e.at} for e in new))
            elif step == "clock":
                driver.advance_clock(value)
            else:
                watermark = value
                driver.advance_watermark(value)
        driver.advance_clock("1h")
        driver.advance_watermark(kind.stretch[1] + 30 * 24 * HOUR)
        truth = kind.truth(arrivals, lateness)
        expected = {identity: Counter(ids) for identity, ids in truth.windows.items()}
        for mode in MODES:
            rows = driver.read(mode)
            late = sorted(row["id"] for row in driver.read(f"late-{mode}"))
            assert late == sorted(truth.late), mode
            stands = summed(rows, expected) if mode == "discarding" else replayed(rows)
            assert stands == expected, mode
            if kind.windowing.kind != "hopping":
                accounted = Counter(late) + sum(stands.values(), Counter())
                assert accounted == Counter(e.id for e in arrivals), mode


def pipeline(windowing: hr.Windowing, trigger: hr.Trigger, lateness: int) -> hr.Pipeline:
    made = hr.Pipeline("properties")
    for mode in MODES:
        results = (
            made.read("events", schema="k STRING, id BIGINT, at BIGINT")
            .event_time("at", watermark=hr.perfect())
            .key_by("k")
            .window(
                f"as-{mode}",
                windowing,
                trigger=trigger,
                panes=mode,
                allowed_lateness=f"{lateness}ms",
                ids="collect_list(id)",
                n="count(*)",
            )
        )
        results.write(mode)
        results.late.write(f"late-{mode}")
    return made


def replayed(rows: list[dict[str, Any]]) -> dict[tuple[str, Span], Counter[int]]:
    """What stands after all changes; a change that does not fit what stood before is an error."""
    standing: dict[tuple[str, Span], dict[str, Any]] = {}
    taken_back: set[tuple[str, Span]] = set()
    for row in rows:
        identity = (row["k"], span(row))
        if row["row_kind"].startswith("-"):
            was = standing.pop(identity)
            assert Counter(was["ids"]) == Counter(row["ids"])
            if row["row_kind"] == "-U":
                taken_back.add(identity)
        else:
            assert (row["row_kind"] == "+U") == (identity in standing or identity in taken_back), row
            taken_back.discard(identity)
            standing[identity] = row
        assert row["n"] == len(row["ids"])
    assert not taken_back
    return {identity: Counter(row["ids"]) for identity, row in standing.items()}


def summed(
    rows: list[dict[str, Any]], windows: dict[tuple[str, Span], Counter[int]]
) -> dict[tuple[str, Span], Counter[int]]:
    """All panes of a window together. Those of a session count for the one that it has become a part of."""
    sums: dict[tuple[str, Span], Counter[int]] = defaultdict(Counter)
    for row in rows:
        assert row["row_kind"] == "+I"
        sums[_whole(row, windows)].update(row["ids"])
    return dict(sums)


def _whole(row: dict[str, Any], windows: dict[tuple[str, Span], Counter[int]]) -> tuple[str, Span]:
    key, part = row["k"], span(row)
    if part is None or (key, part) in windows:
        return key, part
    around = [w for k, w in windows if k == key and w is not None and w[0] <= part[0] and part[1] <= w[1]]
    return key, next((w for w in around if set(row["ids"]) <= set(windows[key, w])), part)


def span(row: dict[str, Any]) -> Span:
    if "window_start" not in row:
        return None
    return _millis(row["window_start"]), _millis(row["window_end"])


def _millis(moment: str) -> int:
    return (datetime.fromisoformat(moment) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
