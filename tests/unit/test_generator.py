"""The generator against an evaluation of the three rules by brute force: it must never accuse or miss by accident."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import pytest

from examples.fraud.cities import CITIES, distance_km
from examples.fraud.generator import DEFECTS, Emission, Kind, Traffic, Transactions
from examples.fraud.truth import Episode, EpisodeKind, Truth

START_MS = 1_760_000_000_000
OUT_OF_ORDER_MS = 30_000
MAX_SKEW_MS = 300_000
NO_FRAUD = {"card_testing": 0.0, "spending_sprees": 0.0, "impossible_travel": 0.0}


def emissions(traffic: Traffic, count: int) -> list[Emission]:
    return list(islice(Transactions(traffic, start_ms=START_MS), count))


class Use(NamedTuple):
    at: int
    txn_id: str
    card_id: str
    amount: float
    lat: float
    lon: float


def parse(value: bytes | None) -> Use | None:
    """The transaction, or None where the payload is none of the schema."""
    try:
        row = json.loads(value or b"")
        at = int(datetime.fromisoformat(row["occurred_at"]).timestamp() * 1000)
        use = Use(at, row["txn_id"], row["card_id"], row["amount"], row["lat"], row["lon"])
    except (ValueError, KeyError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        return None
    return use if isinstance(use.amount, float) else None


def speed_kmh(before: Use, use: Use) -> float:
    km = distance_km(before.lat, before.lon, use.lat, use.lon)
    hours = (use.at - before.at) / 3_600_000
    return km / hours if hours else (float("inf") if km else 0.0)


class Rules:
    """SPEC E1's rules over what has arrived, one event at a time, in the simplest way that is right."""

    def __init__(self, *, watermark_moves: bool) -> None:
        self.watermark_moves = watermark_moves
        self.outcomes: Counter[str] = Counter()
        self.flagged: dict[str, list[str]] = {}
        self._watermark = 0
        self._seen: set[str] = set()
        self._cards: dict[str, list[Use]] = defaultdict(list)

    def arrive(self, emission: Emission) -> None:
        self.outcomes[self._decide(emission)] += 1

    def _decide(self, emission: Emission) -> str:
        use = parse(emission.value)
        if use is None:
            return "dead_letter"
        if use.at > emission.at_ms + MAX_SKEW_MS:
            return "quarantined"
        if use.at < self._watermark:
            return "late"
        if use.txn_id in self._seen:
            return "duplicate"
        self._seen.add(use.txn_id)
        if self.watermark_moves:
            self._watermark = max(self._watermark, use.at - OUT_OF_ORDER_MS)
        reasons = self._reasons(use)
        if reasons:
            self.flagged[use.txn_id] = reasons
        return "decided"

    def _reasons(self, use: Use) -> list[str]:
        uses = self._cards[use.card_id]
        insort(uses, use)
        reasons = []
        if len(self._last(60_000, use)) > 5:
            reasons.append("card_testing")
        if sum(u.amount for u in self._last(600_000, use)) > 5000:
            reasons.append("spending_spree")
        before = bisect_left(uses, use) - 1
        if before >= 0 and speed_kmh(uses[before], use) > 500:
            reasons.append("impossible_travel")
        return reasons

    def _last(self, window_ms: int, use: Use) -> list[Use]:
        """The uses of the card with event time in (t - window, t]."""
        uses = self._cards[use.card_id]
        begin = bisect_right(uses, use.at - window_ms, key=lambda u: u.at)
        return uses[begin : bisect_right(uses, use.at, key=lambda u: u.at)]


def judge(stream: Iterable[Emission], *, watermark_moves: bool) -> tuple[Rules, Truth]:
    rules, truth = Rules(watermark_moves=watermark_moves), Truth()
    for emission in stream:
        rules.arrive(emission)
        if emission.episode is not None and emission.txn_id is not None:
            truth.produced(emission.txn_id, emission.episode)
    for txn_id in rules.flagged:
        truth.flagged(txn_id)
    return rules, truth


def test_the_same_seed_gives_the_same_stream_and_another_seed_another() -> None:
    assert emissions(Traffic(seed=3), 5000) == emissions(Traffic(seed=3), 5000)
    assert emissions(Traffic(seed=3), 5000) != emissions(Traffic(seed=4), 5000)


@pytest.mark.parametrize("rate", [20.0, 200.0, 1000.0])
def test_records_come_at_the_asked_rate_in_the_order_in_which_they_are_due(rate: float) -> None:
    count = int(rate * 120)
    stream = emissions(Traffic(rate=rate), count)
    due = [e.at_ms for e in stream]
    assert due == sorted(due)
    assert due[0] >= START_MS
    assert (due[-1] - START_MS) / 1000 == pytest.approx(120, rel=0.1)


def test_each_kind_has_its_share() -> None:
    traffic = Traffic(rate=500)
    stream = emissions(traffic, 100_000)
    share = {kind: count / len(stream) for kind, count in Counter(e.kind for e in stream).items()}
    assert share[Kind.OUT_OF_ORDER] == pytest.approx(traffic.out_of_order, rel=0.2)
    assert share[Kind.STRAGGLER] == pytest.approx(traffic.stragglers, rel=0.2)
    assert share[Kind.DUPLICATE] == pytest.approx(1.25 * traffic.duplicates, rel=0.2)
    assert share[Kind.FUTURE] == pytest.approx(traffic.future, rel=0.3)
    assert share[Kind.MALFORMED] == pytest.approx(traffic.malformed, rel=0.2)
    episodes = {e.episode for e in stream if e.episode is not None}
    kinds = Counter(episode.kind for episode in episodes)
    assert all(kinds[kind] == pytest.approx(200, rel=0.15) for kind in EpisodeKind)


