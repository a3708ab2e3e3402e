"""From the rows that leave an operator to Kafka records: every branch of a query in one pass.

A Spark query has one sink, and running the operator once per branch would run its state twice. So the branches are
computed side by side as columns of one row, and the row is then turned into as many records as it has destinations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from headrace.engine import attempts, hidden, sql
from headrace.engine.expressions import check_condition, expressions_of, spelled, unknown_column
from headrace.engine.plan import Branch, QueryPlan, Route
from headrace.kernel import doorway
from headrace.pipeline.nodes import KeyBy, Node, Select, Where, WithColumn
from headrace.pipeline.windows import WindowKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.engine.contracts import Contracts

_SOURCE_TOPIC = "headrace-source-topic"
OBSERVED = "headrace"
TIMES = "headrace_times"
"""What a watermark strategy watches: the latest event time of each partition, and how late events come."""
COUNTED = {"late": Route.LATE, "duplicates": Route.DUPLICATE, "quarantined": Route.QUARANTINED}
"""What is counted where it leaves the operator."""
OBSERVED_LETTERS = "headrace_letters"
"""The count of dead letters, among the records: a row may become one last of all, in a step of an output."""


@dataclass(frozen=True)
class _Scope:
    """The columns that a stream's steps see, and where the one wide row holds each; whether a `where` keeps the row."""

    columns: dict[str, sql.Path]
    keep: sql.Path | None

    def find(self, name: str) -> sql.Path | None:
        """Where a column is, whose name may be in any case."""
        found = spelled(name, self.columns)
        return None if found is None else self.columns[found]

    def place(self, step: Node, name: str) -> sql.Path:
        """Where a column is that a step names. After an `.apply` it shows only here whether it is there."""
        found = self.find(name)
        if found is None:
            raise unknown_column(step, name, list(self.columns))
        return found


