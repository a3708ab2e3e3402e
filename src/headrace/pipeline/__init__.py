"""What a user writes: pipelines, streams and aggregates. Pure declarations and their checks; imports no Spark."""

from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.rolling import last, latest
from headrace.pipeline.schema import Schema
from headrace.pipeline.stream import Stream

__all__ = ["Pipeline", "Schema", "Stream", "last", "latest"]
