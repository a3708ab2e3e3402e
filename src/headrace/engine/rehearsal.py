"""Practice for the boundaries of real time.

At each checkpoint of real time Spark plans the next batch, and nothing is read meanwhile. A JVM that has planned only a
few times is slow at it; at one boundary a minute it takes ten minutes until it is quick. So it practises beside the
first batch, with pauses, on the plan that it will meet: the first boundaries then cost what all later ones do.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from headrace.engine.settings import REALTIME
from headrace.kernel import doorway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIRST_AFTER_SECONDS = 10.0
"""The first events make the operator itself quick: nothing disturbs them."""
_ROUNDS = 30
_SHARE = 0.2
"""Of the time of one core."""


class Rehearsal:
    """Plans some streams again and again in a thread of its own, until it has done so often enough or is closed."""

    def __init__(self, streams: list[DataFrame]) -> None:
        self._streams = streams
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._practise, name="headrace-rehearsal", daemon=True)

    def start(self) -> None:
        """Begin, in the background."""
        self._thread.start()

    def close(self) -> None:
        """End, after the round that is under way."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _practise(self) -> None:
        with suppress(Py4JError, OSError):  # the JVM ends
            if self._closed.wait(_FIRST_AFTER_SECONDS):
                return
            plans = [doorway.rehearsal(stream, REALTIME) for stream in self._streams]
            for plan in plans * _ROUNDS:
                began = time.monotonic()
                plan()
                if self._closed.wait((time.monotonic() - began) * (1 - _SHARE) / _SHARE):
                    return
