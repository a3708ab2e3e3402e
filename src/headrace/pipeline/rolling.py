"""The aggregates of `.rolling(...)`: functions over the last while of event time, and earlier events as they were."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import InvalidDurationError, PipelineError
from headrace.pipeline.ddl import struct_type
from headrace.pipeline.durations import Duration, parse_duration
from headrace.pipeline.location import caller_location
from headrace.pipeline.nodes import Latest, WindowAggregate
from headrace.pipeline.schema import Column, Schema

_INTEGRAL = frozenset({"tinyint", "smallint", "int", "bigint"})
_FRACTIONAL = frozenset({"float", "double"})
_ORDERED = frozenset({"timestamp", "timestamp_ntz", "date", "string"})
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_UNHASHABLE = re.compile(r"(?:^|[<,:])(?:map<|variant(?=$|[>, ]))")  # as a type at any depth, not as a field's name
_FURTHEST_BACK = 1000
_STAND_IN = WindowAggregate("count", None, 1)


@dataclass(frozen=True)
class InvalidAggregate:
    """An aggregate that can't be read. Its problem is reported with those of the pipeline that uses it; `stand_in`
    takes its place meanwhile, so that the rest is checked too.
    """

    problem: PipelineError
    stand_in: WindowAggregate | Latest = _STAND_IN


Aggregate = WindowAggregate | Latest | InvalidAggregate


class Last:
    """The rows of the last while: those with an event time in (t - window, t] for an event at t. See `last`."""

    def __init__(self, window: Duration) -> None:
        self._window = window
        self._window_ms = 1
        self._problem: PipelineError | None = None
        try:
            self._window_ms = parse_duration(window)
        except InvalidDurationError as problem:
            self._problem = _located(problem, f"last({window!r}): ")

    def count(self, column: str | None = None) -> Aggregate:
        """The number of rows, or of rows in which `column` is not null.

        >>> last("1m").count()
        WindowAggregate(function='count', column=None, window_ms=60000)
        """
        return self._aggregate("count", column)

    def sum(self, column: str) -> Aggregate:
        """The sum of a numeric column.

        >>> last("10m").sum("amount")
        WindowAggregate(function='sum', column='amount', window_ms=600000)
        """
        return self._aggregate("sum", column)

    def avg(self, column: str) -> Aggregate:
        """The mean of a numeric column, as a double (for decimals too).

        >>> last("10m").avg("amount").function
        'avg'
        """
        return self._aggregate("avg", column)

    def min(self, column: str) -> Aggregate:
        """The least value of a column of numbers, times, dates or strings.

        >>> last("1h").min("amount").function
        'min'
        """
        return self._aggregate("min", column)

    def max(self, column: str) -> Aggregate:
        """The greatest value of a column of numbers, times, dates or strings.

        >>> last("1h").max("amount").function
        'max'
        """
        return self._aggregate("max", column)

    def stddev(self, column: str) -> Aggregate:
        """The sample standard deviation of a numeric column.

        >>> last("1h").stddev("amount").function
        'stddev'
        """
        return self._aggregate("stddev", column)

    def approx_count_distinct(self, column: str) -> Aggregate:
        """About how many different values a column has.

        >>> last("1d").approx_count_distinct("merchant").function
        'approx_count_distinct'
        """
        return self._aggregate("approx_count_distinct", column)

    def __repr__(self) -> str:
        return f"hr.last({self._window!r})"

    def _aggregate(self, function: str, column: str | None) -> Aggregate:
        if function == "count" and column == "*":
            problem = PipelineError("count() takes the name of a column, not '*'.", fix="leave it out: .count().")
            return InvalidAggregate(_located(problem))
        if not _is_name(column) and not (function == "count" and column is None):
            return InvalidAggregate(_not_a_name(column))
        aggregate = WindowAggregate(function, column, self._window_ms)
        return aggregate if self._problem is None else InvalidAggregate(self._problem, aggregate)


def last(window: Duration) -> Last:
    """The rows of the last while before each event, the event included, to aggregate in `.rolling(...)`.

    >>> last("1m").count()
    WindowAggregate(function='count', column=None, window_ms=60000)
    """
    return Last(window)


def latest(*columns: str, back: int = 1, within: Duration | None = None) -> Aggregate:
    """Columns of an earlier event of the same key, by event time, as a struct; null if there is none.

    `back=1` is the event before this one, `back=0` the event itself. `within` bounds how old it may be; without it that
    is the longest window of the step. A longer one is cheap: beyond the windows only the last `back` events are kept.

    >>> latest("lat", "lon", back=1, within="1h")
    Latest(columns=('lat', 'lon'), back=1, within_ms=3600000)
    """
    if not columns:
        problem = PipelineError("latest() names no column.", fix='name what to keep: latest("lat", "lon").')
        return InvalidAggregate(_located(problem))
    for column in columns:
        if not _is_name(column):
            problem = PipelineError(
                f"latest() takes names of columns, not {column!r}.",
                fix='pass each by itself, like hr.latest("lat", "lon");\n'
                "make an expression a column first: .with_column(...).",
            )
            return InvalidAggregate(_located(problem))
    distinct = {column.lower(): column for column in columns}
    if len(distinct) < len(columns):
        problem = PipelineError(
            f"latest({', '.join(map(repr, columns))}) names a column twice.",
            why="Spark does not tell upper from lower case in column names.",
            fix="name each column once.",
        )
        return InvalidAggregate(_located(problem), Latest(tuple(distinct.values()), 1, 1))
    if not isinstance(back, int) or isinstance(back, bool) or not 0 <= back <= _FURTHEST_BACK:
        problem = PipelineError(
            f"latest(..., back={back!r}) is not possible.",
            why="It counts events backwards: 1 is the one before this one, 0 this one itself.",
            fix=f"pass a whole number from 0 to {_FURTHEST_BACK}.",
        )
        return InvalidAggregate(_located(problem), Latest(columns, 1, 1))
    try:
        within_ms = None if within is None else parse_duration(within)
    except InvalidDurationError as invalid:
        return InvalidAggregate(_located(invalid, f"latest(..., within={within!r}): "), Latest(columns, back, 1))
    return Latest(columns, back, within_ms)


def output_type(aggregate: WindowAggregate | Latest, schema: Schema) -> str | None:
    """The Spark type of an aggregate's result; None if the type of what it aggregates is not known.

    >>> from headrace.pipeline.schema import as_schema
    >>> output_type(last("1m").sum("amount"), as_schema("amount DECIMAL(10,2)"))
    'decimal(20,2)'
    """
    if isinstance(aggregate, Latest):
        fields = [Column(name, schema.get(name)) for name in aggregate.columns]
        return None if any(field.type is None for field in fields) else struct_type(fields)
    match aggregate.function:
        case "count" | "approx_count_distinct":
            return "bigint"
        case "avg" | "stddev":
            return "double"
        case "min" | "max":
            return schema.get(aggregate.column or "")
        case _:
            return _sum_type(schema.get(aggregate.column or ""))


def accepts(function: str, type: str) -> bool:
    """Whether an aggregate function can take a column of that type.

    >>> accepts("sum", "string"), accepts("max", "string")
    (False, True)
    """
    match function:
        case "sum" | "avg" | "stddev":
            return is_numeric(type)
        case "min" | "max":
            return is_numeric(type) or type in _ORDERED
        case "approx_count_distinct":
            return not is_unhashable(type)
        case _:
            return True


def is_numeric(type: str) -> bool:
    """Whether Spark can calculate with values of that type."""
    return type in _INTEGRAL or type in _FRACTIONAL or _DECIMAL.fullmatch(type) is not None


def is_unhashable(type: str) -> bool:
    """Whether Spark can't compare or hash values of that type: it can't be a key, nor be counted by value."""
    return _UNHASHABLE.search(type) is not None


def _sum_type(type: str | None) -> str | None:
    if type in _INTEGRAL:
        return "bigint"
    if type in _FRACTIONAL:
        return "double"
    found = _DECIMAL.fullmatch(type or "")
    # Spark's own rule: ten digits of headroom.
    return f"decimal({min(int(found[1]) + 10, 38)},{found[2]})" if found else None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _not_a_name(value: object) -> PipelineError:
    problem = PipelineError(
        f"an aggregate takes the name of a column, not {value!r}.",
        fix='pass a name, like hr.last("1m").sum("amount"); make an expression a column first: .with_column(...).',
    )
    return _located(problem)


def _located(problem: PipelineError, prefix: str = "") -> PipelineError:
    return type(problem)(prefix + problem.what, why=problem.why, fix=problem.fix, location=caller_location())