class _WideRow:
    """The one row that holds the columns of all branches. Steps that branches share are computed once."""

    def __init__(self, df: DataFrame, visible: dict[Route, list[str]], results: dict[str, str] | None) -> None:
        names = [c for c in df.columns if not c.startswith("__hr_")]
        inner = {c: f"__hr_c{i}" for i, c in enumerate(names)}
        renamed = (f"{sql.name(c)} AS {inner[c]}" for c in names)
        carried = [c for c in df.columns if c.startswith("__hr_")]
        self.df = doorway.select(df, [*renamed, *map(sql.name, carried)])
        self._columns = [*inner.values(), *carried]
        self._visible: dict[Route, dict[str, sql.Path]] = {
            route: {c: (inner[c],) for c in columns} for route, columns in visible.items()
        }
        if results is not None:
            self._visible[Route.RESULT] = {name: (c,) for name, c in results.items()}
        self.results = self._visible[Route.RESULT]
        self._made = 0
        self._failures: list[str] = []
        self._scopes: dict[Node, _Scope] = {}

    def scope(self, branch: Branch) -> _Scope:
        """The scope at the end of the branch's steps, computing what is not there yet."""
        scope = _Scope(self._visible[branch.route], None)
        for step in branch.steps:
            if step not in self._scopes:
                with expressions_of(step, scope):
                    self._scopes[step] = self._apply(step, scope, branch.route)
            scope = self._scopes[step]
        if branch.write is not None:
            for name in branch.write.key or ():
                scope.place(branch.write, name)
        return scope

    def _apply(self, step: Node, scope: _Scope, route: Route) -> _Scope:
        match step:
            case Where():
                kept = self._add(step, {"keep": step.condition}, scope, route)["keep"]
                check_condition(step, _type(self.df.schema, kept))
                return _Scope(scope.columns, kept)
            case WithColumn():
                return _Scope(scope.columns | self._add(step, {step.name: step.value}, scope, route), scope.keep)
            case Select():
                names = {name: scope.place(step, name) for name, value in step.columns if value is None}
                values = {name: value for name, value in step.columns if value is not None}
                made = self._add(step, values, scope, route) if values else {}
                return _Scope({name: (names | made)[name] for name, _ in step.columns}, scope.keep)
            case KeyBy():
                return scope
            case _:
                raise AssertionError(f"no stateless step: {step}")

    def encode(self, scope: _Scope, branch: Branch, contracts: Contracts | None) -> str:
        """The payloads of a branch under its contract, in a column of their own: they are computed once."""
        assert contracts is not None
        assert branch.write is not None
        row = F.expr(_row(scope.columns))
        name = f"__hr_e{self._made}"
        self._made += 1
        encoded = contracts.encode(self.df, row, branch.write)
        self.df = self.df.withColumn(name, F.when(F.expr(_alive(scope, branch.route)), encoded))
        self._columns.append(name)
        return name

    def _add(self, step: Node, values: dict[str, object], scope: _Scope, route: Route) -> dict[str, sql.Path]:
        named = (f"{sql.path(inner)} AS {sql.name(name)}" for name, inner in scope.columns.items())
        exposed = doorway.select(self.df, ["*", *named])
        tried = f"__hr_t{self._made}"
        self._made += 1
        # A value is computed only for rows of its own stream: elsewhere it might fail, as 1 / x on rows that `where`
        # took out.
        made = attempts.attempt(exposed, step, values, F.expr(_alive(scope, route))).alias(tried)
        self.df = doorway.select(exposed, list(map(sql.name, self._columns)), [made])
        self._columns.append(tried)
        self._failures.append(attempts.failure(tried))
        return {name: attempts.value(tried, name) for name in values}

    def settle(self) -> str | None:
        """From here on rows on which a step failed are dead letters, and nothing else. Why it failed, as SQL."""
        if not self._failures:
            return None
        failure = f"coalesce({', '.join(self._failures)})" if len(self._failures) > 1 else self._failures[0]
        values = {
            hidden.ROUTE: sql.case([(f"{failure} IS NOT NULL", str(Route.DEAD_LETTER.value))], hidden.ROUTE),
            hidden.REASON: f"coalesce({failure}, {hidden.REASON})",
        }
        kept = (f"{values[c]} AS {c}" if c in values else sql.name(c) for c in self._columns)
        self.df = doorway.select(self.df, list(kept))
        return failure


def to_records(
    rows: DataFrame, query: QueryPlan, input_columns: list[str], contracts: Contracts | None = None
) -> tuple[DataFrame, dict[str, StructType]]:
    """Records for the Kafka sink (topic, key, value, headers), and by topic the columns of what is written to it.

    `input_columns` are the user's columns as they went into the operator, which is what side rows still have.
    """
    results = [c for c in rows.columns if not c.startswith("__hr_")]
    windowed = [c for c in rows.columns if c.startswith(hidden.WINDOW) and c != hidden.ARRIVED]
    own = {c.removeprefix(hidden.WINDOW): c for c in windowed} or None
    wide = _WideRow(rows, {r: results if r is Route.RESULT else input_columns for r in Route}, own)
    scopes = [(branch, wide.scope(branch)) for branch in query.branches]
    failure = wide.settle()
    encoded = {branch: wide.encode(scope, branch, contracts) for branch, scope in scopes if branch.contract is not None}
    counted = wide.df
    if query.takes_quarantined and not query.stateful:
        # No operator counts them. Spark copies each row that is counted, so nothing is counted here without need.
        counted = counted.observe(
            OBSERVED, F.count_if(F.col(hidden.ROUTE) == Route.QUARANTINED.value).alias("quarantined")
        )
    # Rows of other routes have no pane: they are events.
    is_result = sql.name(f"{hidden.WINDOW}pane_index") + " IS NOT NULL"
    failed = f"{failure} IS NOT NULL AND {is_result}" if failure is not None and _has_panes(query) else None
    windows = _Results(_row(wide.results), failed)
    per_route: dict[Route, list[tuple[str, tuple[str, ...]]]] = {}
    for branch, scope in scopes:
        record = _record(branch, scope, query, windows)
        if branch in encoded:
            record = _under_contract(record, encoded[branch], query)
        per_route.setdefault(branch.route, []).append((_alive(scope, branch.route), record))
    # Routes exclude each other, so their branches share slots: a row has as many slots as one route has branches.
    slots = []
    for i in range(max(len(branches) for branches in per_route.values())):
        cases = [branches[i] for branches in per_route.values() if i < len(branches)]
        slots.append([sql.case([(condition, record[field]) for condition, record in cases]) for field in range(4)])
    outputs = {branch.topic: _written(counted.schema, scope) for branch, scope in scopes}
    records = doorway.expand(counted, slots)
    if query.dead_letter_topic is not None:
        records = records.observe(OBSERVED_LETTERS, F.expr(_letters(query.dead_letter_topic)).alias("dead_letters"))
    return records, outputs


