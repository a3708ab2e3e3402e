"""From a query plan to a Spark DataFrame: parse, the steps before, the fused operator, the records for the sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from headrace.engine import attempts, hidden, sql
from headrace.engine.apply import PythonWork, applied_function
from headrace.engine.control import Control
from headrace.engine.expressions import check_condition, expressions_of, spelled, unknown_column
from headrace.engine.outputs import COUNTED, OBSERVED, TIMES, to_records
from headrace.engine.plan import QueryPlan, Route, Stateful, columns_of
from headrace.engine.source import replaced, to_rows, with_event_time, with_keys, without_bytes
from headrace.errors import UnsupportedStepError
from headrace.kernel import doorway
from headrace.pipeline.nodes import (
    Apply,
    Dedupe,
    EventTime,
    KeyBy,
    Latest,
    Node,
    Rolling,
    Select,
    Where,
    Window,
    WithColumn,
)
from headrace.pipeline.plan import nearest
from headrace.pipeline.watermarks import Adaptive

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from headrace.engine.contracts import Contracts


_TRIED = "__hr_tried"
_KEPT = "__hr_kept"


@dataclass(frozen=True)
class Lowered:
    """Kafka records out (topic, key, value, headers), and the types of the columns that the query's state holds."""

    records: DataFrame
    state_types: dict[str, str]
    outputs: dict[str, StructType]
    """By topic, the columns of what is written to it."""
    python: PythonWork | None = None
    """What of it Spark hands to Python workers."""


def lower(
    records: DataFrame,
    query: QueryPlan,
    control: Control | None = None,
    contracts: Contracts | None = None,
    *,
    realtime: bool = False,
) -> Lowered:
    """From Kafka records (`source.read_records`) to Kafka records. `contracts` are needed if the query has any."""
    rows = to_rows(records, query, None if control is None else control.topic, contracts)
    rows, stages, windowed, python = _steps(rows, query, control)
    if not query.takes_quarantined:
        # Another query of the same event time sends these on, if there are any.
        rows = rows.where(F.col(hidden.ROUTE) != Route.QUARANTINED.value)
    visible = [c for c in rows.columns if not c.startswith("__hr_")]
    state_types = _state_types(rows, query)
    if stages:
        rows = without_bytes(with_keys(rows, query))
        with expressions_of(query.stateful[-1], rows):
            rows = _operator(rows, query, stages, windowed, control, realtime)
    else:
        rows = rows.withColumn(hidden.REASON, F.lit(None).cast("string"))
    made, outputs = to_records(rows, query, visible, contracts)
    return Lowered(made, state_types, outputs, python)


def lower_rows(
    records: DataFrame, query: QueryPlan, contracts: Contracts | None = None, *, tombstones: bool
) -> DataFrame:
    """The rows of a query that keeps no state, as its steps leave them, with what travels with them."""
    return without_bytes(_steps(to_rows(records, query, None, contracts, tombstones=tombstones), query, None)[0])


def _steps(
    rows: DataFrame, query: QueryPlan, control: Control | None
) -> tuple[DataFrame, list[dict[str, Any]], dict[str, Column], PythonWork | None]:
    """The steps before and between those with state; of the latter, what the operator is to do."""
    python: PythonWork | None = None
    windowed: dict[str, Column] = {}
    stages: list[dict[str, Any]] = []
    keeps: list[str] = []
    last_stateful = max((i for i, s in enumerate(query.before) if isinstance(s, Stateful)), default=-1)
    last_apply = max((i for i, s in enumerate(query.before) if isinstance(s, Apply)), default=-1)
    for i, step in enumerate(query.before):
        # A row that leaves before a function of the user does not come through it: nobody would tell of it.
        caught = i > last_apply
        with expressions_of(step, rows):
            match step:
                case EventTime():
                    rows = with_event_time(rows, step)
                case Where() if 0 <= i < last_stateful and stages:
                    keep = f"__hr_keep{i}"
                    rows = _conditioned(rows, step, keep, keeps, caught)
                    keeps.append(keep)
                    stages.append({"kind": "filter", "column": keep})
                case Where():
                    rows = _conditioned(rows, step, _KEPT, keeps, caught)
                    rows = rows.where(f"{hidden.ROUTE} <> {Route.RESULT.value} OR coalesce({_KEPT}, false)").drop(_KEPT)
                case WithColumn():
                    name = spelled(step.name, rows.columns) or step.name
                    rows = _with_values(rows, step, {name: step.value}, keeps, caught)
                case Select():
                    rows = _select(rows, step, keeps, caught)
                case Apply():
                    rows, found = _apply(rows, step, control)
                    python = python or found
                case Dedupe():
                    stages.append(_dedupe(step))
                case Rolling():
                    stages.append(_rolling(step))
                case Window():
                    stages.append(_window(step))
                    windowed = _window_columns(rows, step)
                case KeyBy():
                    pass
                case _:
                    raise AssertionError(f"no step to lower: {step}")
    return rows, stages, windowed, python


