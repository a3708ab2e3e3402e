"""Plays the engine's part in the protocol of sinks, in this process or in one that kills itself at a chosen point.

python -m tests.system.sink_playing POINT FILE     FILE is a pickled (sink, batch, parts)
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.pipeline.schema import Column
from headrace.sinks.protocol import CARRIED, Batch, NeedsCare, StoreSink

COLUMNS = (
    Column("id", "bigint"),
    Column("amount", "decimal(10,2)"),
    Column("at", "timestamp"),
    Column("note", "string"),
    Column("tags", "array<string>"),
)
POINTS = ("within a partition", "after one partition", "before the commit", "after the commit")
"""Where a process may be killed."""
_CHUNK = 3


@dataclass
class Played:
    """What a batch came to."""

    refused: list[tuple[int, str]] = field(default_factory=list)


def row(id: int, **fields: Any) -> dict[str, Any]:
    """A row with something of every type."""
    at = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
    return {"id": id, "amount": Decimal("12.30"), "at": at, "note": f"é{id}", "tags": ["a", "ü"], **fields}


def batch(number: int, columns: tuple[Column, ...] = COLUMNS) -> Batch:
    return Batch("named after the sink", number, columns)


def play(sink: StoreSink, batch: Batch, parts: Sequence[Sequence[dict[str, Any]]], die_at: str = "") -> Played:
    """One batch, as the engine would: begin, each partition, again with care if need be, commit."""
    played = Played()
    batch = replace(batch, writer=sink.name)
    sink.prepare(batch.columns)
    if not sink.begin(batch):
        return played
    try:
        results = _write(sink, batch, parts, die_at, played)
    except NeedsCare:
        results = _write(sink, replace(batch, careful=True), parts, die_at, played)
    _die(die_at == "before the commit")
    sink.commit(batch, json.loads(json.dumps(results)))
    _die(die_at == "after the commit")
    return played


def crash(folder: Path, sink: StoreSink, batch: Batch, parts: Sequence[Sequence[dict[str, Any]]], point: str) -> None:
    """The same in another process, which is killed at that point."""
    file = folder / "batch.pickle"
    file.write_bytes(pickle.dumps((sink, batch, parts)))
    command = [sys.executable, "-m", "tests.system.sink_playing", point, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def _write(
    sink: StoreSink, batch: Batch, parts: Sequence[Sequence[dict[str, Any]]], die_at: str, played: Played
) -> list[dict[str, Any]]:
    results = []
    for partition, rows in enumerate(parts):

        def refuse(refused: pa.RecordBatch, reason: str) -> None:
            played.refused += [(row["id"], reason) for row in refused.to_pylist()]

        chunks = _chunks(sink, batch, partition, rows, die_at == "within a partition" and partition == 0)
        results.append(sink.write(batch, partition, chunks, refuse) or {})
        _die(die_at == "after one partition")
    return results


def _chunks(
    sink: StoreSink, batch: Batch, partition: int, rows: Sequence[dict[str, Any]], dies: bool
) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), _CHUNK):
        yield arrow(sink, batch.columns, partition, start, rows[start : start + _CHUNK])
        _die(dies)


def arrow(
    sink: StoreSink, columns: tuple[Column, ...], partition: int, start: int, rows: Sequence[dict[str, Any]]
) -> pa.RecordBatch:
    """Rows as a worker gets them."""
    nested = pa.list_(pa.string()) if sink.takes_nested else pa.string()
    types = {
        "bigint": pa.int64(),
        "decimal(10,2)": pa.decimal128(10, 2),
        "timestamp": pa.timestamp("us", "UTC"),
        "string": pa.string(),
        "array<string>": nested,
    }
    arrays = []
    for column in columns:
        values = [row.get(column.name) for row in rows]
        if column.type == "array<string>" and not sink.takes_nested:
            values = [None if v is None else json.dumps(v, ensure_ascii=False) for v in values]
        arrays.append(pa.array(values, types[column.type or ""]))
    offsets = range(start, start + len(rows))
    ids = [f"topic/{partition}/{row['id']}/{row.get('row_kind', '')}" for row in rows]
    arrays += [pa.array(ids), pa.array([partition] * len(rows), pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, names=[*(c.name for c in columns), *CARRIED])


def _die(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    point, file = sys.argv[1:]
    given = pickle.loads(Path(file).read_bytes())  # noqa: S301 - written by the test itself
    play(given[0], given[1], given[2], point)