def _written(wide: StructType, scope: _Scope) -> StructType:
    return StructType([StructField(name, _type(wide, inner)) for name, inner in scope.columns.items()])


def _type(wide: StructType, path: sql.Path) -> DataType:
    found: DataType = wide
    for part in path:
        assert isinstance(found, StructType)
        found = found[part].dataType
    return found


# From here on in SQL: one call into the JVM for all of it, where each function of a Column is some calls.


def _alive(scope: _Scope, route: Route) -> str:
    """Whether a row belongs to the stream."""
    on_route = f"{hidden.ROUTE} = {route.value}"
    return on_route if scope.keep is None else f"{on_route} AND coalesce({sql.path(scope.keep)}, false)"


def _letters(topic: str) -> str:
    """The number of records that are dead letters. Others may go to the same topic."""
    source = f"exists(headers, header -> header.key = {sql.text(_SOURCE_TOPIC)})"
    return f"count_if(topic = {sql.text(topic)} AND {source})"


@dataclass(frozen=True)
class _Results:
    """As SQL, what the windows of a query give: one of its rows; and whether it is one on which a step failed."""

    row: str
    failed: str | None


def _record(branch: Branch, scope: _Scope, query: QueryPlan, results: _Results) -> tuple[str, ...]:
    """Topic, key, value and headers of the branch's record."""
    row = f"{doorway.TO_JSON}({_row(scope.columns)})"
    if branch.route is Route.DEAD_LETTER:
        # A payload that was no row has its original bytes; a row that failed later is what it was parsed to.
        empty = f"coalesce({hidden.INTAKE_REASON} = {sql.text(hidden.NO_PAYLOAD)}, false)"
        cases = [] if results.failed is None else [(results.failed, f"{doorway.TO_JSON}({results.row})")]
        value = sql.case([*cases, (f"NOT {empty}", f"coalesce({hidden.RAW}, {row})")])
        key = hidden.RECORD_KEY
    else:
        value, key = row, _key(branch, scope, query)
    return sql.text(branch.topic), key, value, _headers(branch, query, results)


def _under_contract(record: tuple[str, ...], encoded: str, query: QueryPlan) -> tuple[str, ...]:
    """The record with its payload encoded; as a dead letter, in JSON, if the row does not fit the contract."""
    topic, key, row, headers = record
    fits = f"{encoded}.reason IS NULL"
    box = "CAST(NULL AS STRING)" if query.dead_letter_topic is None else sql.text(query.dead_letter_topic)
    reason = sql.header("headrace-reason", sql.text_bytes(f"{encoded}.reason"))
    more = f"array({', '.join((reason, *_source_headers(query)))})"
    return (
        sql.case([(fits, topic)], box),
        key,
        sql.case([(fits, f"{encoded}.value")], row),
        sql.case([(fits, headers)], f"concat({headers}, {more})"),
    )


def _row(columns: dict[str, sql.Path]) -> str:
    """A struct of the columns that the one wide row holds under other names."""
    return sql.struct({name: sql.path(inner) for name, inner in columns.items()})


