"""Card transactions as they really come, from a generator that knows which of them are fraud.

Ordinary cards never break a rule: two uses are at least 20 s apart, amounts small enough, journeys slow enough.
Frauds are injected as episodes, after which the bank blocks the card and issues a new one. And the stream misbehaves:
out of order, stragglers, duplicates, clocks far ahead, payloads that are no transactions.

Time is virtual: each emission says when it is due, and the caller paces (the demo) or does not (a benchmark).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil, exp, log
from random import Random
from time import gmtime, strftime
from typing import NamedTuple

from examples.fraud.cities import CITIES, between
from examples.fraud.truth import Episode, EpisodeKind


class Kind(StrEnum):
    """How an emission behaves."""

    NORMAL = "normal"
    OUT_OF_ORDER = "out_of_order"
    STRAGGLER = "straggler"
    DUPLICATE = "duplicate"
    FUTURE = "future"
    MALFORMED = "malformed"


class Emission(NamedTuple):
    """One record for the log, due at `at_ms` (virtual time, in milliseconds since the epoch)."""

    at_ms: int
    key: bytes
    value: bytes | None
    kind: Kind
    txn_id: str | None
    episode: Episode | None


@dataclass(frozen=True)
class Traffic:
    """What the generator makes. Shares are per ordinary transaction.

    >>> Traffic(seed=7, rate=500).population
    20000
    """

    seed: int = 1
    rate: float = 200.0  # records per second, all kinds together
    cards: int = 2000  # at least; a higher rate brings more cards, since one card can be used only so often
    out_of_order: float = 0.01
    stragglers: float = 0.002
    duplicates: float = 0.005
    future: float = 0.001
    malformed: float = 0.002
    journeys: float = 0.0002  # an honest cardholder moves to another city
    card_testing: float = 0.002
    spending_sprees: float = 0.002
    impossible_travel: float = 0.002

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.cards <= 0:
            raise ValueError("rate and cards must be above zero")
        for field in fields(self):
            if field.name not in {"seed", "rate", "cards"} and not 0 <= getattr(self, field.name) <= 0.1:
                raise ValueError(f"{field.name} is a share of the transactions: between 0 and 0.1")

    @property
    def population(self) -> int:
        """How many cards are in use."""
        return max(self.cards, ceil(self.rate * MEAN_INTERVAL_S))

    @property
    def ordinary_rate(self) -> float:
        """Ordinary transactions per second, so that together with all else `rate` comes out."""
        episodes = 10 * self.card_testing + 3 * self.spending_sprees + 2 * self.impossible_travel
        return self.rate / (1 + self.stragglers + 1.25 * self.duplicates + self.future + self.malformed + episodes)


REST_S = 20.0  # between two uses of a card: at most 3 per minute, where the rule says 5
MEAN_INTERVAL_S = 40.0
LARGEST_AMOUNT = 160.0  # 30 uses in 10 minutes at most: 4,800, where the rule says 5,000
LARGEST_DELAY_S = 20.0  # out of order, but within the pipeline's tolerance of 30 s
JITTER_DEGREES = 0.0025  # shops around the corner: 0.8 km in 20 s at most, 140 km/h where the rule says 500
HOME_SPREAD_DEGREES = 0.05
JOURNEYS = between(150, 700)
JOURNEY_KMH = (120.0, 330.0)
FAR_AWAY = between(1500, 20_100)
MERCHANTS = (
    "Alder Grocery", "Blue Door Books", "Canal Cafe", "Dockside Diner", "Elm Pharmacy", "Fern & Sons Hardware",
    "Garden Bakery", "Harbour Fuel", "Ironworks Gym", "Juniper Records", "Kite Toys", "Lantern Noodles",
    "Metro Tickets", "North Parking", "Orchard Market", "Pine Cinema", "Quarry Shoes", "River Taxi",
)  # fmt: skip
TARGETS = ("Streamio Subscriptions", "Giftcard Depot", "Charity Now", "Top-Up Mobile")
LUXURIES = ("Meridian Watches", "Electra Store", "Atlas Jewellers", "Grand Travel")


class _Card:
    """A cardholder: the card of today, habits, and where the person is."""

    __slots__ = ("backdated_ms", "card_id", "city", "free_from", "home", "home_city", "key", "lat", "lon", "mu")

    def __init__(self, number: int, random: Random, before_ms: int) -> None:
        self.home_city = int(random.random() * len(CITIES))
        city = CITIES[self.home_city]
        self.home = (city.lat + _spread(random), city.lon + _spread(random))
        self.mu = log(8) + random.random() * log(5)
        self.issue(number, 0.0, before_ms)

    def issue(self, number: int, free_from: float, before_ms: int) -> None:
        """A new card, with no history, for a person at home."""
        self.card_id = f"card-{number:08d}"
        self.key = self.card_id.encode()
        self.city = self.home_city
        self.lat, self.lon = self.home
        self.free_from = free_from  # not used before that: at rest, under way, or blocked
        self.backdated_ms = before_ms  # uses that are reported long after the fact happened before that


class Transactions:
    """An endless, repeatable stream of emissions in the order in which they are due.

    >>> first = next(iter(Transactions(Traffic(seed=1), start_ms=1_700_000_000_000)))
    >>> first == next(iter(Transactions(Traffic(seed=1), start_ms=1_700_000_000_000)))
    True
    """

    def __init__(self, traffic: Traffic, *, start_ms: int) -> None:
        self.traffic = traffic
        self.start_ms = start_ms
        self._random = Random(traffic.seed)
        self._transactions = 0
        self._episodes = 0
        self._malformed = 0
        self._sequence = 0
        self._second = -1
        self._second_text = ""
        # What is already made and waits for its time: delayed, repeated, or a later part of an episode.
        self._waiting: list[tuple[float, int, Emission]] = []
        before_ms = start_ms - 60_000
        self._cards = [_Card(number, self._random, before_ms) for number in range(traffic.population)]
        self._issued = len(self._cards)
        mean = traffic.population / traffic.ordinary_rate
        self._spare = mean - REST_S
        # The first use of each card as if the stream had run for ever: no wave at the start.
        self._due = [(self._first_use(mean), index) for index in range(traffic.population)]
        heapify(self._due)
        self._starts = self._first_episodes()
        self._oddities = self._stack_oddities()
        self._odd = self._oddities[-1][0]

    def __iter__(self) -> Iterator[Emission]:
        due, waiting, cards = self._due, self._waiting, self._cards
        while True:
            at, index = due[0]
            if waiting and waiting[0][0] <= at:
                yield heappop(waiting)[2]
                continue
            card = cards[index]
            if at < card.free_from:  # blocked by an episode meanwhile
                heapreplace(due, (card.free_from + self._wait(), index))
                continue
            if self._starts and at >= self._starts[0][0]:
                self._start_episode(at)
                continue
            yield from self._use(at, card)
            heapreplace(due, (self._next_use(at, card), index))

    def _use(self, at: float, card: _Card) -> Iterator[Emission]:
        """An ordinary use; some of them come late, come twice, or come with something else that is odd."""
        random = self._random.random
        amount = min(exp(card.mu + 0.6 * self._random.gauss(0.0, 1.0)), LARGEST_AMOUNT)
        merchant = MERCHANTS[int(random() * len(MERCHANTS))]
        lat, lon = card.lat + _jitter(random), card.lon + _jitter(random)
        emission = self._emission(at, card, amount, merchant, lat, lon, None)
        luck = random()
        if luck < self.traffic.out_of_order:
            self._delay(at, emission)
            return
        yield emission
        if luck < self._odd:
            next(oddity for below, oddity in self._oddities if luck < below)(at, emission)

    def _next_use(self, at: float, card: _Card) -> float:
        random = self._random.random
        neighbours = JOURNEYS[card.city]
        if neighbours and random() < self.traffic.journeys:
            card.city, km = neighbours[int(random() * len(neighbours))]
            city = CITIES[card.city]
            card.lat, card.lon = city.lat + _spread(self._random), city.lon + _spread(self._random)
            slow, fast = JOURNEY_KMH
            card.free_from = at + km / (slow + random() * (fast - slow)) * 3600
            return card.free_from
        card.free_from = at + REST_S
        return card.free_from + self._wait()

    def _wait(self) -> float:
        return self._random.expovariate(1.0) * self._spare

    def _first_use(self, mean: float) -> float:
        if self._random.random() * mean < REST_S:
            return self._random.random() * REST_S
        return REST_S + self._wait()

    # Misbehaviour

    def _stack_oddities(self) -> list[tuple[float, Callable[[float, Emission], None]]]:
        """The shares laid end to end above that of the out-of-order ones, so that one draw decides among them all."""
        top = self.traffic.out_of_order
        stacked: list[tuple[float, Callable[[float, Emission], None]]] = []
        for share, oddity in (
            (self.traffic.duplicates, self._repeat),
            (self.traffic.stragglers, self._straggle),
            (self.traffic.future, self._come_from_the_future),
            (self.traffic.malformed, self._malform),
        ):
            top += share
            stacked.append((top, oddity))
        return stacked

    def _delay(self, at: float, emission: Emission) -> None:
        delay = 0.5 + self._random.random() * (LARGEST_DELAY_S - 0.5)
        self._queue(at + delay, emission._replace(kind=Kind.OUT_OF_ORDER))

    def _repeat(self, at: float, emission: Emission) -> None:
        copies = 1 if self._random.random() < 0.8 else 2 + int(self._random.random() * 2)
        for _ in range(copies):
            after = 0.1 + min(self._random.expovariate(0.2), 60.0)
            self._queue(at + after, emission._replace(kind=Kind.DUPLICATE))

    def _straggle(self, at: float, _: Emission) -> None:
        """A use from before the stream began, a minute or more from any other: honest, and far beyond the tolerance."""
        card = self._anyone()
        card.backdated_ms -= int(60_000 * exp(self._random.random() * log(60)))
        city_lat, city_lon = card.home
        random = self._random.random
        lat, lon = city_lat + _jitter(random), city_lon + _jitter(random)
        occurred_s = (card.backdated_ms - self.start_ms) / 1000
        emission = self._emission(occurred_s, card, 5 + random() * 40, MERCHANTS[0], lat, lon, None)
        self._queue(at + random(), emission._replace(kind=Kind.STRAGGLER))

    def _come_from_the_future(self, at: float, _: Emission) -> None:
        card = self._anyone()
        ahead = 6 * 3600 * exp(self._random.random() * log(120))
        emission = self._emission(
            at + ahead, card, 5 + self._random.random() * 40, MERCHANTS[1], card.lat, card.lon, None
        )
        self._queue(at + self._random.random(), emission._replace(kind=Kind.FUTURE))

    def _malform(self, at: float, emission: Emission) -> None:
        key, intact = self._anyone().key, emission.value or b""
        defect = DEFECTS[self._malformed % len(DEFECTS)]
        self._malformed += 1
        due = at + self._random.random()
        self._queue(due, Emission(0, key, defect(intact), Kind.MALFORMED, None, None))

    # Fraud

    def _first_episodes(self) -> list[tuple[float, EpisodeKind]]:
        """One at a time of each kind, evenly spread, so that a short run meets them all."""
        starts = [
            (0.5 * self._random.random() / (share * self.traffic.ordinary_rate), kind)
            for kind, share in self._shares().items()
            if share > 0
        ]
        heapify(starts)
        return starts

    def _shares(self) -> dict[EpisodeKind, float]:
        return {
            EpisodeKind.CARD_TESTING: self.traffic.card_testing,
            EpisodeKind.SPENDING_SPREE: self.traffic.spending_sprees,
            EpisodeKind.IMPOSSIBLE_TRAVEL: self.traffic.impossible_travel,
        }

    def _start_episode(self, at: float) -> None:
        began, kind = self._starts[0]
        gap = (0.5 + self._random.random()) / (self._shares()[kind] * self.traffic.ordinary_rate)
        heapreplace(self._starts, (began + gap, kind))
        card = self._anyone()
        while card.free_from > at:
            card = self._anyone()
        uses = {
            EpisodeKind.CARD_TESTING: self._card_testing,
            EpisodeKind.SPENDING_SPREE: self._spending_spree,
            EpisodeKind.IMPOSSIBLE_TRAVEL: self._impossible_travel,
        }[kind](at, card)
        self._episodes += 1
        episode = Episode(self._episodes, kind, card.card_id, len(uses))
        for when, amount, merchant, lat, lon in uses:
            emission = self._emission(when, card, amount, merchant, lat, lon, episode)
            luck = self._random.random()
            if luck < self.traffic.out_of_order:
                self._delay(when, emission)
                continue
            self._queue(when, emission)
            if luck < self.traffic.out_of_order + self.traffic.duplicates:
                self._repeat(when, emission)
        card.issue(self._issued, uses[-1][0] + REST_S, self._ms(at) - 60_000)
        self._issued += 1

    def _card_testing(self, at: float, card: _Card) -> list[_Use]:
        """8 to 12 small charges within half a minute, from one terminal."""
        count, span = 8 + int(self._random.random() * 5), 10 + self._random.random() * 20
        merchant = TARGETS[int(self._random.random() * len(TARGETS))]
        step = span / (count - 1)
        return [(at + step * i, 0.5 + self._random.random() * 1.5, merchant, card.lat, card.lon) for i in range(count)]

    def _spending_spree(self, at: float, card: _Card) -> list[_Use]:
        """Three large charges; any two pass the limit, and with honest uses of that minute there are five at most."""
        merchant = LUXURIES[int(self._random.random() * len(LUXURIES))]
        uses: list[_Use] = []
        for _ in range(3):
            uses.append((at, 2600 + self._random.random() * 1400, merchant, card.lat, card.lon))
            at += 3 + self._random.random() * 9
        return uses

    def _impossible_travel(self, at: float, card: _Card) -> list[_Use]:
        """A use where the cardholder is, and another a continent away seconds or minutes later."""
        merchant = MERCHANTS[int(self._random.random() * len(MERCHANTS))]
        far_away = FAR_AWAY[card.city]
        there = CITIES[far_away[int(self._random.random() * len(far_away))][0]]
        gap = 4 * exp(self._random.random() * log(30))
        return [
            (at, 5 + self._random.random() * 60, merchant, card.lat, card.lon),
            (at + gap, 50 + self._random.random() * 400, merchant, there.lat, there.lon),
        ]

    # Making records

    def _anyone(self) -> _Card:
        return self._cards[int(self._random.random() * len(self._cards))]

    def _queue(self, at: float, emission: Emission) -> None:
        self._sequence += 1
        heappush(self._waiting, (at, self._sequence, emission._replace(at_ms=self._ms(at))))

    def _ms(self, at: float) -> int:
        return self.start_ms + int(at * 1000)

    def _emission(
        self, at: float, card: _Card, amount: float, merchant: str, lat: float, lon: float, episode: Episode | None
    ) -> Emission:
        self._transactions += 1
        txn_id = f"txn-{self.traffic.seed}-{self._transactions:09d}"
        at_ms = self._ms(at)
        second, rest = divmod(at_ms, 1000)
        if second != self._second:
            self._second, self._second_text = second, strftime("%Y-%m-%dT%H:%M:%S", gmtime(second))
        # By hand, since this is the hot path and a JSON encoder takes half of the time; no text here needs escaping.
        value = (
            f'{{"txn_id":"{txn_id}","card_id":"{card.card_id}","amount":{amount:.2f},"merchant":"{merchant}",'
            f'"lat":{lat:.5f},"lon":{lon:.5f},"occurred_at":"{self._second_text}.{rest:03d}Z"}}'
        )
        return Emission(at_ms, card.key, value.encode(), Kind.NORMAL, txn_id, episode)


_Use = tuple[float, float, str, float, float]  # when, amount, merchant, lat, lon


def _jitter(random: Callable[[], float]) -> float:
    return (random() - 0.5) * 2 * JITTER_DEGREES


def _spread(random: Random) -> float:
    return (random.random() - 0.5) * 2 * HOME_SPREAD_DEGREES


def _wrong_types(intact: bytes) -> bytes:
    return intact.replace(b'"amount":', b'"amount":"a lot","tip":').replace(
        b'"occurred_at":"', b'"occurred_at":"yesterday '
    )


# Ways in which a payload is no transaction, in turn.
DEFECTS: tuple[Callable[[bytes], bytes | None], ...] = (
    lambda intact: intact[: len(intact) // 2],  # cut off
    _wrong_types,
    lambda intact: intact.replace(b'"card_id"', b'"cardId"'),  # a required field is missing
    lambda _: b"",
    lambda _: None,
    lambda intact: b"\xff\xfe\x00\x9f" + intact[:20][::-1],  # not text at all
)