def _state_types(rows: DataFrame, query: QueryPlan) -> dict[str, str]:
    """The types of the columns in the state. After an `.apply` it shows only here whether they are there."""
    types = {f.name: f.dataType.simpleString() for f in rows.schema if not f.name.startswith("__hr_")}
    # In an expression a name may be in any case; the operator looks the others up as they are written.
    folded = {name.lower(): type for name, type in types.items()}
    in_state = set(query.key)
    for step in query.stateful:
        key = nearest(step, KeyBy)
        used: dict[Node, Iterable[str]] = {step: columns_of(step, folded)} | ({} if key is None else {key: key.columns})
        for user, name in ((user, name) for user, names in used.items() for name in names):
            if name not in types and not (isinstance(user, Window) and name.lower() in folded):
                raise unknown_column(user, name, list(types))
        in_state.update(used[step])
        made = [name for name, _ in step.aggregates] if isinstance(step, Rolling) else []
        if hidden_by := next((name for name in made if name.lower() in folded), None):
            raise UnsupportedStepError(
                f"step `{step.name}` names a result `{hidden_by}`, but its input has that column already.",
                why="The result would hide the column.",
                fix="choose another name.",
                location=step.location,
            )
    return {name: folded[name.lower()] for name in sorted(in_state)}


def _operator(
    rows: DataFrame,
    query: QueryPlan,
    stages: list[dict[str, Any]],
    windowed: dict[str, Column],
    control: Control | None,
    realtime: bool,
) -> DataFrame:
    assert query.event_time is not None
    claims = control if control is not None and control.claims else None
    if claims is not None:
        rows = _watched(rows, query.event_time, claims)
        # Only what is claimed moves the watermark; events do not.
        claimed, delay = F.timestamp_millis(F.col(hidden.CLAIM)), 0
    else:
        data = F.col(hidden.ROUTE) == Route.RESULT.value
        claimed, delay = F.when(data, F.timestamp_millis(F.col(hidden.TIME))), query.event_time.out_of_order_ms
    made = doorway.keyed(
        rows.withColumn(hidden.EVENT_TIME, claimed),
        {
            "key": list(query.key),
            "route": hidden.ROUTE,
            "reason": hidden.REASON,
            "time": hidden.TIME,
            "eventTime": hidden.EVENT_TIME,
            "partition": hidden.PARTITION,
            "offset": hidden.OFFSET,
            "timestamp": hidden.TIMESTAMP,
            "outOfOrderMs": delay,
            "claims": claims is not None,
            "statePartitions": int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1),
            "observed": OBSERVED,
            "counted": {name: route.value for name, route in COUNTED.items()},
            "stages": stages,
            "realtime": realtime,
        },
        windowed,
    )
    return _as_declared(made, query)


def _as_declared(rows: DataFrame, query: QueryPlan) -> DataFrame:
    """The results of the steps in the order in which they were declared."""
    prefix = "" if query.window is None else hidden.WINDOW
    steps = (step for step in query.stateful if isinstance(step, Rolling | Window))
    declared = [prefix + name for step in steps for name, _ in step.aggregates]
    following = iter(declared)
    return doorway.select(rows, [sql.name(next(following) if c in declared else c) for c in rows.columns])


def _watched(rows: DataFrame, time: EventTime, control: Control) -> DataFrame:
    """Spark tells after each batch what it saw here."""
    if not control.partitions:
        return rows
    event_time = F.when(F.col(hidden.ROUTE) == Route.RESULT.value, F.col(hidden.TIME))
    lag = F.col(hidden.TIMESTAMP) - event_time
    seen = [
        F.max(F.when(F.col(hidden.PARTITION) == number, event_time)).alias(f"p{number}")
        for number in control.partitions
    ]
    if isinstance(time.watermark, Adaptive):
        seen += [F.min(lag).alias("least_lag"), F.percentile_approx(lag, time.watermark.quantile).alias("most_lag")]
    return rows.observe(TIMES, *seen)


def _dedupe(step: Dedupe) -> dict[str, Any]:
    return {"kind": "dedupe", "name": step.name, "columns": list(step.columns), "withinMs": step.within_ms}


def _rolling(step: Rolling) -> dict[str, Any]:
    # By name: state is laid out by this order, and that of the declaration may change.
    windows = sorted(((name, a) for name, a in step.aggregates if not isinstance(a, Latest)), key=lambda pair: pair[0])
    longest = max((a.window_ms for _, a in windows), default=0)
    return {
        "kind": "rolling",
        "name": step.name,
        "windows": [
            {"name": name, "function": a.function, "column": a.column, "windowMs": a.window_ms} for name, a in windows
        ],
        "latest": [
            {"name": name, "columns": list(a.columns), "back": a.back, "withinMs": a.within_ms or longest}
            for name, a in step.aggregates
            if isinstance(a, Latest)
        ],
    }


