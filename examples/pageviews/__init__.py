"""Page views per URL and minute, live: early results while the minute runs.

`headrace run examples.pageviews:pageviews` runs it on your Kafka.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # On demand, so that the generator can be imported where no Spark is wanted.
    if name == "pageviews":
        from examples.pageviews.pipeline import pageviews

        return pageviews
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
