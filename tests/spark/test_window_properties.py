"""Windows of every kind, in all pane modes, with any triggers: what stands in the end is what brute force says.

One run of a Driver has many small streams, each a key of its own, and the three pane modes side by side.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
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
# Windows of minutes over an hour; days around the night in which Berlin's clocks go on, and the night they go back.
AN_HOUR = (1_700_000_000_000, 1_700_000_000_000 + HOUR)
SPRING = (1_711_670_400_000, 1_711_670_400_000 + 96 * HOUR)
AUTUMN = (1_729_972_800_000, 1_729_972_800_000 + 10 * HOUR)
LATENESS = (0, 5 * MINUTE, 30 * MINUTE, 24 * HOUR)


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


def some_trigger(random: Random, kind: Kind) -> hr.Trigger:
    """A trigger that never finishes, so that what is late depends on the watermark alone."""
    n = random.randint(1, 4)
    if not kind.ends:
        # Nothing but its trigger gets results out of a global window: each of these does when the clock goes on.
        both = hr.any_of(hr.after_count(n), hr.after_processing_time("7s"))
        return random.choice([hr.each(), hr.every("5s"), hr.repeat(both)])
    early = random.choice(
        [
            hr.each(),
            hr.after_count(n),
            hr.every("5s"),
            hr.any_of(hr.after_count(n), hr.after_processing_time("7s")),
            hr.all_of(hr.after_count(n), hr.after_processing_time("7s")),
            hr.after_each(hr.after_count(n), hr.every("5s")),
            hr.when(f"n >= {n}"),
        ]
    )
    late = random.choice([hr.each(), hr.after_count(n), hr.every("5s")])
    return random.choice([hr.after_watermark(early, late), hr.after_watermark(None, late), hr.repeat(early)])


def finishing_trigger(random: Random) -> hr.Trigger:
    """A trigger after whose last result the events of a window are late."""
    n = random.randint(1, 4)
    both = hr.after_each(hr.after_count(n), hr.after_processing_time("3s"))
    return random.choice([hr.after_count(n), hr.after_watermark(early=hr.after_count(n)), both])


def some_steps(random: Random, stretch: tuple[int, int]) -> list[tuple[str, Any]]:
    """Batches of events at any times, some of them twice, between steps of the watermark and of the clock."""
    start, end = stretch
    grain = (end - start) // 240

    def batch() -> list[tuple[str, int]]:
        events = [(random.choice(KEYS), start + grain * random.randrange(240)) for _ in range(random.randint(10, 60))]
        return events + random.sample(events, random.randint(0, 3))

    steps: list[tuple[str, Any]] = []
    for watermark in sorted(start + grain * random.randrange(240) for _ in range(3)):
        between = [("clock", "4s"), ("clock", "30s"), ("send", batch())]
        steps += [("send", batch()), random.choice(between), ("watermark", watermark)]
    return [*steps, ("send", batch())]


# The seed stands for a whole run: drawn bit by bit, the first and simplest of few examples would say little.
EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "1"))  # each takes a quarter of a minute; `make fuzz` has many
runs = settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
seeds = st.integers(0, 2**32)


@pytest.mark.parametrize(
    "kind",
    # Half a minute each; the windows of local days have tests of their own, and global ones have the simplest rules.
    [
        pytest.param(k, marks=[pytest.mark.soak] if "local" in name or name == "global" else [], id=name)
        for name, k in KINDS.items()
    ],
)
@runs
@given(seed=seeds)
def test_what_stands_in_the_end(kind: Kind, spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    lateness = random.choice(LATENESS)
    outcome = run(kind, some_trigger(random, kind), lateness, some_steps(random, kind.stretch), spark)
    truth = kind.truth(outcome.arrivals, lateness)
    expected = {identity: Counter(ids) for identity, ids in truth.windows.items()}
    for mode in MODES:
        assert outcome.late[mode] == sorted(truth.late), mode
        stands = outcome.standing(mode, expected)
        assert stands == expected, mode
        if kind.windowing.kind != "hopping":
            accounted = Counter(outcome.late[mode]) + sum(stands.values(), Counter())
            assert accounted == Counter(e.id for e in outcome.arrivals), mode


@pytest.mark.parametrize("name", ["tumbling", pytest.param("local day, spring", marks=pytest.mark.soak)])
@runs
@given(seed=seeds)
def test_triggers_that_finish_leave_the_rest_to_the_late_rows(name: str, spark: SparkSession, seed: int) -> None:
    random, kind = Random(seed), KINDS[name]
    lateness = random.choice(LATENESS)
    outcome = run(kind, finishing_trigger(random), lateness, some_steps(random, kind.stretch), spark)
    truth = kind.truth(outcome.arrivals, lateness)
    late = outcome.late[MODES[0]]
    taken = {identity: Counter(set(ids) - set(late)) for identity, ids in truth.windows.items()}
    expected = {identity: ids for identity, ids in taken.items() if ids}
    assert set(truth.late) <= set(late)
    assert len(late) == len(set(late))
    for mode in MODES:
        assert outcome.late[mode] == late, mode
        assert outcome.standing(mode, expected) == expected, mode


@dataclass(frozen=True)
class Outcome:
    """What came in, and what came out of it by pane mode."""

    arrivals: list[Arrival]
    rows: dict[str, list[dict[str, Any]]]
    late: dict[str, list[int]]

    def standing(
        self, mode: str, expected: dict[tuple[str, Span], Counter[int]]
    ) -> dict[tuple[str, Span], Counter[int]]:
        return summed(self.rows[mode], expected) if mode == "discarding" else replayed(self.rows[mode])


def run(kind: Kind, trigger: hr.Trigger, lateness: int, steps: list[tuple[str, Any]], spark: SparkSession) -> Outcome:
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
        rows = {mode: driver.read(mode) for mode in MODES}
        late = {mode: sorted(row["id"] for row in driver.read(f"late-{mode}")) for mode in MODES}
    return Outcome(arrivals, rows, late)


def pipeline(windowing: hr.Windowing, trigger: hr.Trigger, lateness: int) -> hr.Pipeline:
    made = hr.Pipeline("properties")
    events = made.read("events", schema="k STRING, id BIGINT, at BIGINT")
    timed = events.event_time("at", watermark=hr.perfect()).key_by("k")
    for mode in MODES:
        results = timed.window(
            f"as-{mode}",
            windowing,
            trigger=trigger,
            panes=mode,
            allowed_lateness=f"{lateness}ms",
            ids="collect_list(id)",
            n="count(*)",
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
