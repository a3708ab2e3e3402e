"""How each Kafka output is delivered in each mode, why that holds, and what would break it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.engine.plan import Branch, QueryPlan
from headrace.engine.settings import Mode, RunSettings
from headrace.errors import UnsupportedModeError
from headrace.pipeline.delivery import Delivery
from headrace.pipeline.watermarks import Perfect


@dataclass(frozen=True)
class Guarantee:
    """What holds for an output, in the words of `headrace explain`."""

    name: str
    modes: str
    mechanism: str
    reader: str
    breaks: str


_BATCH = "replay, microbatch"
_EXACTLY = Guarantee(
    "exactly once",
    _BATCH,
    "each task writes in one Kafka transaction that carries the batch id; a repeated batch is skipped",
    "readers need isolation.level=read_committed",
    "a batch longer than transaction.timeout.ms never commits; a pause longer than the broker's "
    "offsets.retention.minutes right after a crash forgets what was written; another checkpoint writes all of it again",
)
_AT_LEAST = Guarantee(
    "at least once",
    _BATCH,
    "written at once, outside of transactions, and flushed before the batch counts as done; a repeated batch is "
    "written again, with the same headrace-id",
    "keep one record per headrace-id to get each result once",
    "nothing but the loss of acknowledged records by the broker; after a crash a batch's records are there twice",
)
_AT_MOST = Guarantee(
    "at most once",
    _BATCH,
    "a task claims the batch in a Kafka transaction before it writes; a repeated batch finds the claim, writes nothing",
    "what was being written at a crash, or while the broker did not answer, is missing",
    "a pause longer than the broker's offsets.retention.minutes right after a crash forgets the claim",
)
_AT_LEAST_REALTIME = Guarantee(
    "at least once",
    "realtime",
    "after a stop or a crash the records since the last checkpoint are written again, with the same headrace-id",
    "keep one record per headrace-id to get each result once",
    "a reader that does not look at headrace-id sees repeats after every stop or crash",
)
_IN_BATCHES = {
    Delivery.EXACTLY_ONCE: _EXACTLY,
    Delivery.AT_LEAST_ONCE: _AT_LEAST,
    Delivery.AT_MOST_ONCE: _AT_MOST,
}


def deliveries(query: QueryPlan) -> dict[str, Delivery]:
    """How a query writes each of its topics in micro-batch and replay."""
    return {b.topic: _in_batches(query, b) for b in query.branches}


def guarantee_of(query: QueryPlan, branch: Branch, mode: Mode) -> Guarantee | None:
    """What holds for an output in a mode; None if the mode can't give what its write asks for."""
    if mode is not Mode.REALTIME:
        return _IN_BATCHES[_in_batches(query, branch)]
    return None if _needs_batches(branch) else _AT_LEAST_REALTIME


def guarantee_words(query: QueryPlan, branch: Branch) -> str:
    """The guarantees of an output on one line."""
    words = _in_batches(query, branch).words
    if _needs_batches(branch):
        return f"{words}; not in real time"
    return words if words == _AT_LEAST_REALTIME.name else f"{words}; in real time {_AT_LEAST_REALTIME.name}"


def stays_in_microbatch(queries: Iterable[QueryPlan], settings: RunSettings | None = None) -> str | None:
    """Why real time is not for this run, if so."""
    for query in queries:
        for branch in query.branches:
            if _needs_batches(branch):
                assert branch.write is not None
                return f"the write to `{branch.topic}` at {branch.write.location} asks for {branch.write.delivery}"
    return "it has a max rate" if settings is not None and settings.max_rate is not None else None


def check_mode(pipeline: str, queries: Iterable[QueryPlan], mode: Mode, settings: RunSettings) -> None:
    """Refuse a mode for a run that asks for what it can't give. A guarantee that was asked for is not weakened."""
    queries = tuple(queries)
    _check_end(pipeline, queries, mode)
    asked = stays_in_microbatch(queries, settings)
    if mode is not Mode.REALTIME or asked is None:
        return
    why = "In real time Spark reads each record as it comes: nothing holds the intake back."
    fix = "leave out --max-rate, or run with --mode microbatch."
    if "asks for" in asked:
        why = (
            "In real time a record is written before its batch is committed, so after a stop or a crash it is\n"
            "written again: at least once, with the same headrace-id."
        )
        fix = (
            "run with --mode microbatch (or auto, which then stays there), or leave out delivery=...\n"
            "and let readers keep one record per headrace-id."
        )
    raise UnsupportedModeError(f"this run can't be in real time: {asked}.", why=why, fix=fix, pipeline=pipeline)


def _check_end(pipeline: str, queries: Iterable[QueryPlan], mode: Mode) -> None:
    """Only a replay has an end. Where a live run has caught up is none: what came after it would all be late."""
    times = (query.event_time for query in queries if query.stateful)
    time = next((time for time in times if time is not None and isinstance(time.watermark, Perfect)), None)
    if time is None or mode is Mode.REPLAY:
        return
    raise UnsupportedModeError(
        f"hr.perfect() is for input that ends; in {mode.value} mode a run has no end.",
        why="Its watermark stays where it is until all has been read, and then goes to the end of time.",
        fix="run with --mode replay, or take another watermark for a live run,\n"
        'like hr.bounded("30s") or hr.per_partition().',
        location=time.location,
        pipeline=pipeline,
    )


def _needs_batches(branch: Branch) -> bool:
    asked = None if branch.write is None else branch.write.delivery
    return asked in (Delivery.EXACTLY_ONCE, Delivery.AT_MOST_ONCE)


def _in_batches(query: QueryPlan, branch: Branch) -> Delivery:
    if branch.write is not None:
        return Delivery(branch.write.delivery or Delivery.EXACTLY_ONCE)
    # A side output that nobody asked for does not bring transactions into a query that has none.
    others = [b.write.delivery for b in query.branches if b.write is not None]
    plain = bool(others) and all(d in (Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE) for d in others)
    return Delivery.AT_LEAST_ONCE if plain else Delivery.EXACTLY_ONCE
