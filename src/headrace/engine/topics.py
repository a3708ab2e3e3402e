"""The topics of a run: those that it reads must be there, those that it writes are made."""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.plan import QueryPlan
from headrace.engine.settings import OUTPUT_TOPIC
from headrace.engine.sink_queries import SinkQueries
from headrace.log.topics import Topics


def prepare_topics(
    bootstrap: str, plans: tuple[QueryPlan, ...], sinks: SinkQueries, report: Callable[[str], None]
) -> dict[str, int]:
    """Check and make them; gives the number of partitions of those that are read."""
    topics = Topics(bootstrap)
    sources = list(dict.fromkeys((*(q.read.topic for q in plans), *sinks.sources)))
    partitions = topics.partitions(*sources)
    for query in plans:
        # An output is partitioned as its source is, so that a key's order holds from end to end.
        count = partitions[query.read.topic]
        for created in topics.ensure(*query.output_topics, partitions=count, config=OUTPUT_TOPIC):
            report(f"created topic {created} ({count} partitions)")
    topics.ensure(*sinks.dead_letters)
    return partitions
