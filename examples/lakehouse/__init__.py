"""Orders in three Delta tables: as they came (bronze), one row for each (silver), revenue per country and day (gold).

`headrace run examples.lakehouse:lake` runs it on your Kafka; the tables are made in the folder `lake`, or in that of
the variable HEADRACE_LAKE.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # On demand, so that the generator can be imported where no Spark is wanted.
    if name == "lake":
        from examples.lakehouse.pipeline import lake

        return lake
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