def _key(branch: Branch, scope: _Scope, query: QueryPlan) -> str:
    places = {name: scope.find(name) for name in branch.key or query.key}
    found = {name: place for name, place in places.items() if place is not None}
    if not found or len(found) < len(places):
        return hidden.RECORD_KEY
    if len(found) == 1:
        return sql.text_bytes(sql.path(*found.values()))
    return f"CAST(to_json({_row(found)}) AS BINARY)"


def _pane(query: QueryPlan, result: str) -> list[str]:
    """The identity of a window's result: the step, the key, the window, which of its results, and what it says.

    Real time fires after each event, batches once for all of theirs. So after a crash another result may come as the
    first of its window: it must not be taken for a repetition of the one before.
    """

    def of(name: str) -> str:
        return sql.name(f"{hidden.WINDOW}{name}")

    key = f"to_json({sql.struct({c: of(c) for c in query.key})})" if query.key else "''"
    content = f"lower(hex(xxhash64({doorway.TO_JSON}({result}))))"
    bounds = (f"unix_millis({of('window_start')})", f"unix_millis({of('window_end')})")
    step = (sql.text(query.read.topic), sql.text(query.step))
    return [*step, key, *bounds, of("pane_index"), of("row_kind"), content]


def _place(*parts: str) -> str:
    """Texts and whole numbers as the bytes of a path."""
    return f"{doorway.PLACE}({', '.join(parts)})"


def _source_headers(query: QueryPlan) -> list[str]:
    return [
        sql.header(_SOURCE_TOPIC, _place(sql.text(query.read.topic))),
        sql.header("headrace-source-partition", _place(hidden.PARTITION)),
        sql.header("headrace-source-offset", _place(hidden.OFFSET)),
    ]


def _nth_write(branch: Branch, query: QueryPlan) -> list[str]:
    """What tells the records of one row apart, if it is written to one topic more than once."""
    same = [b for b in query.branches if (b.route, b.topic) == (branch.route, branch.topic)]
    nth = same.index(branch)
    return [sql.text(f"write-{nth + 1}")] if nth else []


def _has_panes(query: QueryPlan) -> bool:
    """Whether its results are those of windows, not of events."""
    return query.window is not None and query.window.windowing.kind is not WindowKind.SLIDING


def _headers(branch: Branch, query: QueryPlan, results: _Results) -> str:
    nth = _nth_write(branch, query)
    if _has_panes(query) and branch.route is Route.RESULT:
        identity, caused = _place(*_pane(query, results.row), *nth), hidden.ARRIVED
    else:
        place = (sql.text(query.read.topic), hidden.PARTITION, hidden.OFFSET, sql.text(query.step))
        identity, caused = _place(*place, *nth), hidden.TIMESTAMP
        if results.failed is not None and branch.route is Route.DEAD_LETTER:
            identity = sql.case([(results.failed, _place(*_pane(query, results.row)))], identity)
            caused = sql.case([(results.failed, hidden.ARRIVED)], caused)
    headers = [sql.header("headrace-id", identity), sql.header("headrace-source-timestamp", _place(caused))]
    reason = f"coalesce({hidden.REASON}, {hidden.INTAKE_REASON}, '')"
    line = sql.text("\n")
    if branch.route is not Route.RESULT:
        # What comes after the first line is the stack.
        headers.append(sql.header("headrace-reason", sql.text_bytes(f"substring_index({reason}, {line}, 1)")))
    if branch.route is Route.DEAD_LETTER:
        headers += _source_headers(query)
        first_line = sql.text(r"^[^\n]*\n")
        stack = sql.header("headrace-stack", sql.text_bytes(f"regexp_replace({reason}, {first_line}, '')"))
        all_of = ", ".join(headers)
        return f"CASE WHEN contains({reason}, {line}) THEN array({all_of}, {stack}) ELSE array({all_of}) END"
    return f"array({', '.join(headers)})"
