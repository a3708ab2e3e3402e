"""Each rule looks for one trouble in the evidence: what was seen, why it is so, what to do, and the command for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from headrace.metrics import Unit, shown
from headrace.ops.doctor.evidence import Evidence

_SMALL_BYTES = 16_000_000
_MANY_FILES = 50


@dataclass(frozen=True)
class Finding:
    """One trouble."""

    pipeline: str
    name: str
    evidence: str
    cause: str
    fix: str
    command: str

    def to_dict(self) -> dict[str, str]:
        """For programs."""
        return asdict(self)


Rule = Callable[[Evidence], Iterator[Finding]]


def diagnose(evidence: Evidence) -> list[Finding]:
    """All that is wrong; nothing for a healthy pipeline."""
    return [finding for rule in RULES for finding in rule(evidence)]


def not_running(e: Evidence) -> Iterator[Finding]:
    """A run that failed or fell silent, or events that nobody reads."""
    lag = e.last.get("lag_events") or 0
    pipeline = e.pipeline
    if pipeline.alive or (pipeline.status == "stopped" and not lag):
        return
    last = next((r["message"] for r in reversed(pipeline.events) if r["message"]), "")
    causes = {
        "failed": f"its last run failed: {last.splitlines()[0][:200] if last else 'no message'}",
        "lost": "its last run ended without a word: it was killed (out of memory?), or its machine is gone",
    }
    yield Finding(
        pipeline.name,
        "not-running",
        f"the last run is {pipeline.status}; {shown(lag, Unit.EVENTS)} events wait",
        causes.get(pipeline.status, "it was stopped, and its topics go on"),
        "start it again: it continues from its checkpoint",
        "headrace run MODULE:PIPELINE"
        + (f" --checkpoint {pipeline.checkpoint}" if pipeline.checkpoint else "")
        + f" --bootstrap {e.bootstrap}",
    )


def lag_growing(e: Evidence) -> Iterator[Finding]:
    """More comes in than is worked off: skew, too few partitions, or simply too slow."""
    before, now = e.first.get("lag_events"), e.last.get("lag_events")
    coming = e.last.get("events_in") or 0.0
    if not e.pipeline.alive or before is None or now is None:
        return
    # Within a batch the lag goes up and down; growth is what more than a few seconds of traffic can't explain.
    if now - before < max(100.0, coming * 3) or now < max(1000.0, coming * 10):
        return
    evidence = (
        f"lag went from {before:,.0f} to {now:,.0f} events in {e.seconds:.0f} s, while {coming:,.0f} a second came in"
    )
    topic, partitions = _worst_topic(e)
    by_partition = sorted(((b.lag or 0, b.partition) for b in e.behind if b.topic == topic), reverse=True)
    largest, where = by_partition[0]
    if len(by_partition) > 1 and largest > 0.6 * now and (e.last.get("skew") or 1.0) > 1.5:
        hot = f"; the key `{e.hot_keys[0][0]}` alone has {e.hot_keys[0][1]:.0%}" if _hot(e) else ""
        yield Finding(
            e.pipeline.name,
            "lag-skew",
            f"{evidence}; partition {where} of {topic} has {largest / now:.0%} of it{hot}",
            "the events are spread unevenly: one partition, and so one task, has most of the work",
            "give the producer a key with more values, or add a salt to the hot key and aggregate in two steps",
            f"headrace topics describe {topic} --bootstrap {e.bootstrap}",
        )
    elif partitions < e.cores:
        yield Finding(
            e.pipeline.name,
            "lag-few-partitions",
            f"{evidence}; {partitions} partition(s) of {topic} for {e.cores} cores",
            "a partition is read by one task: with fewer partitions than cores the others wait",
            f"a topic with at least {e.cores} partitions; keys move, so make a new one and let producers change over",
            f"headrace topics create {topic}-v2 --partitions {2 * e.cores} --bootstrap {e.bootstrap}",
        )
    else:
        rate = max((float(q.last.get("rows_per_second") or 0) for q in e.pipeline.queries.values()), default=0.0)
        yield Finding(
            e.pipeline.name,
            "lag-slow",
            f"{evidence}; a batch works off {rate:,.0f} a second",
            "the pipeline does less per second than comes in, and its partitions share it evenly",
            "more cores, more state partitions (in a new checkpoint), or less work per event; then catch up",
            f"headrace run MODULE:PIPELINE --mode replay --bootstrap {e.bootstrap}",
        )


def rebalancing(e: Evidence) -> Iterator[Finding]:
    """Consumer groups that are busy sharing out partitions instead of reading them."""
    for group in e.groups:
        if group.name in e.rebalances:
            yield Finding(
                e.pipeline.name,
                "rebalances",
                f"group {group.name} ({group.members} members) was rebalancing while we looked",
                "members come and go, or take longer between polls than max.poll.interval.ms; meanwhile nobody reads",
                "find the member that leaves; raise max.poll.interval.ms, or poll fewer records at a time",
                f"headrace doctor {e.pipeline.name} --seconds 60 --bootstrap {e.bootstrap}",
            )


def idle_consumers(e: Evidence) -> Iterator[Finding]:
    """More members in a group than partitions to share."""
    for group in e.groups:
        if group.idle:
            shared = ", ".join(group.topics)
            yield Finding(
                e.pipeline.name,
                "idle-consumers",
                f"of the {group.members} members of group {group.name} on {shared}, {group.idle} have no partition",
                "a partition goes to one member of a group: members beyond the number of partitions get nothing",
                f"run at most {group.members - group.idle} members, or give the topic more partitions",
                f"headrace topics describe {group.topics[0]} --bootstrap {e.bootstrap}",
            )


def duplicates(e: Evidence) -> Iterator[Finding]:
    """The same result more than once."""
    for topic in dict.fromkeys(r.topic for r in e.results):
        ids = Counter(r.id for r in e.results if r.topic == topic and r.id)
        twice = {i: n for i, n in ids.items() if n > 1}
        if not twice:
            continue
        example, times = max(twice.items(), key=lambda item: item[1])
        realtime = any(q.mode == "realtime" for q in e.pipeline.queries.values() if topic in dict(q.outputs))
        yield Finding(
            e.pipeline.name,
            "duplicates",
            f"of the newest {sum(ids.values()):,} records of {topic}, {len(twice):,} are there more than once; "
            f"`{example}` {times} times",
            "real time writes at least once: after a stop or a crash it repeats what came since the last checkpoint"
            if realtime
            else "two runs with checkpoints of their own wrote to the topic, or its reader sees aborted transactions",
            "keep one record per header headrace-id, or run where exactly once holds"
            if realtime
            else "run one copy, or give each its own output topic; read with isolation.level=read_committed",
            f"headrace run MODULE:PIPELINE --mode microbatch --bootstrap {e.bootstrap}",
        )


def out_of_order(e: Evidence) -> Iterator[Finding]:
    """Results of one key that are not in the order of their events."""
    for topic, route in e.pipeline.outputs.items():
        if route != "result":
            continue
        newest: dict[tuple[bytes | None, int, int], int] = {}
        back = total = 0
        example = ""
        for r in e.results:
            if r.topic != topic or r.origin.offset is None or r.origin.partition is None or r.key is None:
                continue
            total += 1
            place = (r.key, r.partition, r.origin.partition)
            if r.origin.offset < newest.get(place, -1):
                back += 1
                example = example or f"key `{r.key[:40].decode('utf-8', 'replace')}` at offset {r.offset}"
            newest[place] = max(newest.get(place, -1), r.origin.offset)
        if back:
            yield Finding(
                e.pipeline.name,
                "out-of-order",
                f"{back:,} of {total:,} results of {topic} come after a later one of the same key; first: {example}",
                "something was written again after later results (a repeat in real time), or by a second writer",
                "order by event time at the reader, or keep the newest per key; see that one run writes to the topic",
                f"headrace topics describe {topic} --bootstrap {e.bootstrap}",
            )


def slow_checkpoints(e: Evidence) -> Iterator[Finding]:
    """A commit that takes a large part of a batch, or seconds."""
    commit, batch = e.last.get("commit_ms") or 0.0, e.last.get("batch_ms") or 0.0
    if commit < 2000 or commit < 0.2 * batch:
        return
    rows, size = e.last.get("state_rows") or 0, e.last.get("state_bytes") or 0
    grown = rows - (e.first.get("state_rows") or 0)
    growth = f", {grown:,.0f} rows more than {e.seconds:.0f} s ago" if grown > 0 else ""
    yield Finding(
        e.pipeline.name,
        "slow-checkpoints",
        f"the last commit took {shown(commit, Unit.MILLISECONDS)} of a batch of {shown(batch, Unit.MILLISECONDS)}; "
        f"state has {rows:,.0f} rows, {shown(size, Unit.BYTES)}{growth}",
        "the state grows: windows, dedupe and lateness keep it for as long as they are declared"
        if grown > 0
        else "the disk under the checkpoint is slow, or the state is large for the number of its stores",
        "shorten `within` and windows, bound the keys, put the checkpoint on a fast disk, or use more state stores",
        "headrace explain MODULE:PIPELINE",
    )


def schema_change(e: Evidence) -> Iterator[Finding]:
    """Events that can't be read since the producers changed something."""
    share = e.last.get("dead_letter_rate") or 0.0
    letters = [r for r in e.results if e.pipeline.outputs.get(r.topic) == "dead_letter"]
    if share < 0.01 or not letters:
        return
    reasons = Counter(r.reason for r in letters)
    reason, count = reasons.most_common(1)[0]
    last = letters[-1]
    yield Finding(
        e.pipeline.name,
        "schema-change",
        f"{share:.1%} of the events of the last minute are dead letters; of the newest {len(letters):,}, {count:,} "
        f"say: {reason[:200] or 'nothing'}; for instance {last.topic}/{last.partition}/{last.offset}",
        "the payload is not what the pipeline declares: a producer renamed a field, changed its type or its format",
        "declare the new field beside the old one (both nullable), or mend the producer; then replay the dead letters",
        f"headrace topics describe {last.topic} --bootstrap {e.bootstrap}",
    )


