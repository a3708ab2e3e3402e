"""Takings per store and hour that agree with the nightly batch, though card readers report late.

`headrace run examples.retail:retail` runs it on your Kafka.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # On demand, so that the generator can be imported where no Spark is wanted.
    if name == "retail":
        from examples.retail.pipeline import retail

        return retail
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
