"""What a run of the demo came to: one JSON object for machines, a few lines for people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.demo.accounting import Figures, Outcome
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from examples.fraud.truth import Score


@dataclass(frozen=True)
class Summary:
    """The end of a run. `injected` counts the kinds of records that were sent (see the generator)."""

    figures: Figures
    score: Score
    injected: dict[str, int]
    undelivered: int
    """Transactions that the log did not take."""
    warmup_seconds: float
    failure: HeadraceError | None = None
    """What broke the run off."""

    @property
    def transactions(self) -> int:
        """All that happened, also those that the log did not take."""
        return self.figures.produced + self.undelivered

    @property
    def lost(self) -> int:
        """Transactions that the log did not take or that never came out, and flagged ones that gave no alert."""
        return self.undelivered + self.figures.lost + self.figures.missing_alerts

    @property
    def succeeded(self) -> bool:
        """Whether nothing was lost, and nothing broke it off."""
        return self.lost == 0 and self.failure is None

    def to_json(self) -> str:
        """The last line of the demo."""
        outcomes = self.figures.outcomes
        return json.dumps(
            {
                "transactions": self.transactions,
                "alerts": self.figures.alerts,
                "p50_ms": self.figures.p50_ms,
                "p95_ms": self.figures.p95_ms,
                "p99_ms": self.figures.p99_ms,
                "precision": _rounded(self.score.precision),
                "recall": _rounded(self.score.recall),
                "late": outcomes[Outcome.LATE],
                "dead_letters": outcomes[Outcome.DEAD_LETTER],
                "lost": self.lost,
                "duplicated": self.figures.duplicated,
                "duplicates": outcomes[Outcome.DUPLICATE],
                "quarantined": outcomes[Outcome.QUARANTINED],
            }
        )

    def render(self) -> RenderableType:
        """The same for people."""
        figures, score = self.figures, self.score
        verdict = (
            Text("Every transaction is accounted for.", style="bold green")
            if self.lost == 0
            else Text(f"{self.lost:,} of {self.transactions:,} transactions are lost.", style="bold red")
        )
        facts = Table.grid(padding=(0, 2))
        facts.add_row("transactions", f"{self.transactions:,}{self._undelivered()}")
        facts.add_row("written twice", f"{figures.duplicated:,}")
        facts.add_row(
            "latency of decisions",
            f"p50 {_ms(figures.p50_ms)}, p95 {_ms(figures.p95_ms)}, p99 {_ms(figures.p99_ms)}, producer to consumer, "
            f"{figures.measured:,} decisions after {self.warmup_seconds:.0f} s of warm-up",
        )
        facts.add_row(
            "flags",
            f"{score.flagged:,}, of which {len(score.false_flags):,} on honest transactions; "
            f"precision {_share(score.precision)}, recall {_share(score.recall)}",
        )
        return Group(Text(), verdict, self._outcomes(), Text(), self._frauds(), Text(), facts, Text())

    def _undelivered(self) -> str:
        return f", of which the log did not take {self.undelivered:,}" if self.undelivered else ""

    def _outcomes(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column()
        table.add_column(justify="right")
        for outcome, name, cause, sent in (
            (Outcome.DECIDED, "decided", "", ""),
            (Outcome.LATE, "late", "straggler", "stragglers sent; before the first watermark nothing is late"),
            (Outcome.DUPLICATE, "duplicate", "duplicate", "sent again"),
            (Outcome.QUARANTINED, "quarantined", "future", "sent with a clock far ahead"),
            (Outcome.DEAD_LETTER, "dead letters", "malformed", "sent malformed"),
        ):
            origin = f"{self.injected.get(cause, 0):,} {sent}" if cause else ""
            table.add_row(name, f"{self.figures.outcomes[outcome]:,}", Text(origin, "dim"))
        return table

    def _frauds(self) -> Table:
        table = Table(box=None, padding=(0, 2), pad_edge=False)
        table.add_column("fraud")
        table.add_column("injected", justify="right")
        table.add_column("flagged", justify="right")
        for kind, injected in self.score.injected.items():
            table.add_row(kind.replace("_", " "), f"{injected:,}", f"{self.score.caught[kind]:,}")
        return table


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1%}"
