"""The topics of a run: those that it reads must be there, those that it writes are made."""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.plan import QueryPlan
from headrace.engine.settings import OUTPUT_TOPIC
from headrace.engine.sink_queries import SinkQueries
from headrace.log.topics import Topics


def source_partitions(bootstrap: str, plans: tuple[QueryPlan, ...], sinks: SinkQueries) -> dict[str, int]:
    """The number of partitions of each topic that is read; one that is not there is an error."""
    return Topics(bootstrap).partitions(*dict.fromkeys((*(q.read.topic for q in plans), *sinks.sources)))


def make_outputs(
    bootstrap: str,
    plans: tuple[QueryPlan, ...],
    sinks: SinkQueries,
    partitions: dict[str, int],
    report: Callable[[str], None],
) -> None:
    """Make the topics that are written and not there yet."""
    topics = Topics(bootstrap)
    for query in plans:
        # An output is partitioned as its source is, so that a key's order holds from end to end.
        count = partitions[query.read.topic]
        for created in topics.ensure(*query.output_topics, partitions=count, config=OUTPUT_TOPIC):
            report(f"created topic {created} ({count} partitions)")
    topics.ensure(*sinks.dead_letters, config=OUTPUT_TOPIC)