def test_misbehaviour_is_what_its_kind_says() -> None:
    stream = emissions(Traffic(rate=100, out_of_order=0.05, stragglers=0.05, duplicates=0.05, future=0.05), 40_000)
    sent: Counter[str | None] = Counter()
    for emission in stream:
        if emission.kind is Kind.MALFORMED:
            continue
        row = parse(emission.value)
        assert row is not None
        assert row.txn_id == emission.txn_id
        behind = emission.at_ms - row.at
        if emission.kind is Kind.NORMAL:
            assert behind == 0
        elif emission.kind is Kind.OUT_OF_ORDER:
            assert 0 < behind <= 20_001
        elif emission.kind is Kind.STRAGGLER:
            assert behind > 60_000
        elif emission.kind is Kind.FUTURE:
            assert behind < -3_600_000
        if emission.kind is Kind.DUPLICATE:
            assert sent[emission.txn_id] >= 1
        else:
            assert sent[emission.txn_id] == 0
        sent[emission.txn_id] += 1
    assert max(sent.values()) > 2


def test_malformed_payloads_take_turns_and_none_is_a_transaction() -> None:
    malformed = [e for e in emissions(Traffic(malformed=0.05), 20_000) if e.kind is Kind.MALFORMED]
    assert len(malformed) > 500
    assert all(parse(e.value) is None and e.txn_id is None and e.key for e in malformed)
    values = [e.value for e in malformed[: 5 * len(DEFECTS)]]
    assert None in values
    assert b"" in values
    assert any(v and v.startswith(b"\xff\xfe") for v in values)
    assert any(v and b'"cardId"' in v for v in values)
    assert any(v and b"yesterday" in v for v in values)
    assert any(v and v.startswith(b'{"txn_id"') and not v.endswith(b"}") for v in values)


def test_a_card_keeps_its_key() -> None:
    for emission in emissions(Traffic(), 5000):
        row = parse(emission.value)
        if row is not None:
            assert emission.key == row.card_id.encode()


@pytest.mark.parametrize("watermark_moves", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_honest_cards_never_trip_a_rule_however_badly_the_stream_behaves(seed: int, watermark_moves: bool) -> None:
    # 60 s watermark steps and none at all are both possible in real-time mode: stragglers must be harmless either way.
    traffic = Traffic(
        seed=seed, rate=60, cards=500, out_of_order=0.1, stragglers=0.05, duplicates=0.05, journeys=0.01, **NO_FRAUD
    )
    rules, _ = judge(emissions(traffic, 60_000), watermark_moves=watermark_moves)
    assert rules.flagged == {}
    assert (rules.outcomes["late"] > 0) == watermark_moves


@pytest.mark.parametrize("watermark_moves", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_episode_is_flagged_and_nothing_else(seed: int, watermark_moves: bool) -> None:
    rules, truth = judge(emissions(Traffic(seed=seed), 60_000), watermark_moves=watermark_moves)
    score = truth.score()
    assert score.precision == 1.0
    assert score.recall == 1.0
    assert all(score.injected[kind] > 40 for kind in EpisodeKind)
    assert score.caught == score.injected
    assert rules.outcomes["dead_letter"] > 0
    assert rules.outcomes["quarantined"] > 0
    assert rules.outcomes["duplicate"] > 0


def test_each_kind_of_fraud_is_flagged_for_its_own_reason_alone() -> None:
    stream = emissions(Traffic(seed=5, out_of_order=0.0), 100_000)
    kinds = {e.txn_id: e.episode.kind for e in stream if e.episode is not None}
    rules, _ = judge(stream, watermark_moves=True)
    assert all(reasons == [kinds[txn_id]] for txn_id, reasons in rules.flagged.items())


def test_stragglers_are_late_and_out_of_order_events_are_not() -> None:
    stream = emissions(Traffic(stragglers=0.02, duplicates=0.0), 30_000)
    rules, _ = judge(stream, watermark_moves=True)
    assert rules.outcomes["late"] == sum(e.kind is Kind.STRAGGLER for e in stream)


def test_a_share_that_is_no_share_is_refused() -> None:
    with pytest.raises(ValueError, match="malformed is a share"):
        Traffic(malformed=2.0)
    with pytest.raises(ValueError, match="above zero"):
        Traffic(rate=0)


def test_cities_lie_where_they_lie() -> None:
    by_name = {city.name: city for city in CITIES}
    paris, tokyo = by_name["Paris"], by_name["Tokyo"]
    assert distance_km(paris.lat, paris.lon, tokyo.lat, tokyo.lon) == pytest.approx(9712, rel=0.01)


def test_an_episode_that_did_not_end_is_not_counted_and_no_episode_is_no_score() -> None:
    truth = Truth()
    assert truth.score().recall is None
    assert truth.score().precision is None
    episode = Episode(1, EpisodeKind.SPENDING_SPREE, "card-1", 3)
    truth.produced("a", episode)
    truth.produced("a", episode)
    truth.produced("b", episode)
    assert truth.score().recall is None
    truth.produced("c", episode)
    assert truth.score().recall == 0.0
    truth.flagged("c")
    truth.flagged("honest")
    score = truth.score()
    assert (score.precision, score.recall, score.caught["spending_spree"]) == (0.5, 1.0, 1)
    assert score.false_flags == {"honest"}
