"""Rows shown on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.pipeline.sink import Guarantee
from headrace.sinks.protocol import Batch, Refuse, StoreSink
from headrace.sinks.text import is_nested, to_json

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class ConsoleSink(StoreSink):
    """See `hr.sinks.console`."""

    kind: ClassVar[str] = "console"

    rows: int

    @property
    def target(self) -> str:
        """The terminal."""
        return f"({self.rows} rows of a batch)"

    def __str__(self) -> str:
        return self.kind

    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """For a look only."""
        why = "a batch is shown when it is done, and again if it is repeated; beyond the first rows only their number"
        return Guarantee("at least once", why, "nothing: it is for a look, not for keeping")

    def write(
        self, batch: Batch, partition: int, rows: Iterator[pa.RecordBatch], refuse: Refuse
    ) -> dict[str, Any] | None:
        """The first rows as JSON lines, and how many there are."""
        nested = [c.name for c in batch.columns if is_nested(c)]
        lines: list[str] = []
        count = 0
        for chunk in rows:
            count += chunk.num_rows
            wanted = chunk.slice(0, max(0, self.rows - len(lines))).select(list(batch.names))
            lines += [to_json(row, nested) for row in wanted.to_pylist()]
        return {"lines": lines, "count": count}

    def commit(self, batch: Batch, results: list[dict[str, Any]]) -> None:
        """Show them."""
        lines = [line for result in results for line in result.get("lines", ())]
        count = sum(result.get("count", 0) for result in results)
        shown = lines[: self.rows]
        if count > len(shown):
            shown.append(f"... {count - len(shown)} more rows of batch {batch.number}")
        if shown:
            sys.stdout.write("\n".join(shown) + "\n")
            sys.stdout.flush()
