"""The folder that a run continues from: whose it is, who uses it now, and whether this pipeline can read its state."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any

from headrace.engine.checkpoint_refusals import Refusals
from headrace.engine.control import control_topic, needs_control
from headrace.engine.plan import QueryPlan, Route
from headrace.engine.spark_logs import Offsets, batches, committed_offsets, has_begun, offsets_of, sweep
from headrace.log.topics import Topics
from headrace.paths import state_dir
from headrace.pipeline.columns import expression_text
from headrace.pipeline.nodes import Dedupe, Rolling, Window

_IDENTITY = "headrace.json"
_LOCK = "lock"
_LAYOUT = 2
"""To be raised when the kernel lays out state in another way."""


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
    cluster: str | None = None
    """The id of the Kafka cluster whose topics were read; None if nobody has told it yet."""
    outputs: dict[str, list[str]] | None = None
    """Of each query of the last run, the topics of its results; None if an earlier version ran."""
    layout: int = 1
    """How the kernel lays out state: that of before it was noted is the first."""


class Checkpoint:
    """An open, locked checkpoint. Close it to let another process in; a process that dies lets go by itself."""

    def __init__(
        self,
        folder: Path,
        pipeline: str,
        queries: Iterable[QueryPlan],
        state_partitions: int,
        cluster: str | None = None,
    ) -> None:
        self.folder = folder
        self._pipeline = pipeline
        self._queries = {query.name: query for query in queries}
        self._cluster = cluster
        self._refusals = Refusals(folder, pipeline)
        self._lock = self._take_lock()
        try:
            self._identity = self._check(state_partitions)
            for query in self._folders():
                sweep(query)
        except BaseException:
            self.close()
            raise
        self.state_partitions = self._identity.state_partitions

    @classmethod
    def on(
        cls, bootstrap: str, folder: Path, pipeline: str, queries: Iterable[QueryPlan], state_partitions: int
    ) -> Checkpoint:
        """The checkpoint, of the cluster at this address."""
        return cls(folder, pipeline, queries, state_partitions, Topics(bootstrap).cluster_id())

    @property
    def id(self) -> str:
        """Made when the checkpoint was: another one for the same pipeline has another."""
        return self._identity.id

    def location(self, query: QueryPlan) -> str:
        """The Spark checkpoint of one query."""
        return str(self._place(query.name))

    def writer(self, query: QueryPlan) -> str:
        """The identity under which the query writes to Kafka: another checkpoint is another writer."""
        return f"headrace.{query.name}.{self.id}"

    def read_offsets(self, query: QueryPlan) -> Offsets:
        """How far the query had read, by topic and partition, when it last committed."""
        return committed_offsets(self._place(query.name))

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
        noted = _comparable(known or {}, types, query)
        if noted != types:
            raise self._refusals.other_shape(query.name, _differences({"columns": noted}, {"columns": types}))
        if known != types:
            self._save(replace(self._identity, types={**self._identity.types, query.name: types}))

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
            raise self._refusals.in_use(owner) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock

    def _check(self, state_partitions: int) -> _Identity:
        queries = {name: _shape(query) for name, query in self._queries.items()}
        outputs = {name: _results(query) for name, query in self._queries.items()}
        file = self.folder / _IDENTITY
        if not file.exists():
            id = uuid.uuid4().hex[:12]
            known = _Identity(
                self._pipeline, id, state_partitions, queries, cluster=self._cluster, outputs=outputs, layout=_LAYOUT
            )
            self._save(known)
            return known
        identity = self._read(file)
        sinks = self.folder.glob("sinks/*/*/spark")
        if not any(has_begun(query) for query in (*self._folders(), *sinks)):
            # The start that made it went no further: there is nothing that this one would have to fit.
            identity = replace(
                identity,
                pipeline=self._pipeline,
                state_partitions=state_partitions,
                queries={},
                types={},
                cluster=None,
                layout=_LAYOUT,
            )
        self._check_owner(identity)
        self._check_state(identity, queries)
        self._check_starts(identity, outputs)
        self._check_control(identity)
        merged = replace(
            identity,
            queries={**identity.queries, **queries},
            cluster=self._cluster or identity.cluster,
            outputs=outputs,
            layout=_LAYOUT,
        )
        if merged != identity:
            self._save(merged)
        return merged

    def _read(self, file: Path) -> _Identity:
        try:
            noted = json.loads(file.read_text(encoding="utf-8"))
            unknown = sorted(noted.keys() - {field.name for field in fields(_Identity)})
            identity = None if unknown else _Identity(**noted)
            shapes = [] if identity is None else identity.queries.values()
            whole = all({"topic", "steps"} <= shape.keys() for shape in shapes)
        except (TypeError, ValueError, AttributeError) as problem:
            raise self._refusals.damaged(file, str(problem)) from problem
        if identity is None:
            raise self._refusals.newer(file, unknown)
        if not whole:
            raise self._refusals.damaged(file, "a query has no topic or no steps")
        return identity

    def _check_owner(self, identity: _Identity) -> None:
        """Whether the checkpoint is of this pipeline, and of the log that it reads."""
        if identity.pipeline != self._pipeline:
            raise self._refusals.other_pipeline(identity.pipeline)
        if identity.cluster is not None and self._cluster is not None and identity.cluster != self._cluster:
            raise self._refusals.other_cluster(identity.cluster, self._cluster)

    def _check_state(self, identity: _Identity, queries: dict[str, Any]) -> None:
        """Whether the queries can read the state, and all state has its query."""
        if identity.layout != _LAYOUT and any(shape["steps"] for shape in identity.queries.values()):
            raise self._refusals.other_layout(newer=identity.layout > _LAYOUT)
        for name, shape in queries.items():
            known = identity.queries.get(name)
            if known is None:
                continue
            columns = _comparable(known.get("columns", {}), shape["columns"], self._queries[name])
            known = {**known, "columns": columns}
            if known != shape:
                raise self._refusals.other_shape(name, _differences(known, shape))
        for name, shape in identity.queries.items():
            if shape["steps"] and name not in queries:
                raise self._refusals.lost_state(name, queries)

    def _check_starts(self, identity: _Identity, outputs: dict[str, list[str]]) -> None:
        """Whether a query would write again from the beginning what one without state has written.

        A step with state has a name by which the user says that it is the same; others have none.
        """
        # Which queries the last run of an earlier version had is not known.
        last = {name: [] for name in identity.queries} if identity.outputs is None else identity.outputs
        stateless = {name: shape["topic"] for name, shape in identity.queries.items() if not shape["steps"]}
        new = [query for query in self._queries.values() if not has_begun(self._place(query.name))]
        for name in (name for name in last if name in stateless and has_begun(self._place(name))):
            for query in (query for query in new if query.read.topic == stateless[name]):
                if name not in outputs:
                    raise self._refusals.lost_query(name, query.name, query.read.topic)
                moved = set(last[name]) - set(outputs[name])
                if not query.stateful and (again := moved.intersection(outputs[query.name])):
                    raise self._refusals.moved_output(name, query.name, query.read.topic, min(again))

    def _check_control(self, identity: _Identity) -> None:
        """Whether a query would leave its control topic. To come to have one is nothing to Spark."""
        for query in self._queries.values():
            folder, topic = self._place(query.name), control_topic(query, identity.id)
            if not needs_control(query) and topic in offsets_of(folder, max(batches(folder, "offsets"), default=0)):
                raise self._refusals.left_control(query.name, topic)

    def _folders(self) -> list[Path]:
        return list((self.folder / "queries").glob("*"))

    def _place(self, query: str) -> Path:
        return self.folder / "queries" / query

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
                    # The kernel shares slices between windows only where this allows it.
                    "result_time": step.result_time.kind.value,
                }
    return {
        "topic": query.read.topic,
        "key": list(query.key),
        "columns": {name: query.read.schema[name] for name in sorted(query.state_columns) if name in query.read.schema},
        "steps": steps,
    }


def _comparable(noted: dict[str, str], now: dict[str, str], query: QueryPlan) -> dict[str, str]:
    """The columns that were noted, as far as they tell of another state.

    What SQL text uses, one version of its parser finds and another does not. So one that was not noted is taken to have
    been as it is now, and one that is not used now does not count: if a step was changed so, `key` or `steps` show it.
    """
    return {**now, **{name: type for name, type in noted.items() if name in query.state_columns}}


def _results(query: QueryPlan) -> list[str]:
    return sorted({b.topic for b in query.branches if b.route is Route.RESULT})


def _differences(known: Any, now: Any, path: str = "") -> list[str]:
    if isinstance(known, dict) and isinstance(now, dict):
        lines: list[str] = []
        for key in dict.fromkeys((*known, *now)):
            lines += _differences(known.get(key), now.get(key), f"{path}.{key}" if path else str(key))
        return lines
    return [] if known == now else [f"{path}: {json.dumps(known)} in the checkpoint, {json.dumps(now)} now"]
