"""The flagship example: card fraud flagged in milliseconds.

`headrace run examples.fraud:fraud --mode realtime` runs it on your Kafka; `headrace demo` runs it with everything.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # On demand, so that the generator and the truth can be imported where no Spark is installed or wanted.
    if name == "fraud":
        from examples.fraud.pipeline import fraud

        return fraud
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
