"""A stream: what a user builds a pipeline from. Every method gives a new stream; building runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.errors import InvalidDurationError, InvalidSchemaError, PipelineError
from headrace.pipeline.columns import plain_name
from headrace.pipeline.durations import Duration, parse_duration
from headrace.pipeline.location import caller_location
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    Latest,
    Node,
    Rolling,
    Select,
    Side,
    Where,
    WindowAggregate,
    WithColumn,
    Write,
)
from headrace.pipeline.plan import Plan, Problem, schema_of
from headrace.pipeline.rolling import Aggregate, InvalidAggregate
from headrace.pipeline.schema import Schema, as_schema

# Shown wherever a Spark Column may stand. Declarations import no Spark, so its type can't be named here.
Expression = Any


class Stream:
    """Rows in motion, as declared so far. Made by `Pipeline.read`, never by hand.

    Mistakes are not raised while you build: `Pipeline.check` reports all of them at once.

    >>> import headrace as hr
    >>> pipeline = hr.Pipeline("card-fraud")
    >>> txns = pipeline.read("transactions", schema="card_id STRING, amount DOUBLE, occurred_at TIMESTAMP")
    >>> activity = txns.event_time("occurred_at", out_of_order="30s").key_by("card_id").rolling(
    ...     "card-activity", spend_10m=hr.last("10m").sum("amount"))
    >>> activity.where("spend_10m > 5000").write("fraud-alerts")
    >>> activity.late.write("transactions-late")
    >>> pipeline.check()
    """

    def __init__(self, plan: Plan, node: Node) -> None:
        self._plan = plan
        self._node = node

    @property
    def node(self) -> Node:
        """The plan node that this stream comes out of."""
        return self._node

    @property
    def schema(self) -> Schema | None:
        """The columns here, with their types as far as they are known; None after an `.apply` without a schema.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> dict(clicks.with_column("hour", "date_trunc('hour', at)").schema)
        {'user': 'string', 'at': 'timestamp', 'hour': None}
        """
        return schema_of(self._node)

    def event_time(self, column: str, out_of_order: Duration = "30s", max_skew: Duration | None = None) -> Stream:
        """Say which column is the event's own time: a TIMESTAMP, or a BIGINT of epoch milliseconds.

        Events may come `out_of_order` by that much; later ones leave through `.late`. An event stamped further than
        `max_skew` ahead of the clock leaves through `.quarantined` and does not move the watermark; without `max_skew`
        every stamp is believed.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> timed = clicks.event_time("at", out_of_order="30s", max_skew="5m")
        """
        name = "".join(self._names((column,), "event_time"))
        tolerance = self._duration(out_of_order, "event_time(..., out_of_order=...)", zero=True)
        skew = None if max_skew is None else self._duration(max_skew, "event_time(..., max_skew=...)", zero=True)
        return self._then(EventTime(self._node, name, tolerance, skew, location=caller_location()))

    def key_by(self, *columns: str) -> Stream:
        """Partition by columns: state is kept per key, and the order of events holds per key.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> by_user = clicks.key_by("user")
        """
        return self._then(KeyBy(self._node, self._names(columns, "key_by"), location=caller_location()))

    def dedupe(self, *id_columns: str, within: Duration = "24h", name: str | None = None) -> Stream:
        """Let only the first event of an id pass, `within` a span of event time; others leave through `.duplicates`.

        On a keyed stream, or before `.key_by`, an id is one per key. The step is called `dedupe-<columns>` unless you
        name it.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="id STRING, user STRING, at TIMESTAMP")
        >>> once = clicks.event_time("at").dedupe("id", within="24h")
        """
        columns = self._names(id_columns, "dedupe")
        step = "-".join(("dedupe", *columns)) if name is None else name
        span = self._duration(within, "dedupe(..., within=...)")
        return self._then(Dedupe(self._node, step, columns, span, location=caller_location()))

    def rolling(self, name: str, /, **aggregates: Aggregate) -> Stream:
        """Add to each event aggregates over what has arrived of the window that ends at it, per key.

        The name is the identity of the step's state: it survives refactoring, so choose it well.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, page STRING, at TIMESTAMP")
        >>> activity = clicks.event_time("at").key_by("user").rolling(
        ...     "user-activity", clicks_1m=hr.last("1m").count(), came_from=hr.latest("page", back=1))
        >>> dict(activity.schema)["clicks_1m"]
        'bigint'
        """
        if not aggregates:
            self._report(
                PipelineError(
                    f"step `{name}` computes nothing.", fix='name what to compute: count_1m=hr.last("1m").count().'
                )
            )
        computed = tuple((output, self._aggregate(output, aggregate)) for output, aggregate in aggregates.items())
        return self._then(Rolling(self._node, name, computed, location=caller_location()))

    def where(self, condition: Expression) -> Stream:
        """Keep the rows for which a condition holds: a Spark Column, or SQL text.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> known = clicks.where("user is not null")
        """
        return self._then(Where(self._node, condition, location=caller_location()))

    def select(self, *names: str, **named_columns: Expression) -> Stream:
        """Keep the named columns, and add others: each a Spark Column, or SQL text.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, page STRING, at TIMESTAMP")
        >>> clicks.select("user", hour="date_trunc('hour', at)").schema.names
        ('user', 'hour')
        """
        kept = self._names(names, "select") if names or not named_columns else ()
        columns = (*((name, None) for name in kept), *named_columns.items())
        return self._then(Select(self._node, columns, location=caller_location()))

    def with_column(self, name: str, value: Expression) -> Stream:
        """Add a column, or give a column another value: a Spark Column, or SQL text.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> clicks.with_column("hour", "date_trunc('hour', at)").schema.names
        ('user', 'at', 'hour')
        """
        names = self._names((name,), "with_column")
        return self._then(WithColumn(self._node, names[0], value, location=caller_location())) if names else self

    def apply(self, function: Callable[[Any], Any], schema: str | type | None = None) -> Stream:
        """Do with Spark what a pipeline does not express: a function from DataFrame to DataFrame, stateless.

        Without the `schema` of its result, the columns are not checked from here on.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> users = clicks.apply(lambda df: df.select("user"), schema="user STRING")
        """
        if not callable(function):
            self._report(
                PipelineError(
                    f".apply({function!r}) has no function to apply.",
                    fix="pass a function: .apply(lambda df: df.drop(...)).",
                )
            )
        result = None if schema is None else self._schema(schema, "apply")
        return self._then(Apply(self._node, function, result, location=caller_location()))

    def write(self, topic: str, key: str | Sequence[str] | None = None) -> None:
        """Write the stream to a topic as JSON. `key` names the columns of the record's key (default: the stream's).

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> clicks.write("clicks-by-user", key="user")
        """
        keys = None if key is None else self._names(key if isinstance(key, list | tuple) else (key,), "write")
        self._plan.add(Write(self._node, topic, keys, location=caller_location()))

    @property
    def late(self) -> Stream:
        """The events that came later than the tolerance allows, as they came into the first step with state."""
        return self._side(Side.LATE)

    @property
    def duplicates(self) -> Stream:
        """The events that `.dedupe` held back, as they came into the first step with state."""
        return self._side(Side.DUPLICATES)

    @property
    def quarantined(self) -> Stream:
        """The events stamped further in the future than `max_skew`, as they were read."""
        return self._side(Side.QUARANTINED)

    @property
    def dead_letters(self) -> Stream:
        """The payloads that do not parse, as they are: they have no columns, and can only be written."""
        return self._side(Side.DEAD_LETTERS)

    def __repr__(self) -> str:
        schema = self.schema
        columns = "?" if schema is None else ", ".join(f"{name}: {type or '?'}" for name, type in schema.items())
        return f"<Stream of {self._plan.name} after {type(self._node).__name__} ({columns})>"

    def _side(self, side: Side) -> Stream:
        return Stream(self._plan, self._plan.side_output(self._node, side, caller_location()))

    def _then(self, node: Node) -> Stream:
        return Stream(self._plan, self._plan.add(node))

    def _report(self, error: PipelineError, prefix: str = "") -> None:
        self._plan.report(Problem.of(error, caller_location(), prefix))

    def _names(self, values: Sequence[object], method: str) -> tuple[str, ...]:
        """The names of columns among the values: text, or a Column that is no more than a name."""
        names = [value if isinstance(value, str) else plain_name(value) for value in values]
        wrong = [value for value, name in zip(values, names, strict=True) if not name]
        if wrong or not names:
            what = f"takes names of columns, not {wrong[0]!r}." if wrong else "names no column."
            fix = 'pass names, like "card_id". Give an expression a name first: .with_column("total", F.col("a") * 2).'
            self._report(PipelineError(f".{method}(...) {what}", fix=fix))
        return tuple(name for name in names if name)

    def _duration(self, value: Duration, use: str, *, zero: bool = False) -> int:
        try:
            return parse_duration(value, zero=zero)
        except InvalidDurationError as problem:
            self._report(problem, f".{use}: ")
            return 1

    def _schema(self, value: object, method: str) -> Schema | None:
        try:
            return as_schema(value)
        except InvalidSchemaError as problem:
            self._report(problem, f".{method}(..., schema=...): ")
            return None

    def _aggregate(self, output: str, aggregate: object) -> WindowAggregate | Latest:
        if isinstance(aggregate, WindowAggregate | Latest):
            return aggregate
        if not isinstance(aggregate, InvalidAggregate):
            problem = PipelineError(
                f"`{output}` in .rolling(...) is not an aggregate over event time, but {aggregate!r}.",
                fix=f'write {output}=hr.last("1m").count(), or another function of hr.last(...) or hr.latest(...).',
            )
            aggregate = InvalidAggregate(problem)
        self._report(aggregate.problem)
        return aggregate.stand_in
