"""Checks of columns: that they exist, have the right type, and are not taken. They go as far as the schema is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.errors import BrokenContractError, PipelineError, UnknownColumnError, closest
from headrace.pipeline.columns import Reference, is_column, plain_name, references
from headrace.pipeline.ddl import struct_columns
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    Latest,
    Node,
    Read,
    Rolling,
    Select,
    SinkWrite,
    Where,
    Window,
    WindowAggregate,
    WithColumn,
    Write,
)
from headrace.pipeline.plan import Problem, Stateful, firing_schema, input_of, label, nearest, schema_of, upstream
from headrace.pipeline.rolling import InvalidAggregate, Last, accepts, is_numeric, is_unhashable
from headrace.pipeline.schema import Schema
from headrace.pipeline.windows import PANE_COLUMNS, WINDOW_COLUMNS

_RESERVED = ("_headrace", "__hr")


def check_columns(node: Node) -> Iterator[Problem]:
    """What is wrong with the columns that a node uses and makes."""
    yield from _check_made(node)
    yield from _check_repeated(node)
    yield from _check_expressions(node)
    if isinstance(node, Window):
        yield from _check_window(node)
    source = input_of(node)
    schema = None if source is None else schema_of(source)
    if schema is None:
        return
    match node:
        case EventTime():
            yield from _check_names(node, [node.column], schema)
            yield from _check_event_time(node, schema)
        case KeyBy() | Dedupe():
            yield from _check_names(node, node.columns, schema)
            yield from _check_hashable(node, node.columns, schema)
        case Rolling():
            yield from _check_rolling(node, schema)
        case Select():
            yield from _check_names(node, [name for name, value in node.columns if value is None], schema)
        case Write():
            yield from _check_names(node, node.key or (), schema)
            yield from _check_contract(node, schema)
        case SinkWrite():
            yield from _check_names(node, node.sink.key, schema)
    for expression in _expressions(node):
        yield from _check_references(node, expression, schema)
    if isinstance(node, Stateful):
        yield from _check_carried(node)


def _check_made(node: Node) -> Iterator[Problem]:
    """Names that a step gives to columns: not reserved, and not given twice."""
    names = [name for name in _made(node) if name]
    for name in names:
        if name.lower().startswith(_RESERVED):
            why = f"Names that start with {' or '.join(_RESERVED)} are for Headrace's own columns."
            yield Problem(PipelineError, f"column `{name}` has a reserved name.", node.location, why, "rename it.")
    if isinstance(node, Select | Rolling | Window):
        folded = [name.lower() for name in names]
        for name in dict.fromkeys(name for name in folded if folded.count(name) > 1):
            why = "Spark does not tell upper from lower case in column names."
            fix = "name each column once."
            yield Problem(PipelineError, f"{label(node)} gives column `{name}` twice.", node.location, why, fix)


def _check_repeated(node: Node) -> Iterator[Problem]:
    """Keys and ids: what is made of them can't have one column twice."""
    columns: tuple[str, ...] = ()
    match node:
        case KeyBy() | Dedupe():
            columns = node.columns
        case Write():
            columns = node.key or ()
        case SinkWrite():
            columns = node.sink.key
    folded = [name.lower() for name in columns]
    for name in dict.fromkeys(name for name in folded if folded.count(name) > 1):
        why = "Spark does not tell upper from lower case in column names."
        what = f"{label(node)} names column `{name}` twice."
        yield Problem(PipelineError, what, node.location, why, "name each column once.")


def _made(node: Node) -> tuple[str, ...]:
    match node:
        case Read():
            return node.schema.names
        case Apply() if node.schema is not None:
            return node.schema.names
        case Rolling() | Window():
            return tuple(name for name, _ in node.aggregates)
        case Select():
            return tuple(name for name, _ in node.columns)
        case WithColumn():
            return (node.name,)
    return ()


def _expressions(node: Node) -> list[object]:
    match node:
        case Where():
            return [node.condition]
        case WithColumn():
            return [node.value]
        case Select():
            return [value for _, value in node.columns if value is not None]
        case Window():
            return [value for _, value in node.aggregates]
    return []


