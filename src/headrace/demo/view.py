"""What the demo shows while it runs: a live screen in a terminal, one line every few seconds elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.demo.accounting import Alert, Figures, Outcome, Second

_PLAIN_SECONDS = 5.0
_RATE_SECONDS = 5
_WAITED_MS = 1000.0
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_REASON_STYLES = {"card_testing": "yellow", "spending_spree": "magenta", "impossible_travel": "cyan"}


@dataclass(frozen=True)
class Frame:
    """All that is drawn, at one moment."""

    phase: str
    elapsed_seconds: float
    seconds: float | None  # how long the run is to last
    bootstrap: str
    figures: Figures
    history: Sequence[Second]
    alerts: Sequence[Alert]
    progress: dict[str, Any] = field(default_factory=dict)  # the job's last progress record
    dashboard: str = ""  # its address, if it runs

    @property
    def rate(self) -> float:
        """Transactions per second of late."""
        recent = [second.produced for second in self.history[-_RATE_SECONDS:]]
        while recent and recent[0] == 0:  # before the first
            del recent[0]
        return sum(recent) / max(1, len(recent))


class View(Protocol):
    """Shows frames, from entering it to leaving it."""

    def show(self, frame: Frame) -> None:
        """Draws a frame, or leaves it out."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ScreenView:
    """The whole terminal, until it is left; then what was there before is back."""

    def __init__(self, console: Console) -> None:
        self._ascii = console.options.ascii_only
        self._live = Live(console=console, screen=True, auto_refresh=False)

    def show(self, frame: Frame) -> None:
        """Draws a frame."""
        self._live.update(render(frame, ascii_only=self._ascii), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class LineView:
    """One line every few seconds, for a pipe or a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def show(self, frame: Frame) -> None:
        """Prints a line if it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_SECONDS
            self._console.print(line(frame), soft_wrap=True, highlight=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


def view_for(console: Console) -> View:
    """The view that suits where the output goes."""
    return ScreenView(console) if console.is_terminal and not console.quiet else LineView(console)


def line(frame: Frame) -> str:
    """A frame as one line of text."""
    figures, outcomes = frame.figures, frame.figures.outcomes
    return (
        f"{frame.phase} {_clock(frame)}: {frame.rate:.0f}/s, {figures.produced:,} transactions, "
        f"{figures.alerts:,} alerts, p50 {_ms(figures.p50_ms)}, p99 {_ms(figures.p99_ms)}, "
        f"{outcomes[Outcome.LATE]:,} late, "
        f"{outcomes[Outcome.DUPLICATE]:,} duplicates, {outcomes[Outcome.QUARANTINED]:,} quarantined, "
        f"{outcomes[Outcome.DEAD_LETTER]:,} dead letters, {figures.lost:,} in flight"
    )


def render(frame: Frame, *, ascii_only: bool = False) -> RenderableType:
    """A frame as a screen; it takes all the room there is."""
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    screen = Layout()
    screen.split_column(
        Layout(_header(frame, ascii_only), size=4),
        Layout(name="figures", size=7),
        Layout(_alerts(frame.alerts), name="alerts"),
    )
    screen["figures"].split_row(
        Layout(_traffic(frame, blocks)), Layout(_latency(frame, blocks)), Layout(_outcomes(frame.figures))
    )
    return screen


def sparkline(values: Sequence[float], blocks: str = _BLOCKS) -> str:
    """Values as a row of blocks, from zero to the largest of them.

    >>> sparkline([0, 1, 2, 4, 8])
    '▁▂▃▅█'
    """
    top = max(values, default=0) or 1
    return "".join(blocks[min(int(value / top * len(blocks)), len(blocks) - 1)] for value in values)


def _header(frame: Frame, ascii_only: bool) -> Panel:
    dot, dash = ("* ", "-") if ascii_only else ("● ", "·")
    state = Text.assemble(
        (dot, "green"),
        f"Kafka {frame.bootstrap}   ",
        (dot, "green"),
        "Spark real-time mode   ",
        (frame.phase, "bold"),
    )
    state.append(f" {_clock(frame)}")
    if frame.dashboard:
        state.append("   ").append(frame.dashboard, "blue underline")
    return Panel(
        Group(state, _job_line(frame.progress)),
        title=f"[bold]Headrace[/] {dash} card fraud in milliseconds",
        title_align="left",
        subtitle="Ctrl-C stops",
        subtitle_align="right",
        border_style="blue",
    )


def _job_line(progress: dict[str, Any]) -> Text:
    if not progress:
        return Text("The job reports at the end of each batch; the figures below come from the topics.", "dim")
    parts = [f"batch {progress['batch']}"]
    if progress.get("state_rows") is not None:
        parts.append(f"state {progress['state_rows']:,} rows")
    if progress.get("state_bytes"):
        parts.append(f"{progress['state_bytes'] / 1_000_000:.1f} MB")
    if progress.get("watermark"):
        parts.append(f"watermark {progress['watermark'][11:19]} UTC")
    if progress.get("commit_ms") is not None:
        parts.append(f"commit {progress['commit_ms']:,} ms")
    return Text(", ".join(parts), "dim", no_wrap=True)


def _traffic(frame: Frame, blocks: str) -> Panel:
    figures = frame.figures
    grid = _pairs()
    grid.add_row(Text("per second"), Text(f"{frame.rate:,.0f}", "bold"))
    grid.add_row("produced", f"{figures.produced:,}")
    grid.add_row("in flight", f"{figures.lost:,}")
    grid.add_row("alerts", Text(f"{figures.alerts:,}", "bold red"))
    return _figures_panel("transactions", grid, [float(s.produced) for s in frame.history], blocks, "green")


def _latency(frame: Frame, blocks: str) -> Panel:
    figures = frame.figures
    grid = _pairs()
    for name, value in (("p50", figures.p50_ms), ("p95", figures.p95_ms), ("p99", figures.p99_ms)):
        grid.add_row(name, Text("warming up" if value is None else _ms(value), "bold" if value is not None else "dim"))
    grid.add_row("measured", f"{figures.measured:,}")
    return _figures_panel("latency, end to end", grid, [s.latency_ms or 0.0 for s in frame.history], blocks, "yellow")


def _figures_panel(title: str, grid: Table, values: Sequence[float], blocks: str, style: str) -> Panel:
    body = Table.grid(expand=True)
    body.add_row(grid)
    # From the right: what does not fit is the oldest.
    body.add_row(_Sparkline(values, blocks, style))
    return Panel(body, title=title, title_align="left")


def _outcomes(figures: Figures) -> Panel:
    grid = _pairs()
    for outcome, label in (
        (Outcome.DECIDED, "decided"),
        (Outcome.LATE, "late"),
        (Outcome.DUPLICATE, "duplicates"),
        (Outcome.QUARANTINED, "quarantined"),
        (Outcome.DEAD_LETTER, "dead letters"),
    ):
        grid.add_row(label, f"{figures.outcomes[outcome]:,}")
    return Panel(grid, title="what became of them", title_align="left")


def _alerts(alerts: Sequence[Alert]) -> Panel:
    table = Table(box=None, expand=True, pad_edge=False)
    table.add_column("time", no_wrap=True)
    table.add_column("card", no_wrap=True)
    table.add_column("amount", justify="right", no_wrap=True)
    table.add_column("reasons", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("latency", justify="right", no_wrap=True)
    for alert in alerts:
        table.add_row(
            datetime.fromtimestamp(alert.received_ms / 1000).strftime("%H:%M:%S"),
            alert.card_id,
            "-" if alert.amount is None else f"{alert.amount:,.2f}",
            Text(", ").join(Text(r.replace("_", " "), _REASON_STYLES.get(r, "red")) for r in alert.reasons),
            _taken(alert.latency_ms),
        )
    return Panel(table, title="fraud alerts, the newest first", title_align="left", border_style="red")


def _taken(latency_ms: float) -> Text:
    """How long an alert took. Seconds mean that its transaction had to wait: most often for the job to start."""
    if latency_ms <= _WAITED_MS:
        return Text(_ms(latency_ms))
    seconds = latency_ms / 1000
    return Text(f"waited {seconds:.1f} s" if seconds < 10 else f"waited {seconds:.0f} s", "dim")


def _pairs() -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    return grid


class _Sparkline:
    """A sparkline as wide as its cell."""

    def __init__(self, values: Sequence[float], blocks: str, style: str) -> None:
        self._values, self._blocks, self._style = values, blocks, style

    def __rich_console__(self, console: Console, options: Any) -> Any:
        yield Text(sparkline(self._values[-options.max_width :], self._blocks), self._style, no_wrap=True)

    def __rich_measure__(self, console: Console, options: Any) -> Any:
        from rich.measure import Measurement

        return Measurement(1, options.max_width)


def _clock(frame: Frame) -> str:
    return f"{frame.elapsed_seconds:.0f} s" + (f" of {frame.seconds:g} s" if frame.seconds else "")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def screenshot(frame: Frame, *, width: int = 100, height: int = 28) -> str:
    """A frame as an SVG picture, for the documentation."""
    console = Console(record=True, width=width, height=height, force_terminal=True, file=io.StringIO())
    console.print(render(frame), height=height)
    return console.export_svg(title="headrace demo")
