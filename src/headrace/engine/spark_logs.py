"""What Spark notes of a query in its folder of the checkpoint: the offsets of each batch, and its commit."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

Offsets = dict[str, dict[str, int]]
"""By topic and partition, the next offset to read."""


def has_begun(query: Path) -> bool:
    """Whether Spark has noted a batch of the query."""
    return bool(batches(query, "offsets") | batches(query, "commits"))


def batches(query: Path, log: str) -> set[int]:
    """The numbers of the batches in a log, `offsets` or `commits`."""
    return {int(file.name) for file in (query / log).glob("*") if file.name.isdigit()}


def offsets_of(query: Path, batch: int) -> Offsets:
    """How far a batch reads; nothing where there is no note, or none that can be read: Spark says so itself."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        offsets: Offsets = json.loads((query / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[-1])
        return offsets
    return {}


def committed_offsets(query: Path) -> Offsets:
    """How far the query had read when it last committed."""
    # A crash may leave a batch in one log only: real time notes the commit before the offsets.
    both = batches(query, "commits") & batches(query, "offsets")
    return offsets_of(query, max(both)) if both else {}


def sweep(query: Path) -> None:
    """Clears what a crash in the commit of a query's first batch left: Spark would refuse to start beside it.

    Real time writes state first, then the commit, then the offsets. Without either log nothing refers to the state.
    """
    if has_begun(query):
        return
    for file in (file for log in ("offsets", "commits") for file in (query / log).glob("*")):
        file.unlink()
    shutil.rmtree(query / "state", ignore_errors=True)
