"""The numbers of the dashboard in a terminal: what `headrace top` draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.metrics import GOLDEN, METRICS, Unit, shown

_STATES = {"ok": "green", "pending": "yellow", "firing": "bold red"}
_STATUS = {"running": "green", "starting": "yellow", "failed": "bold red", "lost": "bold red"}
_COLUMNS = ("lag_events", "lag_seconds", "events_in", "events_out", "p50", "p99", "commit_ms", "state_bytes")
_MORE = tuple(m for m in METRICS.values() if not m.golden and m.unit is not Unit.FLAG)


def screen(summary: dict[str, Any], detail: dict[str, Any] | None, bootstrap: str) -> RenderableType:
    """Everything: the pipelines, and the chosen one in full."""
    parts: list[RenderableType] = [_header(summary, bootstrap)]
    if not summary["pipelines"]:
        parts.append(Text("No pipeline has run here yet: headrace run MODULE:PIPELINE", "dim"))
    else:
        parts.append(pipelines(summary))
    if detail is not None:
        parts += [_detail(detail)]
    return Group(*parts)


def _header(summary: dict[str, Any], bootstrap: str) -> Text:
    firing, pending = summary["firing"], summary["pending"]
    words = Text.assemble(("Headrace ", "bold"), (f"{bootstrap}   ", "dim"))
    if summary["problem"]:
        words.append(summary["problem"], "bold red")
    elif firing or pending:
        words.append(f"{firing} firing  ", "bold red" if firing else "dim").append(f"{pending} pending", "yellow")
    else:
        words.append("no alarm", "green")
    return words


def pipelines(summary: dict[str, Any]) -> Table:
    """One line for each pipeline; what an alarm is about is marked."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("pipeline", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("status", no_wrap=True)
    for name in _COLUMNS:
        table.add_column(METRICS[name].title, justify="right", no_wrap=True)
    for line in summary["pipelines"]:
        alarms = {a["metric"]: a["state"] for a in reversed(line["alarms"])}
        cells = [Text(shown(line["values"][n], METRICS[n].unit), _style(alarms.get(n))) for n in _COLUMNS]
        status = Text(line["status"], _STATUS.get(line["status"], "dim"))
        table.add_row(line["name"], status, *cells)
    return table


def _style(state: str | None) -> str:
    return "" if state in (None, "ok") else _STATES[str(state)]


def _detail(detail: dict[str, Any]) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    numbers = Table.grid(padding=(0, 2))
    for metric in _MORE:
        numbers.add_row(Text(metric.title, "dim"), shown(detail["values"][metric.name], metric.unit))
    alarms = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("state", "alarm", "now"):
        alarms.add_column(name, no_wrap=True)
    for alarm in detail["alarms"]:
        alarms.add_row(Text(alarm["state"], _STATES[alarm["state"]]), alarm["alarm"], alarm["shown"])
    grid.add_row(
        Panel(numbers, title=detail["name"], title_align="left"), Panel(alarms, title="alarms", title_align="left")
    )
    grid.add_row(
        Panel(_topics(detail["topics"]), title="topics", title_align="left"),
        Panel(_runs(detail["runs"]), title="runs", title_align="left"),
    )
    return grid


def _topics(topics: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("topic", no_wrap=True, overflow="ellipsis", ratio=1)
    for name in ("per s", "lag", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for topic in topics:
        table.add_row(
            topic["topic"],
            shown(topic["per_second"], Unit.PER_SECOND),
            shown(topic["lag_events"], Unit.EVENTS) if topic["role"] == "source" else "",
            shown(topic["lag_seconds"], Unit.SECONDS) if topic["role"] == "source" else "",
        )
    return table


def _runs(runs: Sequence[dict[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for run in runs[:8]:
        style = _STATUS.get(run["event"], "")
        table.add_row(
            Text(run["at"][11:19], "dim"), Text(run["event"], style), run["mode"], Text(run["message"][:40], "dim")
        )
    return table


def line_of(pipeline: dict[str, Any]) -> str:
    """A pipeline as a line of text, for a pipe or a log."""
    parts = []
    for tile in GOLDEN:
        for metric in METRICS.values():
            if metric.golden == tile:
                parts.append(f"{metric.name} {shown(pipeline['values'][metric.name], metric.unit)}")
    firing = [a["alarm"] for a in pipeline["alarms"] if a["state"] == "firing"]
    alarms = f"; firing: {', '.join(firing)}" if firing else ""
    return f"{pipeline['name']} ({pipeline['status']}): {', '.join(parts)}{alarms}"
