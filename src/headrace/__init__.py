"""Headrace: a streaming platform for PySpark users.

>>> import headrace as hr
>>> clicks = hr.Pipeline("clicks").read("clicks", schema="user STRING, at TIMESTAMP")

Importing it loads neither Spark nor Kafka: a pipeline is declared and checked before anything heavy starts.
"""

from importlib import import_module
from types import ModuleType

from headrace import deferred as _deferred
from headrace import sinks
from headrace.functions import speed_kmh
from headrace.pipeline import (
    Contract,
    Pipeline,
    ResultTime,
    Schema,
    Stream,
    Trigger,
    Watermark,
    Windowing,
    adaptive,
    after_count,
    after_each,
    after_processing_time,
    after_watermark,
    all_of,
    any_of,
    at_earliest,
    at_end,
    at_latest,
    bounded,
    contract,
    each,
    every,
    global_window,
    hopping,
    last,
    latest,
    per_partition,
    perfect,
    repeat,
    session,
    sliding,
    tumbling,
    when,
)

__all__ = [
    "Contract",
    "Pipeline",
    "ResultTime",
    "Schema",
    "Stream",
    "Trigger",
    "Watermark",
    "Windowing",
    "adaptive",
    "after_count",
    "after_each",
    "after_processing_time",
    "after_watermark",
    "all_of",
    "any_of",
    "at_earliest",
    "at_end",
    "at_latest",
    "bounded",
    "contract",
    "each",
    "every",
    "global_window",
    "hopping",
    "last",
    "latest",
    "per_partition",
    "perfect",
    "repeat",
    "session",
    "sinks",
    "sliding",
    "speed_kmh",
    "tumbling",
    "when",
]

_deferred.install()


def __getattr__(name: str) -> ModuleType:
    """`hr.testing` and `hr.contracts` without an import of their own; loaded only when they are used."""
    if name in ("contracts", "testing"):
        return import_module(f"headrace.{name}")
    raise AttributeError(f"module `headrace` has no attribute `{name}`")
