"""Average speed per driver and five minutes, though phones fall silent in tunnels.

`headrace run examples.drivers:drivers` runs it on your Kafka.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # On demand, so that the generator can be imported where no Spark is wanted.
    if name == "drivers":
        from examples.drivers.pipeline import drivers

        return drivers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