def _window(step: Window) -> dict[str, Any]:
    windowing = step.windowing
    return {
        "kind": "window",
        "name": step.name,
        "windows": {
            "kind": windowing.kind.value,
            "sizeMs": windowing.size_ms,
            "slideMs": windowing.slide_ms,
            "gapMs": windowing.gap_ms,
            "offsetMs": windowing.offset_ms,
            "timeZone": windowing.time_zone,
        },
        "trigger": step.trigger.spec(),
        "aggregates": sorted(name for name, _ in step.aggregates),  # by name, as in `_rolling`
        "conditions": len(step.trigger.conditions()),
        "panes": step.panes.value,
        "latenessMs": step.allowed_lateness_ms,
        "resultTime": step.result_time.kind.value,
        "resultTimePlusMs": step.result_time.plus_ms,
    }


def _window_columns(rows: DataFrame, step: Window) -> dict[str, Column]:
    spark = rows.sparkSession
    aggregates = {f"aggregate:{name}": doorway.column(spark, value) for name, value in step.aggregates}
    conditions = enumerate(step.trigger.conditions())
    return aggregates | {f"condition:{i}": doorway.column(spark, value) for i, value in conditions}


def _with_values(rows: DataFrame, step: Node, values: dict[str, Any], keeps: list[str], caught: bool) -> DataFrame:
    """Columns more, or with other values. A row on which one fails is a dead letter, if that is to be `caught`.

    They are computed on rows that are data and that no `where` so far took out: elsewhere they might fail, as 1 / x
    does. `keeps` are the conditions of those `where`s whose rows leave only inside the operator.
    """
    alive = F.col(hidden.ROUTE) == Route.RESULT.value
    for keep in keeps:
        alive = alive & F.coalesce(F.col(keep), F.lit(False))
    tried = doorway.select(rows, ["*"], [attempts.attempt(rows, step, values, alive, caught=caught).alias(_TRIED)])
    failure = attempts.failure(_TRIED)
    made = {name: sql.path(attempts.value(_TRIED, name)) for name in values}
    failed = {
        hidden.ROUTE: sql.case([(f"{failure} IS NOT NULL", str(Route.DEAD_LETTER.value))], hidden.ROUTE),
        hidden.INTAKE_REASON: f"coalesce({failure}, {hidden.INTAKE_REASON})",
    }
    return replaced(tried, made | failed, without=(_TRIED,))


def _conditioned(rows: DataFrame, step: Where, name: str, keeps: list[str], caught: bool) -> DataFrame:
    """The rows with their answer to a condition in a column."""
    answered = _with_values(rows, step, {name: step.condition}, keeps, caught)
    check_condition(step, answered.schema[name].dataType)
    return answered


def _select(rows: DataFrame, step: Select, keeps: list[str], caught: bool) -> DataFrame:
    # Under names of their own until all are there: one may be called as a column that goes.
    made = {name: f"__hr_s{i}" for i, (name, value) in enumerate(step.columns) if value is not None}
    carried = [c for c in rows.columns if c.startswith("__hr_")]
    if made:
        values = {made[name]: value for name, value in step.columns if value is not None}
        rows = _with_values(rows, step, values, keeps, caught)
    chosen = [f"{sql.name(made.get(name, name))} AS {sql.name(name)}" for name, _ in step.columns]
    return doorway.select(rows, [*chosen, *carried])


def _apply(rows: DataFrame, step: Apply, control: Control | None) -> tuple[DataFrame, PythonWork | None]:
    """Run the user's function on the user's columns; what travels with the row is one struct, which must come back.

    And what of it runs in Python.
    """
    carried = [c for c in rows.columns if c.startswith("__hr_")]
    own = [c for c in rows.columns if c not in carried]
    data = rows.where(F.col(hidden.ROUTE) == Route.RESULT.value)
    given = data.select(*map(sql.name, own), F.struct(*carried).alias(hidden.META))
    result = applied_function(step, given)
    if hidden.META not in result.columns:
        raise UnsupportedStepError(
            f"the function given to .apply(...) dropped the column `{hidden.META}`.",
            why="It carries each row's position in the log and its event time; without it results have no identity.",
            fix=f'keep it: df.select("{hidden.META}", ...) or df.withColumn(...), df.where(...).',
            location=step.location,
        )
    found = doorway.keeps_state(result)
    if found is not None:
        raise UnsupportedStepError(
            f"the function given to .apply(...) uses {found}.",
            why="It must be stateless: time is that of .event_time(...), and state is that of steps with a name.",
            fix="leave it out; say out_of_order in .event_time(...), and use .dedupe, .rolling or .window for state.",
            location=step.location,
        )
    columns = [c for c in result.columns if c != hidden.META]
    applied = result.select(*map(sql.name, columns), *(f"{hidden.META}.{c}" for c in carried))
    work = doorway.python_work(result)
    python = None if work is None else PythonWork(work, step)
    if control is None:
        return applied, python
    claims = rows.where(F.col(hidden.ROUTE) == Route.CONTROL.value).select(*carried)
    return applied.unionByName(claims, allowMissingColumns=True), python
