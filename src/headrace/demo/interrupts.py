"""Ctrl-C and SIGTERM: they break off the setting up, ask a running demo to end, and the second one ends it by force."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handles both signals from entering it to leaving it.

    >>> with Interrupts() as interrupts:
    ...     interrupts.defer()
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     interrupts.requested
    True
    """

    def __init__(self) -> None:
        self.requested = False
        self._deferred = False
        self._by_force: list[Callable[[], None]] = []
        self._before: list[signal.Handlers | int | Callable[[int, FrameType | None], object] | None] = []

    def defer(self) -> None:
        """From here on the first signal only sets `requested`."""
        self._deferred = True

    def by_force(self, action: Callable[[], None]) -> None:
        """Something to do when there is no time for good order."""
        self._by_force.append(action)

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._handle) for number in _SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            for action in self._by_force:
                action()
            os._exit(128 + number)
        self.requested = True
        if not self._deferred:
            raise KeyboardInterrupt
