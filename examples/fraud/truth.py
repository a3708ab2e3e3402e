"""What was injected against what was flagged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class EpisodeKind(StrEnum):
    """The kinds of fraud that the generator injects; each is named as the rule that should find it."""

    CARD_TESTING = "card_testing"
    SPENDING_SPREE = "spending_spree"
    IMPOSSIBLE_TRAVEL = "impossible_travel"


class Episode(NamedTuple):
    """One fraud: some transactions on one card."""

    id: int
    kind: EpisodeKind
    card_id: str
    transactions: int


@dataclass(frozen=True)
class Score:
    """How well the flags match the truth. A ratio of nothing to nothing is None: it was not measured."""

    precision: float | None
    recall: float | None
    injected: dict[str, int]
    caught: dict[str, int]
    flagged: int
    false_flags: frozenset[str]


class Truth:
    """Collects what was produced and what was flagged, in any order.

    Precision is by transaction: of those flagged, how many belong to an episode. Recall is by episode: of those that
    were produced to their end, how many have at least one flagged transaction.

    >>> truth = Truth()
    >>> truth.produced("t1", Episode(1, EpisodeKind.IMPOSSIBLE_TRAVEL, "card-1", 2))
    >>> truth.produced("t2", Episode(1, EpisodeKind.IMPOSSIBLE_TRAVEL, "card-1", 2))
    >>> truth.flagged("t2")
    >>> truth.flagged("t7")
    >>> score = truth.score()
    >>> score.precision, score.recall
    (0.5, 1.0)
    """

    def __init__(self) -> None:
        self._episodes: dict[int, Episode] = {}
        self._transactions: dict[str, int] = {}
        self._flagged: set[str] = set()

    def produced(self, txn_id: str, episode: Episode) -> None:
        """A transaction of an episode reached the log; its duplicates change nothing."""
        self._episodes[episode.id] = episode
        self._transactions[txn_id] = episode.id

    def flagged(self, txn_id: str) -> None:
        """A transaction was flagged."""
        self._flagged.add(txn_id)

    def score(self) -> Score:
        """The comparison so far."""
        sent = Counter(self._transactions.values())
        completed = [episode for episode in self._episodes.values() if sent[episode.id] == episode.transactions]
        hit = {self._transactions[txn_id] for txn_id in self._flagged if txn_id in self._transactions}
        caught = [episode for episode in completed if episode.id in hit]
        false_flags = frozenset(txn_id for txn_id in self._flagged if txn_id not in self._transactions)
        flagged = len(self._flagged)
        return Score(
            precision=1 - len(false_flags) / flagged if flagged else None,
            recall=len(caught) / len(completed) if completed else None,
            injected=_by_kind(completed),
            caught=_by_kind(caught),
            flagged=flagged,
            false_flags=false_flags,
        )


def _by_kind(episodes: Iterable[Episode]) -> dict[str, int]:
    counts = Counter(episode.kind for episode in episodes)
    return {kind.value: counts[kind] for kind in EpisodeKind}
