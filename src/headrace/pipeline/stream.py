"""A stream: what a user builds a pipeline from. Every method gives a new stream; building runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.errors import InvalidDurationError, InvalidSchemaError, PipelineError
from headrace.pipeline.arguments import Reading
from headrace.pipeline.columns import plain_name
from headrace.pipeline.contracts import Contract, as_contract
from headrace.pipeline.delivery import read_delivery
from headrace.pipeline.durations import Duration, parse_duration
from headrace.pipeline.location import caller_location
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    LateRows,
    Latest,
    Node,
    Panes,
    Rolling,
    Select,
    Side,
    SinkWrite,
    Where,
    Window,
    WindowAggregate,
    WithColumn,
    Write,
)
from headrace.pipeline.plan import Plan, Problem, schema_of
from headrace.pipeline.rolling import Aggregate, InvalidAggregate
from headrace.pipeline.schema import Schema, as_schema
from headrace.pipeline.sink import Sink
from headrace.pipeline.triggers import Trigger, default_trigger, each
from headrace.pipeline.watermarks import Bounded, Watermark
from headrace.pipeline.windows import ResultTime, Windowing, WindowKind, at_end, tumbling

_OUT_OF_ORDER = "30s"

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
        >>> dict(hr.Pipeline("demo").read("clicks", schema="at TIMESTAMP").with_column("hour", "hour(at)").schema)
        {'at': 'timestamp', 'hour': None}
        """
        return schema_of(self._node)

    def event_time(
        self,
        column: str,
        out_of_order: Duration | None = None,
        max_skew: Duration | None = None,
        watermark: Watermark | None = None,
        close_idle: Duration | None = None,
    ) -> Stream:
        """Say which column is the event's own time: a TIMESTAMP, or a BIGINT of epoch milliseconds.

        Events may come `out_of_order` by that much (30 s); later ones leave through `.late`. In its place a `watermark`
        may be given: `hr.adaptive()`, `hr.per_partition()` or `hr.perfect()`. An event stamped more than `max_skew`
        ahead of the clock leaves through `.quarantined` and does not move the watermark; without it every stamp is
        believed. With `close_idle`, windows that wait for the watermark close when no event has come for that long.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> adaptive = clicks.event_time("at", watermark=hr.adaptive(quantile=0.99, ceiling="10m"), close_idle="2m")
        """
        name = "".join(self._names((column,), "event_time"))
        reading = Reading(".event_time")
        tolerance = reading.duration(_OUT_OF_ORDER if out_of_order is None else out_of_order, "out_of_order", zero=True)
        skew = None if max_skew is None else reading.duration(max_skew, "max_skew", zero=True)
        idle = None if close_idle is None else reading.duration(close_idle, "close_idle")
        strategy: Watermark = Bounded(tolerance)
        if watermark is not None:
            if out_of_order is not None:
                reading.refuse(
                    ".event_time(...) has both out_of_order and watermark.",
                    "A watermark strategy says itself how far out of order events may come.",
                    'leave out_of_order to the strategy, like hr.bounded("1m") or hr.per_partition(out_of_order="1m").',
                )
            fix = 'pass one, like hr.bounded("30s"), hr.adaptive(), hr.per_partition() or hr.perfect().'
            strategy = reading.argument(watermark, Watermark, strategy, "a watermark strategy", fix, "watermark")
        self._report_all(reading)
        return self._then(EventTime(self._node, name, strategy, skew, idle, location=caller_location()))

    def key_by(self, *columns: str) -> Stream:
        """Partition by columns: state is kept per key, and the order of events holds per key.

        >>> import headrace as hr
        >>> by_user = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP").key_by("user")
        """
        return self._then(KeyBy(self._node, self._names(columns, "key_by"), location=caller_location()))

    def dedupe(self, *id_columns: str, within: Duration = "24h", name: str | None = None) -> Stream:
        """Let only the first event of an id pass, `within` a span of event time; others leave through `.duplicates`.

        On a keyed stream, or before `.key_by`, an id is one per key. A step without a name is `dedupe-<columns>`.

        >>> import headrace as hr
        >>> once = hr.Pipeline("demo").read("clicks", schema="id STRING, at TIMESTAMP").event_time("at").dedupe("id")
        """
        columns = self._names(id_columns, "dedupe")
        step = "-".join(("dedupe", *columns)) if name is None else name
        span = self._duration(within, "dedupe(..., within=...)")
        return self._then(Dedupe(self._node, step, columns, span, location=caller_location()))

    def rolling(self, name: str, /, **aggregates: Aggregate) -> Stream:
        """Add to each event aggregates over what has arrived of the window that ends at it, per key.

        The name is the identity of the step's state: it survives refactoring, so choose it well.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP").event_time("at")
        >>> activity = clicks.key_by("user").rolling("user-activity", clicks_1m=hr.last("1m").count())
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

    def window(
        self,
        name: str,
        windowing: Windowing,
        /,
        *,
        trigger: Trigger | None = None,
        allowed_lateness: Duration = "0s",
        panes: str = "accumulating",
        late: str = "side",
        result_time: ResultTime | None = None,
        **aggregates: Expression,
    ) -> Stream:
        """Aggregate per key and event-time window, or over the whole stream without a key.

        An aggregate is any of Spark's, as a Column or SQL text. There is a result whenever the `trigger` fires: without
        one, when the watermark passes the window's end, and with each event that is late by less than
        `allowed_lateness`. Events later than that leave through `.late` (`late="drop"` counts and drops them).

        A result of a window that had one before has all of the window (`panes="accumulating"`), only what is new
        ("discarding"), or all of it after a row that takes the earlier result back ("retracting"). Each row has the
        key, `window_start` and `window_end`, the aggregates, `window_time` (see `result_time`), `pane_index`,
        `pane_timing` (early, on_time, late), `is_last` and `row_kind` (+I, -U, +U, -D).

        A trigger that finishes, like a bare `hr.after_count(100)`, gives no result after that, and events that still
        come for its window are late; `hr.repeat` makes it go on. The name is the state's identity, as in `rolling`.

        >>> import headrace as hr
        >>> views = hr.Pipeline("demo").read("views", schema="url STRING, user STRING, at TIMESTAMP")
        >>> per_minute = views.event_time("at").key_by("url").window(
        ...     "views-per-minute", hr.tumbling("1m"), views="count(*)", visitors="approx_count_distinct(user)",
        ...     trigger=hr.after_watermark(early=hr.every("5s"), late=hr.each()), allowed_lateness="10m")
        >>> per_minute.schema.names[:5]
        ('url', 'window_start', 'window_end', 'views', 'visitors')
        """
        reading = Reading(".window")
        if not aggregates:
            reading.refuse(f"step `{name}` computes nothing.", None, 'name what to compute: views=F.count("*").')
        fix = 'pass some, like hr.tumbling("1m"), hr.session("30m") or hr.global_window().'
        windows = reading.argument(windowing, Windowing, tumbling("1d"), "windows", fix)
        firing: Trigger = each() if windows.kind is WindowKind.SLIDING else default_trigger()
        if trigger is not None:
            fix = 'pass one, like hr.after_watermark(early=hr.every("5s")) or hr.each().'
            firing = reading.argument(trigger, Trigger, firing, "a trigger", fix, "trigger")
        time = at_end()
        if result_time is not None:
            fix = "pass one of hr.at_end(), hr.at_earliest() and hr.at_latest()."
            time = reading.argument(result_time, ResultTime, time, "the time of a result", fix, "result_time")
        lateness = reading.duration(allowed_lateness, "allowed_lateness", zero=True)
        pane = reading.choice(panes, Panes.ACCUMULATING, "panes")
        beyond = reading.choice(late, LateRows.SIDE, "late")
        self._report_all(reading)
        computed = tuple(aggregates.items())
        where = caller_location()
        return self._then(
            Window(self._node, name, windows, computed, firing, lateness, pane, beyond, time, location=where)
        )

    def where(self, condition: Expression) -> Stream:
        """Keep the rows for which a condition holds: a Spark Column, or SQL text.

        >>> import headrace as hr
        >>> known = hr.Pipeline("demo").read("clicks", schema="user STRING").where("user is not null")
        """
        return self._then(Where(self._node, condition, location=caller_location()))

    def select(self, *names: str, **named_columns: Expression) -> Stream:
        """Keep the named columns, and add others: each a Spark Column, or SQL text.

        >>> import headrace as hr
        >>> hr.Pipeline("demo").read("clicks", schema="user STRING").select("user", shown="upper(user)").schema.names
        ('user', 'shown')
        """
        kept = self._names(names, "select") if names or not named_columns else ()
        columns = (*((name, None) for name in kept), *named_columns.items())
        return self._then(Select(self._node, columns, location=caller_location()))

    def with_column(self, name: str, value: Expression) -> Stream:
        """Add a column, or give a column another value: a Spark Column, or SQL text.

        >>> import headrace as hr
        >>> hr.Pipeline("demo").read("clicks", schema="at TIMESTAMP").with_column("hour", "hour(at)").schema.names
        ('at', 'hour')
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

    def write(
        self,
        to: str | Sink,
        key: str | Sequence[str] | None = None,
        *,
        contract: str | Contract | None = None,
        delivery: str | None = None,
    ) -> None:
        """Write the stream to a topic as JSON, or to a store of `hr.sinks`.

        `key` names the columns of a record's key in the topic (default: the stream's); a store has its own. A store is
        fed by a query of its own, from the topic that has the stream: what slows it down slows nothing else down.

        With a `contract`, the name of a subject of the schema registry or `hr.contract(...)`, payloads are in
        Confluent's wire format, and the schema is registered when the pipeline starts; one that breaks the subject's
        compatibility keeps it from starting.

        `delivery` is "exactly_once", "at_least_once" or "at_most_once". Without it a record is written exactly once in
        micro-batch and replay, and at least once, with an id by which repeats collapse, in real time.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> clicks.write("clicks-by-user", key="user", delivery="exactly_once")
        >>> clicks.write("clicks-avro", contract="clicks-avro-value")
        >>> clicks.write(hr.sinks.files("lake/clicks"))
        """
        if isinstance(to, Sink):
            for problem in (*to.problems, *to.refusals({"key": key, "contract": contract, "delivery": delivery})):
                self._report(problem)
            self._plan.add(SinkWrite(self._node, to, location=caller_location()))
            return
        topic = to
        keys = None if key is None else self._names(key if isinstance(key, list | tuple) else (key,), "write")
        agreed = None
        if contract is not None:
            reading = Reading(".write")
            agreed = as_contract(contract, reading)
            self._report_all(reading)
        asked = read_delivery(delivery)
        if isinstance(asked, PipelineError):
            self._report(asked)
            asked = None
        self._plan.add(Write(self._node, topic, keys, agreed, asked, location=caller_location()))

    @property
    def late(self) -> Stream:
        """The events that came later than the tolerance allows, as they came into the first step with state.

        >>> import headrace as hr
        >>> hr.Pipeline("demo").read("clicks", schema="at TIMESTAMP").event_time("at").late.write("clicks-late")
        """
        return self._side(Side.LATE)

    @property
    def duplicates(self) -> Stream:
        """The events that `.dedupe` held back, as they came into the first step with state.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="id STRING, at TIMESTAMP").event_time("at")
        >>> clicks.dedupe("id").duplicates.write("clicks-duplicates")
        """
        return self._side(Side.DUPLICATES)

    @property
    def quarantined(self) -> Stream:
        """The events stamped further in the future than `max_skew`, as they were read.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="id STRING, at TIMESTAMP")
        >>> clicks.event_time("at", max_skew="5m").quarantined.write("clicks-ahead")
        """
        return self._side(Side.QUARANTINED)

    @property
    def dead_letters(self) -> Stream:
        """The payloads that do not parse, as they are: they have no columns, and can only be written.

        >>> import headrace as hr
        >>> hr.Pipeline("demo").read("clicks", schema="id STRING").dead_letters.write("clicks-dead-letters")
        """
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

    def _report_all(self, reading: Reading) -> None:
        for problem in reading.problems:
            self._report(problem)

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