def _is_expression(value: object) -> bool:
    return is_column(value) or (isinstance(value, str) and bool(value.strip()))


def _check_expressions(node: Node) -> Iterator[Problem]:
    if isinstance(node, Window):
        return  # its values are aggregates, which have checks of their own
    for value in _expressions(node):
        if _is_expression(value):
            continue
        fix = 'pass a Spark Column, like F.col("amount") > 5, or SQL text, like "amount > 5".'
        why = None
        if isinstance(value, bool):
            why = "Python has decided it already, before any row was seen."
            fix = 'combine Columns with & | ~ (not `and`, `or`, `not`), like (F.col("a") > 1) & (F.col("b") < 2).'
        elif not isinstance(node, Where) and value is not None:
            fix = f"for a constant, pass F.lit({value!r})."
        what = f"{label(node)} takes a Spark Column or SQL text, not {value!r}."
        yield Problem(PipelineError, what, node.location, why, fix)


def _check_names(node: Node, names: Iterable[str], schema: Schema) -> Iterator[Problem]:
    for name in names:
        if name and name not in schema:
            yield _unknown(node, name, schema)


def _check_references(node: Node, expression: object, schema: Schema) -> Iterator[Problem]:
    for reference in references(expression) or ():
        known = schema
        for depth, part in enumerate(reference.path):
            if part not in known and reference.may_be_function:
                break
            if part not in known:
                yield _unknown_field(node, reference, depth, known) if depth else _unknown(node, part, schema)
                break
            found = known[part]
            fields = struct_columns(found)
            if depth == len(reference.path) - 1 and found is not None:
                yield from _check_operand(node, reference, found)
            if fields is None:
                break  # the rest of the path is a key of a map, or of a value whose type is not known
            known = Schema(fields)


def _check_operand(node: Node, reference: Reference, found: str) -> Iterator[Problem]:
    """The functions of places and times (`hr.speed_kmh` is made of them) would fail in the middle of a run."""
    if reference.function == "radians" and not is_numeric(found):
        what = f"{label(node)} takes `{reference}` as an angle (a latitude or longitude), but it is {found}."
        yield Problem(PipelineError, what, node.location, "Angles are numbers, in degrees.", "declare it as DOUBLE.")
    if reference.function == "unix_micros" and found != "timestamp":
        what = f"{label(node)} takes `{reference}` as a time, but it is {found}."
        fix = "declare it as TIMESTAMP."
        if found == "bigint":
            fix = f'convert it before that step: .with_column("at", F.timestamp_millis("{reference.path[-1]}")).'
        yield Problem(PipelineError, what, node.location, "A speed needs TIMESTAMP columns.", fix)


def _check_event_time(node: EventTime, schema: Schema) -> Iterator[Problem]:
    found = schema.get(node.column)
    if found is None or found in ("timestamp", "bigint"):
        return
    fix = {
        "string": f"declare `{node.column}` as TIMESTAMP in the schema: JSON text in ISO format is read as such.",
        "timestamp_ntz": f"declare `{node.column}` as TIMESTAMP: without a time zone it is no point in time.",
        "int": f"declare `{node.column}` as BIGINT: epoch milliseconds do not fit an INT.",
    }.get(found, "choose a column of one of these types.")
    yield Problem(
        PipelineError,
        f"event-time column `{node.column}` is {found}.",
        node.location,
        "Event time is a TIMESTAMP, or a BIGINT of epoch milliseconds.",
        fix,
    )


def _check_hashable(node: KeyBy | Dedupe, names: Iterable[str], schema: Schema) -> Iterator[Problem]:
    for name in names:
        found = schema.get(name)
        if found is not None and is_unhashable(found):
            what = f"{label(node)} can't use column `{name}`, which is {found}."
            yield Problem(
                PipelineError, what, node.location, "Such values can't be compared.", "choose another column."
            )


