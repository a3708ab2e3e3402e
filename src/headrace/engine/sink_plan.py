"""From the sinks of a pipeline to the queries that feed them. No Spark here: `explain` and all checks need no JVM.

A store is fed from a topic. A stream that is no more than its source, read and reshaped row by row, is fed from that
source. Any other is fed from the topic that it is written to, if it is; else from an internal topic of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.pipeline import Pipeline
from headrace.pipeline.delivery import Delivery
from headrace.pipeline.nodes import Apply, EventTime, KeyBy, Node, Read, Select, SinkWrite, Where, WithColumn, Write
from headrace.pipeline.plan import nearest, schema_of, upstream
from headrace.pipeline.schema import Schema
from headrace.pipeline.sink import Guarantee, Sink


@dataclass(frozen=True)
class SinkPlan:
    """One query that feeds one store."""

    name: str
    topic: str
    read: Read | None
    """The source that it reads itself; None for a topic that the pipeline writes."""
    steps: tuple[Node, ...]
    """What is done to the source's rows on the way."""
    sink: Sink
    columns: Schema | None
    """The stream's columns, as far as they are known."""
    write: SinkWrite

    @property
    def ids_from_headers(self) -> bool:
        """Whether a row's id is its `headrace-id`, the same whenever the pipeline writes it again.

        A function given to `.apply` may make many rows of one event, with one id: those are told apart by their place.
        In a source that anybody may write to, only the place can be relied on.
        """
        return self.read is None and nearest(self.write, Apply) is None

    @property
    def repeats(self) -> bool:
        """Whether the topic may have a row more than once: what real time writes after a crash it writes again."""
        return self.read is None

    def guarantee(self, *, realtime: bool) -> Guarantee:
        """What holds while the pipeline runs in real time, or not."""
        return self.sink.guarantee(repeats=realtime and self.repeats, ids=self.ids_from_headers)

    @property
    def internal(self) -> bool:
        """Whether the topic is there only for this sink."""
        return self.read is None and self.topic.endswith(_SUFFIX)


_SUFFIX = ".sink"


def plan_sinks(pipeline: Pipeline) -> tuple[SinkPlan, ...]:
    """The queries that feed the pipeline's stores.

    >>> import headrace as hr
    >>> p = hr.Pipeline("clicks")
    >>> p.read("in", schema="id string").where("id is not null").write(hr.sinks.console())
    >>> [(q.name, q.topic) for q in plan_sinks(p)]
    [('clicks-to-console', 'in')]
    """
    topics = _topics(pipeline)
    plans = []
    for write in pipeline.sink_writes:
        path = [write.input, *upstream(write.input)][::-1]
        direct = is_direct(write)
        read = path[0] if direct else None
        assert read is None or isinstance(read, Read)
        plans.append(
            SinkPlan(
                f"{pipeline.name}-to-{write.sink.name}",
                topics[write] if read is None else read.topic,
                read,
                tuple(path[1:]) if direct else (),
                write.sink,
                schema_of(write.input),
                write,
            )
        )
    return tuple(plans)


def internal_writes(pipeline: Pipeline, *, always: bool = False) -> tuple[Write, ...]:
    """The writes to topics that sinks need and the user did not declare; `always`: also where a source would do."""
    topics = _topics(pipeline, always=always)
    declared = {write.topic for write in pipeline.writes}
    made: dict[str, Write] = {}
    for write, topic in topics.items():
        if topic not in declared and topic not in made:
            made[topic] = Write(write.input, topic, write.sink.key or None, location=write.location)
    return tuple(made.values())


def sink_topics(pipeline: Pipeline) -> dict[str, str]:
    """By the name of each sink, the topic that has its rows where every stream into a store comes out as a topic."""
    return {write.sink.name: topic for write, topic in _topics(pipeline, always=True).items()}


def is_direct(write: SinkWrite) -> bool:
    """Whether the sink reads the source itself: nothing on the way keeps state, or sends rows elsewhere."""
    return all(
        isinstance(node, Read | Where | Select | WithColumn | KeyBy)
        or (isinstance(node, EventTime) and node.max_skew_ms is None)
        for node in (write.input, *upstream(write.input))
    )


def _topics(pipeline: Pipeline, *, always: bool = False) -> dict[SinkWrite, str]:
    """The topic of each sink that has one of the pipeline's own."""
    topics: dict[SinkWrite, str] = {}
    for write in pipeline.sink_writes:
        if is_direct(write) and not always:
            continue
        declared = next((w.topic for w in pipeline.writes if _serves(w, write, pipeline)), None)
        # Sinks of one stream share a topic, if one order of rows serves them all.
        shared = next((t for w, t in topics.items() if w.input is write.input and w.sink.key == write.sink.key), None)
        topics[write] = declared or shared or f"{pipeline.name}.{write.sink.name}{_SUFFIX}"
    return topics


def _serves(topic: Write, sink: SinkWrite, pipeline: Pipeline) -> bool:
    """Whether the topic has this stream as JSON, no other, and the rows of a sink's key in their order.

    They are in order if the topic's key is a part of the sink's.
    """
    alone = [w.topic for w in pipeline.writes].count(topic.topic) == 1
    keyed = nearest(topic, KeyBy)
    key = topic.key or (() if keyed is None else keyed.columns)
    own = topic.input is sink.input and topic.contract is None and topic.delivery in (None, Delivery.EXACTLY_ONCE)
    return own and alone and (not sink.sink.key or set(key) <= set(sink.sink.key))
