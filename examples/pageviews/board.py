"""What a live page shows: the top pages of the current minute, kept up to date with each result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Line(NamedTuple):
    """One line of the board."""

    url: str
    views: int


class Board:
    """Keeps the latest result of each page and minute. A result that comes again, or late, is no trouble.

    >>> board = Board()
    >>> minute = "2024-03-01T10:00:00.000Z"
    >>> board.take({"url": "/", "window_start": minute, "views": 2, "pane_index": 0})
    >>> board.take({"url": "/", "window_start": minute, "views": 5, "pane_index": 1})
    >>> board.top()
    [Line(url='/', views=5)]
    """

    def __init__(self) -> None:
        self._minutes: dict[str, dict[str, tuple[int, int]]] = {}

    def take(self, result: Mapping[str, Any]) -> None:
        """A row of `views-per-minute`: the one with the highest pane index stands."""
        pages = self._minutes.setdefault(result["window_start"], {})
        pane, views = result["pane_index"], result["views"]
        if pane >= pages.get(result["url"], (-1, 0))[0]:
            pages[result["url"]] = (pane, views)

    def top(self, n: int = 10, minute: str | None = None) -> list[Line]:
        """The pages with the most views in a minute, by default the latest one."""
        pages = self._minutes.get(minute or max(self._minutes, default=""), {})
        lines = [Line(url, views) for url, (_, views) in pages.items()]
        return sorted(lines, key=lambda line: (-line.views, line.url))[:n]
