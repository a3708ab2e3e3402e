"""Headrace: a streaming platform for PySpark users.

>>> import headrace as hr
>>> clicks = hr.Pipeline("clicks").read("clicks", schema="user STRING, at TIMESTAMP")

Importing it loads neither Spark nor Kafka: a pipeline is declared and checked before anything heavy starts.
"""

from headrace import deferred as _deferred
from headrace.functions import speed_kmh
from headrace.pipeline import Pipeline, Schema, Stream, last, latest

__all__ = ["Pipeline", "Schema", "Stream", "last", "latest", "speed_kmh"]

_deferred.install()
