"""What queries are called. A query's folder in the checkpoint, its writer and the ids of its results carry the name: a
name that changes makes the query begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.engine.anchors import has_apply
from headrace.errors import DuplicateStepError, InvalidPipelineError, Location
from headrace.pipeline.nodes import Apply, Node, Read
from headrace.pipeline.plan import Stateful

Group = tuple[Read, Node | None]
"""What a query is made of: a read, and the step that the query is built around, if there is one."""


def query_names(pipeline: str, groups: Sequence[Group], nodes: Sequence[Node]) -> dict[Group, str]:
    """The names of the queries of a pipeline that has these nodes, in the order in which they were declared.

    - A query with state is named after its step, whatever else the pipeline does.
    - The only one with neither state nor a function is named after the pipeline; of several, each after its topic.
    - What the user gives no name is counted, per topic and kind: never by its line, which any edit moves.
    """
    names: dict[Group, str] = {}
    places = {node: place for place, node in enumerate(nodes)}
    plain = [(read, anchor) for read, anchor in groups if not isinstance(anchor, Stateful) and not has_apply(anchor)]
    counts: dict[str, int] = {}
    for read, anchor in sorted(groups, key=lambda group: places[group[1] or group[0]]):
        if isinstance(anchor, Stateful):
            names[read, anchor] = f"{pipeline}-{anchor.name}"
        elif plain == [(read, anchor)]:
            names[read, anchor] = pipeline
        elif anchor is None:
            names[read, anchor] = f"{pipeline}-{read.topic}"
        else:
            name = f"{pipeline}-{'apply' if isinstance(anchor, Apply) else 'timed'}-{read.topic}"
            counts[name] = counts.get(name, 0) + 1
            names[read, anchor] = name if counts[name] == 1 else f"{name}-{counts[name]}"
    return names


def check_names(pipeline: str, places: Iterable[tuple[str, Location]], known: Mapping[str, Location]) -> None:
    """Refuse two queries of one name, all such pairs at once; `known` are those of the sinks."""
    taken = dict(known)
    problems = []
    for name, location in places:
        if name in taken:
            problems.append(
                DuplicateStepError(
                    f"two queries would be called `{name}`.",
                    why="A query's name is the identity of its checkpoint and of what it writes.\n"
                    f"They come from {taken[name]} and {location}.",
                    fix="give the step or the sink that the name comes from another one;\n"
                    "if it comes from two topics, read one of them in a second pipeline.",
                    location=location,
                    pipeline=pipeline,
                )
            )
        taken[name] = location
    if problems:
        raise InvalidPipelineError(pipeline, problems)