def stalled_watermark(e: Evidence) -> Iterator[Finding]:
    """Event time that stands still while events come."""
    for query in e.pipeline.queries.values():
        # Without state there is no watermark, and nothing waits for one.
        busy = [m for m in query.marks if m[2] > 0 and m[1]]
        if len(busy) < 3 or busy[-1][1] != busy[0][1] or busy[-1][0] - busy[0][0] < 5:
            continue
        flows = [b for b in e.behind if b.query == query.name]
        idle = [b.partition for b in flows if b.per_second == 0]
        rows = sum(m[2] for m in busy)
        evidence = (
            f"the watermark of {query.name} has been {busy[-1][1]} for {busy[-1][0] - busy[0][0]:.0f} s "
            f"and {rows:,} events"
        )
        if idle and len(idle) < len(flows):
            cause = f"partition {', '.join(map(str, idle[:5]))} of {query.source} gets no events, and holds it back"
            fix = 'let silent partitions go: .event_time(..., close_idle="1m"), or see why nothing comes there'
        else:
            cause = "events come, but none is newer in event time: a source repeats old data, or its clock stands still"
            fix = "look at the event-time column of the newest events, and at the clock of whoever sends them"
        yield Finding(
            e.pipeline.name,
            "stalled-watermark",
            evidence,
            cause,
            fix,
            f"headrace topics describe {query.source} --bootstrap {e.bootstrap}",
        )


