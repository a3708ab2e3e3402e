"""Positions in consumer groups, committed by the driver: of real time at each checkpoint, of sinks after each batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import LogError
from headrace.log.positions import GroupPositions


class PositionReport:
    """Commits what Spark says it has read. It is for tools to see the lag; where a run goes on is in the checkpoint."""

    def __init__(self, bootstrap: str, report: Callable[[str], None]) -> None:
        self._bootstrap = bootstrap
        self._report = report
        self._groups: GroupPositions | None = None

    def on_progress(self, topics: Mapping[str, str], progress: dict[str, Any]) -> None:
        """Take in a batch (Spark's own JSON) of a query, whose topic is in `topics` by its name; others do not count.

        What can't be committed does not stop the run.
        """
        query = progress.get("name") or ""
        if query not in topics:
            return
        read = read_offsets(progress, topics[query])
        try:
            if self._groups is None:
                self._groups = GroupPositions(self._bootstrap)
            self._groups.commit(query, topics[query], read)
        except LogError as problem:
            self._report(f"{query}: {problem.what}")


def read_offsets(progress: dict[str, Any], topic: str) -> dict[int, int]:
    """How far a topic is read after a batch, by partition.

    >>> read_offsets({"sources": [{"endOffset": {"clicks": {"0": 7, "1": 9}}}]}, "clicks")
    {0: 7, 1: 9}
    """
    found: dict[int, int] = {}
    for source in progress.get("sources") or []:
        end = source.get("endOffset")
        partitions = end.get(topic, {}) if isinstance(end, dict) else {}
        found.update({int(partition): int(offset) for partition, offset in partitions.items()})
    return found
