"""The folder that a run continues from: whose it is, who uses it now, and whether this pipeline can read its state."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from headrace.engine.plan import QueryPlan
from headrace.errors import AlreadyRunningError, CheckpointMismatchError
from headrace.paths import state_dir
from headrace.pipeline.columns import expression_text
from headrace.pipeline.nodes import Dedupe, Rolling, Window

_IDENTITY = "headrace.json"
_LOCK = "lock"


def _sweep(query: Path) -> None:
    """Clears what a crash in the commit of a query's first batch left: Spark would refuse to start beside it.

    Real time writes state first, then the commit, then the offsets. Without either log nothing refers to the state.
    """
    if _has_begun(query):
        return
    for file in _logs(query):
        file.unlink()
    shutil.rmtree(query / "state", ignore_errors=True)


def _has_begun(query: Path) -> bool:
    """Whether Spark has noted a batch of the query."""
    return any(file.name.isdigit() for file in _logs(query))


def _logs(query: Path) -> list[Path]:
    return [file for log in ("offsets", "commits") for file in (query / log).glob("*")]


def default_checkpoint(pipeline: str) -> Path:
    """Where a pipeline's checkpoint is unless the user says otherwise."""
    return state_dir() / "checkpoints" / pipeline


@dataclass(frozen=True)
class _Identity:
    pipeline: str
    id: str
    state_partitions: int
    queries: dict[str, Any]
    types: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each query, the types of the columns that its state holds: of computed ones only Spark knows them."""
    generation: int = 0


class Checkpoint:
    """An open, locked checkpoint. Close it to let another process in; a process that dies lets go by itself."""

    def __init__(self, folder: Path, pipeline: str, queries: Iterable[QueryPlan], state_partitions: int) -> None:
        self.folder = folder
        self._pipeline = pipeline
        self._lock = self._take_lock()
        try:
            self._identity = self._check({q.name: _shape(q) for q in queries}, state_partitions)
            for query in (folder / "queries").glob("*"):
                _sweep(query)
        except BaseException:
            self.close()
            raise
        self.state_partitions = self._identity.state_partitions

    @property
    def id(self) -> str:
        """Made when the checkpoint was: another one for the same pipeline has another."""
        return self._identity.id

    def location(self, query: QueryPlan) -> str:
        """The Spark checkpoint of one query."""
        return str(self.folder / "queries" / query.name)

    def writer(self, query: QueryPlan) -> str:
        """The identity under which the query writes to Kafka: another checkpoint is another writer."""
        return f"headrace.{query.name}.{self.id}"

    def read_offsets(self, query: QueryPlan) -> dict[str, dict[str, int]]:
        """How far the query had read, by topic and partition, when it last committed."""
        commits = (Path(self.location(query)) / "commits").glob("[0-9]*")
        last = max((int(file.name) for file in commits), default=None)
        if last is None:
            return {}
        lines = (Path(self.location(query)) / "offsets" / str(last)).read_text().splitlines()
        offsets: dict[str, dict[str, int]] = json.loads(lines[-1])
        return offsets

    @property
    def generation(self) -> str:
        """Within one, a batch number names one input: what the transactional sink's markers are about."""
        return str(self._identity.generation)

    def begin_realtime(self) -> None:
        """To be called before real time starts: it may give the number of an unfinished batch to other input."""
        self._save(replace(self._identity, generation=self._identity.generation + 1))

    def check_types(self, query: QueryPlan, types: dict[str, str]) -> None:
        """Refuse state whose columns had other types."""
        known = self._identity.types.get(query.name)
        if known is None:
            self._save(replace(self._identity, types={**self._identity.types, query.name: types}))
        elif known != types:
            raise self._another_shape(query.name, _differences({"columns": known}, {"columns": types}))

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
        if not any(_has_begun(query) for query in (self.folder / "queries").glob("*")):
            # The start that made it went no further: there is nothing that this one would have to fit.
            identity = replace(
                identity, pipeline=self._pipeline, state_partitions=state_partitions, queries=queries, types={}
            )
            self._save(identity)
            return identity
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
                raise self._another_shape(name, _differences(known, shape))
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
        merged = replace(identity, queries={**identity.queries, **queries})
        if merged != identity:
            self._save(merged)
        return merged

    def _another_shape(self, query: str, differences: list[str]) -> CheckpointMismatchError:
        return CheckpointMismatchError(
            f"the state of query `{query}` was written by another shape of pipeline `{self._pipeline}`.",
            why="\n".join((*differences, f"Checkpoint: {self.folder}")),
            fix="undo the change, or start anew from the log with another --checkpoint DIR\n"
            "(the topic is replayed from its beginning).",
            pipeline=self._pipeline,
        )

    def _save(self, identity: _Identity) -> None:
        self._identity = identity
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
            case Window():
                steps[step.name] = {
                    "kind": "window",
                    "windows": str(step.windowing),
                    "trigger": step.trigger.spec(),
                    "aggregates": {name: expression_text(value) for name, value in step.aggregates},
                    "panes": step.panes.value,
                }
    return {
        "topic": query.read.topic,
        "key": list(query.key),
        "columns": {name: query.read.schema[name] for name in sorted(query.state_columns) if name in query.read.schema},
        "steps": steps,
    }


def _differences(known: Any, now: Any, path: str = "") -> list[str]:
    if isinstance(known, dict) and isinstance(now, dict):
        lines: list[str] = []
        for key in dict.fromkeys((*known, *now)):
            lines += _differences(known.get(key), now.get(key), f"{path}.{key}" if path else str(key))
        return lines
    return [] if known == now else [f"{path}: {json.dumps(known)} in the checkpoint, {json.dumps(now)} now"]
