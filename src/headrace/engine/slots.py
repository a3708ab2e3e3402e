"""How many tasks a run has at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.engine.control import needs_control
from headrace.engine.plan import QueryPlan


def task_slots(
    plans: Iterable[QueryPlan], sinks: Iterable[str], partitions: Mapping[str, int], state_partitions: int
) -> int:
    """Real-time mode runs all tasks of all queries at once: one for each partition that is read and each state store.

    So do the queries of sinks, given by the topics that they read: their tasks would else wait for slots that real time
    never gives back.
    """

    def tasks(query: QueryPlan) -> int:
        shuffled = needs_control(query) + bool(query.stateful)
        return partitions[query.read.topic] + shuffled * state_partitions

    return sum(map(tasks, plans)) + sum(partitions.get(topic, 1) for topic in sinks)
