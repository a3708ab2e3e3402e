"""The folder that a run continues from: whose it is, who uses it now, and whether this pipeline can read its state."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from headrace.engine.plan import QueryPlan
from headrace.errors import AlreadyRunningError, CheckpointMismatchError
from headrace.paths import state_dir
from headrace.pipeline.nodes import Dedupe, Rolling

_IDENTITY = "headrace.json"
_LOCK = "lock"


def default_checkpoint(pipeline: str) -> Path:
    """Where a pipeline's checkpoint is unless the user says otherwise."""
    return state_dir() / "checkpoints" / pipeline


@dataclass(frozen=True)
class _Identity:
    pipeline: str
    id: str
    state_partitions: int
    queries: dict[str, Any]


class Checkpoint:
    """An open, locked checkpoint. Close it to let another process in; a process that dies lets go by itself."""

    def __init__(self, folder: Path, pipeline: str, queries: Iterable[QueryPlan], state_partitions: int) -> None:
        self.folder = folder
        self._pipeline = pipeline
        self._lock = self._take_lock()
        try:
            identity = self._check({q.name: _shape(q) for q in queries}, state_partitions)
        except BaseException:
            self.close()
            raise
        self.id = identity.id
        self.state_partitions = identity.state_partitions

    def location(self, query: QueryPlan) -> str:
        """The Spark checkpoint of one query."""
        return str(self.folder / "queries" / query.name)

    def writer(self, query: QueryPlan) -> str:
        """The identity under which the query writes to Kafka: another checkpoint is another writer."""
        return f"headrace.{query.name}.{self.id}"

    def close(self) -> None:
        """Let go of the lock."""
        self._lock.close()

    def _take_lock(self) -> IO[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / _LOCK).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise AlreadyRunningError(
                f"pipeline `{self._pipeline}` is running already (process {owner}).",
                why=f"Two runs on one checkpoint would corrupt its state: {self.folder}",
                fix=f"stop process {owner}, or run a second copy with its own --checkpoint DIR.",
                pipeline=self._pipeline,
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock

    def _check(self, queries: dict[str, Any], state_partitions: int) -> _Identity:
        file = self.folder / _IDENTITY
        if not file.exists():
            identity = _Identity(self._pipeline, uuid.uuid4().hex[:12], state_partitions, queries)
            self._save(identity)
            return identity
        identity = _Identity(**json.loads(file.read_text()))
        if identity.pipeline != self._pipeline:
            raise CheckpointMismatchError(
                f"the checkpoint belongs to pipeline `{identity.pipeline}`, not to `{self._pipeline}`.",
                why=f"Checkpoint: {self.folder}",
                fix="give this pipeline its own --checkpoint DIR.",
                pipeline=self._pipeline,
            )
        for name, shape in queries.items():
            known = identity.queries.get(name)
            if known is not None and known != shape:
                raise CheckpointMismatchError(
                    f"the state of query `{name}` was written by another shape of pipeline `{self._pipeline}`.",
                    why="\n".join((*_differences(known, shape), f"Checkpoint: {self.folder}")),
                    fix="undo the change, or start anew from the log with another --checkpoint DIR\n"
                    "(the topic is replayed from its beginning).",
                    pipeline=self._pipeline,
                )
        gone = [name for name, shape in identity.queries.items() if shape["steps"] and name not in queries]
        if gone:
            raise CheckpointMismatchError(
                f"the checkpoint has the state of query `{gone[0]}`, which pipeline `{self._pipeline}` no longer has.",
                why="Stateful steps were added, removed or renamed, so the queries are not the same any more.\n"
                f"Queries now: {', '.join(queries)}\nCheckpoint: {self.folder}",
                fix="undo the change, or start anew from the log with another --checkpoint DIR\n"
                "(the topic is replayed from its beginning).",
                pipeline=self._pipeline,
            )
        merged = _Identity(identity.pipeline, identity.id, identity.state_partitions, {**identity.queries, **queries})
        if merged != identity:
            self._save(merged)
        return merged

    def _save(self, identity: _Identity) -> None:
        fresh = self.folder / f"{_IDENTITY}.new"
        fresh.write_text(json.dumps(asdict(identity), indent=2) + "\n")
        fresh.replace(self.folder / _IDENTITY)


def _shape(query: QueryPlan) -> dict[str, Any]:
    """What the bytes in the state depend on. Stateless steps may change freely."""
    steps: dict[str, Any] = {}
    for step in query.stateful:
        match step:
            case Dedupe():
                steps[step.name] = {"kind": "dedupe", "columns": list(step.columns), "within_ms": step.within_ms}
            case Rolling():
                steps[step.name] = {
                    "kind": "rolling",
                    "aggregates": {name: json.loads(json.dumps(asdict(a))) for name, a in step.aggregates},
                }
    used = sorted(_used_columns(query))
    return {
        "topic": query.read.topic,
        "key": list(query.key),
        "columns": {name: query.read.schema[name] for name in used if name in query.read.schema},
        "steps": steps,
    }


def _used_columns(query: QueryPlan) -> set[str]:
    used = set(query.key)
    for step in query.stateful:
        if isinstance(step, Dedupe):
            used.update(step.columns)
        else:
            for _, a in step.aggregates:
                used.update(getattr(a, "columns", ()) or ())
                used.update(c for c in (getattr(a, "column", None),) if c)
    return used


def _differences(known: Any, now: Any, path: str = "") -> list[str]:
    if isinstance(known, dict) and isinstance(now, dict):
        lines: list[str] = []
        for key in dict.fromkeys((*known, *now)):
            lines += _differences(known.get(key), now.get(key), f"{path}.{key}" if path else str(key))
        return lines
    return [] if known == now else [f"{path}: {json.dumps(known)} in the checkpoint, {json.dumps(now)} now"]
