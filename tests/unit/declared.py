"""A pipeline under test, and what is wrong with it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipelineError, PipelineError

SCHEMA = (
    "txn_id STRING, card_id STRING, amount DOUBLE, lat DOUBLE, lon DOUBLE, occurred_at TIMESTAMP, sent BIGINT, "
    "tags MAP<STRING, STRING>, place STRUCT<city: STRING, zip: INT>"
)


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


class Declared:
    """A pipeline under test, with the streams that the tests start from."""

    def __init__(self, name: str = "card-fraud") -> None:
        self.pipeline = hr.Pipeline(name)
        self.read = self.pipeline.read("transactions", schema=SCHEMA)
        self.timed = self.read.event_time("occurred_at", max_skew="5m")
        self.keyed = self.timed.key_by("card_id")

    def problems(self, *streams: hr.Stream) -> list[PipelineError]:
        """What is wrong once the streams are written."""
        for number, stream in enumerate(streams):
            stream.write(f"out-{number}")
        with pytest.raises(InvalidPipelineError) as caught:
            self.pipeline.check()
        return list(caught.value.problems)

    def problem(self, *streams: hr.Stream) -> PipelineError:
        found = self.problems(*streams)
        assert [str(each) for each in found] == [str(found[0])]
        assert found[0].location is not None
        assert "tests/unit/" in found[0].location.file
        assert found[0].pipeline == self.pipeline.name
        assert found[0].fix
        return found[0]

    def passes(self, *streams: hr.Stream) -> None:
        for number, stream in enumerate(streams):
            stream.write(f"out-{number}")
        self.pipeline.check()


def count() -> Any:
    """Some aggregate."""
    return hr.last("1m").count()
