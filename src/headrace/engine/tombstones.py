"""Tombstones: a record with a key and no payload takes the row of that key away, as in a compacted topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.engine import hidden, sql
from headrace.engine.plan import Route
from headrace.sinks.protocol import ROW_KIND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def with_deletes(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows, with a delete for each record that has no payload but a key that can be read.

    A key is what a pipeline writes as one: a single column as text, several as a JSON object. A JSON object will do for
    a single column too.
    """
    types = dict(rows.dtypes)
    values = {name: _value(name, types[name], single=len(key) == 1) for name in key}
    dead = (F.col(hidden.ROUTE) == Route.DEAD_LETTER.value) & (F.col(hidden.INTAKE_REASON) == hidden.NO_PAYLOAD)
    gone = dead
    for value in values.values():
        gone = gone & value.isNotNull()
    kind = next((name for name in rows.columns if name.lower() == ROW_KIND), ROW_KIND)
    changes = {name: F.when(gone, value).otherwise(F.col(sql.name(name))) for name, value in values.items()}
    changes[kind] = F.when(gone, F.lit("-D")).otherwise(F.col(kind) if kind in rows.columns else F.lit(None))
    reason = F.when(~gone, F.col(hidden.INTAKE_REASON))
    return rows.withColumns({**changes, hidden.INTAKE_REASON: reason})


def _value(name: str, type: str, *, single: bool) -> Column:
    text = F.col(hidden.RECORD_KEY).cast("string")
    # By a map, not by a path: Spark's paths can't name a field that has a quote in it.
    field = F.try_element_at(F.from_json(text, "map<string,string>"), F.lit(name))
    read = F.when(text.startswith("{"), field).otherwise(text) if single else field
    return read.try_cast(type)