def small_files(e: Evidence) -> Iterator[Finding]:
    """Many files with little in them."""
    for files in e.files:
        if files.count >= _MANY_FILES and files.bytes / files.count < _SMALL_BYTES:
            yield Finding(
                e.pipeline.name,
                "small-files",
                f"{files.folder} has {files.count:,} files of about {shown(files.bytes / files.count, Unit.BYTES)}",
                "every batch writes files of its own: short batches make many small ones, and reading them is slow",
                "longer batches, fewer partitions at the sink, and a compaction now and then",
                "headrace run MODULE:PIPELINE --mode microbatch --max-rows 5000000",
            )


def memory_pressure(e: Evidence) -> Iterator[Finding]:
    """A heap that is nearly full after collection, or a machine that has no memory left."""
    heap = e.last.get("heap_share")
    if heap is not None and heap > 0.85 and e.pipeline.heap is not None:
        used, most = e.pipeline.heap
        yield Finding(
            e.pipeline.name,
            "driver-memory",
            f"{heap:.0%} of the driver's heap is in use: {shown(used, Unit.BYTES)} of {shown(most, Unit.BYTES)}",
            "batches, or what a batch collects, are too large for the heap; it collects garbage instead of working",
            "smaller batches (--max-rows), or a larger spark.driver.memory",
            f"headrace run MODULE:PIPELINE --max-rows 100000 --bootstrap {e.bootstrap}",
        )
    for broker in e.broker_heaps:
        if broker.live > 0.85 * broker.most:
            yield Finding(
                e.pipeline.name,
                "broker-memory",
                f"after a collection the broker at {broker.bootstrap} has {shown(broker.live, Unit.BYTES)} in use "
                f"of {shown(broker.most, Unit.BYTES)}",
                "it has more topics, partitions, connections or requests under way than its heap is made for",
                "give it more memory, or fewer partitions; its data stays over a restart",
                "headrace broker stop && headrace broker start --heap 1g",
            )
    if e.memory_available is not None and e.memory_available < 0.05:
        yield Finding(
            e.pipeline.name,
            "machine-memory",
            f"{e.memory_available:.1%} of this machine's memory is available",
            "broker, driver and whatever else runs here need more than there is; the kernel will end one of them",
            "stop what is not needed, or move the broker to a machine of its own",
            "headrace broker status",
        )


RULES: tuple[Rule, ...] = (
    not_running,
    lag_growing,
    rebalancing,
    idle_consumers,
    duplicates,
    out_of_order,
    slow_checkpoints,
    schema_change,
    stalled_watermark,
    small_files,
    memory_pressure,
)


def _worst_topic(e: Evidence) -> tuple[str, int]:
    lag: Counter[str] = Counter()
    for b in e.behind:
        lag[b.topic] += b.lag or 0
    topic = lag.most_common(1)[0][0]
    return topic, len({b.partition for b in e.behind if b.topic == topic})


def _hot(e: Evidence) -> bool:
    return bool(e.hot_keys) and e.hot_keys[0][1] > 0.2