def _check_rolling(node: Rolling, schema: Schema) -> Iterator[Problem]:
    for output, aggregate in node.aggregates:
        if output in schema:
            yield Problem(
                PipelineError,
                f"step `{node.name}` names a result `{output}`, but its input has that column already.",
                node.location,
                "The result would hide the column.",
                f"choose another name. Columns here: {', '.join(schema.names)}",
            )
        if isinstance(aggregate, Latest):
            yield from _check_names(node, aggregate.columns, schema)
            continue
        if aggregate.column is None:
            continue
        yield from _check_names(node, [aggregate.column], schema)
        found = schema.get(aggregate.column)
        if found is not None and not accepts(aggregate.function, found):
            kinds = "numbers" if aggregate.function in ("sum", "avg", "stddev") else "numbers, times, dates and strings"
            if aggregate.function == "approx_count_distinct":
                kinds = "anything but maps and variants"
            yield Problem(
                PipelineError,
                f"{label(node)}: `{output}` takes the {aggregate.function} of `{aggregate.column}`, which is {found}.",
                node.location,
                f"{aggregate.function} takes {kinds}.",
                "choose another column, or declare it with another type in the schema.",
            )


def _check_window(node: Window) -> Iterator[Problem]:
    key = nearest(node, KeyBy)
    keys = () if key is None else key.columns
    own = tuple(column.name for column in (*WINDOW_COLUMNS, *PANE_COLUMNS))
    for name in keys:
        if name.lower() in own:
            why = f"A window step adds that column itself. Its columns: {', '.join(own)}"
            fix = f'rename it before .key_by(...): .with_column("event_{name}", F.col("{name}")).'
            yield Problem(PipelineError, f"{label(node)} has the key `{name}`.", node.location, why, fix)
    taken = {name.lower() for name in (*keys, *own)}
    for name, value in node.aggregates:
        if name.lower() in taken:
            what = f"step `{node.name}` names a result `{name}`, but its rows have that column already."
            why = f"Besides the aggregates they have: {', '.join((*keys, *own))}"
            yield Problem(PipelineError, what, node.location, why, "choose another name.")
        yield from _check_aggregate(node, name, value)
    yield from _check_conditions(node)


def _check_aggregate(node: Window, name: str, value: object) -> Iterator[Problem]:
    fix = f'pass a Spark aggregate, like {name}=F.sum("amount"), or SQL text, like {name}="sum(amount)".'
    if isinstance(value, WindowAggregate | Latest | InvalidAggregate | Last):
        what = f"{label(node)}: `{name}` is an aggregate of .rolling(...), which has windows of its own."
        yield Problem(PipelineError, what, node.location, None, fix)
    elif not _is_expression(value):
        what = f"{label(node)}: `{name}` takes a Spark Column or SQL text, not {value!r}."
        yield Problem(PipelineError, what, node.location, None, fix)
    elif plain_name(value) is not None:
        column = plain_name(value)
        what = f"{label(node)}: `{name}` is the column `{column}`, not an aggregate."
        why = "A window has many rows, and so many values of it."
        fix = f'say which: {name}=F.max("{column}"), F.first("{column}") or another aggregate.'
        yield Problem(PipelineError, what, node.location, why, fix)


def _check_conditions(node: Window) -> Iterator[Problem]:
    """A trigger looks at what its window would give, not at events."""
    known = firing_schema(node)
    for condition in node.trigger.conditions():
        for reference in references(condition) or ():
            if reference.path[0] not in known and not reference.may_be_function:
                yield Problem(
                    UnknownColumnError,
                    f"{label(node)}: hr.when(...) uses column `{reference.path[0]}`, which its windows do not have.",
                    node.location,
                    "A trigger looks at the key, the bounds and the aggregates of a window.",
                    suggestion(reference.path[0], known.names, "Columns there"),
                )


