"""Checks of topics: that Kafka takes their names, and that no record comes round again or is read twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.errors import Location, PipelineError
from headrace.pipeline.nodes import Node, Read, Side, SideOutput, SinkWrite, Write
from headrace.pipeline.plan import Plan, Problem, default_topic, nearest

TAKEN = {
    "__cluster_metadata": "Kafka itself",
    "__consumer_offsets": "Kafka itself",
    "__share_group_state": "Kafka itself",
    "__transaction_state": "Kafka itself",
    "_schemas": "the schema registry",
    "headrace.alarms": "Headrace itself",
    "headrace.progress": "Headrace itself",
}
"""The topics that other programs write, which keep state in them, and whose they are."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topics(plan: Plan) -> Iterator[Problem]:
    """What is wrong with the topics that a pipeline reads and writes."""
    yield from _check_names(plan)
    writes = plan.all(Write)
    if not writes and not plan.all(SinkWrite):
        why = "Without a .write(...) its results go nowhere."
        yield Problem(
            PipelineError, "the pipeline writes nothing.", plan.location, why, 'end a stream with .write("<topic>").'
        )
    yield from _check_read_once(plan)
    yield from _check_own_side_topics(plan)
    named = [write for write in writes if is_topic(write.topic) and is_topic(_source(write).topic)]
    flows = [(_source(write).topic, write.topic) for write in named]
    for write in named:
        source = _source(write).topic
        if source in _reachable(write.topic, flows):
            way = "the topic that it is read from" if write.topic == source else f"from which `{source}` is fed again"
            yield Problem(
                PipelineError,
                f'.write("{write.topic}") closes a loop: it writes to `{write.topic}`, {way}.',
                write.location,
                "Every event would come round again, for ever.",
                "write to another topic.",
            )


def _check_names(plan: Plan) -> Iterator[Problem]:
    for node in plan.nodes:
        if isinstance(node, Read | Write) and not is_topic(node.topic):
            yield Problem(
                PipelineError,
                f"topic name {node.topic!r} can't be used.",
                node.location,
                "Kafka does not accept it.",
                'use 1 to 249 letters, digits, ".", "_" and "-".',
            )
        elif isinstance(node, Write) and node.topic in TAKEN:
            yield Problem(
                PipelineError,
                f'.write("{node.topic}") writes to a topic of {TAKEN[node.topic]}.',
                node.location,
                "Its readers take every record there for one of their own.",
                "write to another topic.",
            )


def _check_read_once(plan: Plan) -> Iterator[Problem]:
    """Queries are named after the topic that they read, and a payload that is no row is to be one dead letter."""
    places: dict[str, list[Location]] = {}
    for read in plan.all(Read):
        # A read whose columns nobody knows has a problem of its own, or its contract is still to be looked up.
        if is_topic(read.topic) and read.schema.columns:
            places.setdefault(read.topic, []).append(read.location)
    for topic, locations in places.items():
        if len(locations) > 1:
            yield Problem(
                PipelineError,
                f"topic `{topic}` is read {len(locations)} times.",
                locations[1],
                "What is no row there would become a dead letter once for each read. "
                f"They are at {', '.join(str(location) for location in locations)}.",
                f'read it once, and use the stream more than once: rows = pipeline.read("{topic}", ...).',
            )


def _check_own_side_topics(plan: Plan) -> Iterator[Problem]:
    """What nobody routes goes to topics of the pipeline: it must neither feed on them nor mix results with them."""
    own = {default_topic(plan.name, side): side for side in Side if side is not Side.DUPLICATES}
    for node in plan.nodes:
        if not isinstance(node, Read | Write) or not is_topic(node.topic) or node.topic not in own:
            continue
        side = own[node.topic]
        rows = side.replace("_", " ") + (" events" if side is not Side.DEAD_LETTERS else "")
        why = f"It is where the {rows} of pipeline `{plan.name}` go if they are not written elsewhere."
        if isinstance(node, Read):
            yield Problem(
                PipelineError,
                f'.read("{node.topic}") reads a topic that the pipeline itself writes.',
                node.location,
                f"{why} What is wrong with a record there would bring it back there, for ever.",
                "read it in a second pipeline.",
            )
        elif (taken := nearest(node, SideOutput)) is None or taken.side is not side:
            yield Problem(
                PipelineError,
                f'.write("{node.topic}") mixes other rows with the {rows}.',
                node.location,
                f"{why} Its readers could not tell them apart.",
                "write to another topic.",
            )


def is_topic(topic: object) -> bool:
    """Whether Kafka takes it as the name of a topic.

    >>> is_topic("clicks"), is_topic("my clicks"), is_topic(["clicks"])
    (True, False, False)
    """
    return isinstance(topic, str) and _TOPIC.fullmatch(topic) is not None and topic not in (".", "..")


def _source(node: Node) -> Read:
    source = nearest(node, Read)
    assert source is not None, "every stream starts with a read"
    return source


def _reachable(topic: str, flows: list[tuple[str, str]]) -> set[str]:
    found, fresh = {topic}, {topic}
    while fresh:
        fresh = {sink for source, sink in flows if source in fresh} - found
        found |= fresh
    return found
