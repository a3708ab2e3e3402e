"""What a user writes: pipelines, streams, windows, triggers. Pure declarations and their checks; imports no Spark."""

from headrace.pipeline.contracts import Contract, contract
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.rolling import last, latest
from headrace.pipeline.schema import Schema
from headrace.pipeline.stream import Stream
from headrace.pipeline.triggers import (
    Trigger,
    after_count,
    after_each,
    after_processing_time,
    after_watermark,
    all_of,
    any_of,
    each,
    every,
    repeat,
    when,
)
from headrace.pipeline.watermarks import Watermark, adaptive, bounded, per_partition, perfect
from headrace.pipeline.windows import (
    ResultTime,
    Windowing,
    at_earliest,
    at_end,
    at_latest,
    global_window,
    hopping,
    session,
    sliding,
    tumbling,
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
    "sliding",
    "tumbling",
    "when",
]