def _check_contract(node: Write, schema: Schema) -> Iterator[Problem]:
    """Whether the columns are those of a contract whose schema is given. One that is not grows with its columns."""
    agreed = node.contract
    if agreed is None or agreed.schema is None:
        return
    if agreed.file is None and agreed.version is None and agreed.schema.kind == "AVRO":
        return
    known = agreed.columns() or Schema(())
    named = f"contract `{agreed.subject}`"
    for name in schema.names:
        if name not in known.names and agreed.schema.kind != "JSON":
            what = f"{label(node)} writes column `{name}`, which {named} does not have."
            fix = f"leave it out with .select(...), or add it to the schema. {suggestion(name, known.names, 'Fields')}"
            yield Problem(BrokenContractError, what, node.location, None, fix)
    for name in sorted(agreed.schema.required() - set(schema.names)):
        what = f"{label(node)} lacks column `{name}`, which {named} requires."
        fix = f"add it, or give the field a default. Columns here: {', '.join(schema.names)}"
        yield Problem(BrokenContractError, what, node.location, None, fix)


def _check_carried(node: Stateful) -> Iterator[Problem]:
    """The event time and the key must reach a step with state as they were declared."""
    event_time, key = nearest(node, EventTime), nearest(node, KeyBy)
    needed: list[tuple[str, str, Node]] = []
    if event_time is not None:
        needed.append((event_time.column, "event time", event_time))
    if key is not None:
        needed.extend((column, "key", key) for column in key.columns)
    for column, role, declared in needed:
        for between in upstream(node):
            if between is declared:
                break
            change = _change(between, column)
            if change is not None:
                yield Problem(
                    UnknownColumnError if change == "drops" else PipelineError,
                    f"{label(between)} {change} column `{column}`, which step `{node.name}` needs.",
                    between.location,
                    f"It was declared as {role} at {declared.location}.",
                    f"keep `{column}` until after the step."
                    if change == "drops"
                    else f"change it before it is made {role}.",
                )


def _change(node: Node, column: str) -> str | None:
    if isinstance(node, WithColumn) and node.name.lower() == column.lower():
        return "replaces"
    if isinstance(node, Select):
        values = {name.lower(): value for name, value in node.columns}
        if column.lower() not in values:
            return "drops"
        return None if values[column.lower()] is None else "replaces"
    return None


def _unknown(node: Node, name: str, schema: Schema) -> Problem:
    head, _, rest = name.partition(".")
    if rest and head in schema:
        what = f"{label(node)} takes `{name}` as the name of a column; it is a field of `{head}`."
        fix = f'make it a column first: .with_column("{rest.replace(".", "_")}", F.col("{name}")).'
        if isinstance(node, Select):
            fix = f'give it a name: .select({rest.replace(".", "_")}=F.col("{name}")).'
        return Problem(UnknownColumnError, what, node.location, None, fix)
    what = f"{label(node)} uses column `{name}`, which is not there."
    if isinstance(node, Select) and name.lower() in (made.lower() for made, value in node.columns if value is not None):
        why = "A select sees only the columns that come into it, not those that it makes."
        return Problem(UnknownColumnError, what, node.location, why, f'make it before: .with_column("{name}", ...).')
    return Problem(UnknownColumnError, what, node.location, None, suggestion(name, schema.names, "Columns here"))


def _unknown_field(node: Node, reference: Reference, depth: int, known: Schema) -> Problem:
    outer, missing = ".".join(reference.path[:depth]), reference.path[depth]
    what = f"{label(node)} uses `{reference}`, but `{outer}` has no field `{missing}`."
    return Problem(UnknownColumnError, what, node.location, None, suggestion(missing, known.names, "Fields there"))


def suggestion(name: str, names: Iterable[str], title: str) -> str:
    """What to write instead of a name that is not there.

    >>> suggestion("amuont", ["card_id", "amount"], "Columns here")
    'did you mean `amount`? Columns here: card_id, amount'
    """
    known = list(names)
    folded = {each.lower(): each for each in known}
    meant = closest(name.lower(), folded)
    hint = f"did you mean `{folded[meant]}`? " if meant else "use one that is there. "
    return f"{hint}{title}: {', '.join(known)}"
