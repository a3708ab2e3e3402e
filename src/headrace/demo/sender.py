"""Sends the generator's transactions to the log, each at its time, and reports where they landed.

Run by the demo as a worker: `python -m headrace.demo.sender OPTIONS`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from headrace.demo.worker import Owner
from headrace.log.producer import producer_config

if TYPE_CHECKING:
    from examples.fraud.generator import Emission

_REPORT_SECONDS = 0.1
_FLUSH_SECONDS = 15.0


class Sender:
    """One producer and its reports."""

    def __init__(self, bootstrap: str, topic: str, owner: Owner) -> None:
        # No linger: a transaction is sent when it happens. The timestamp of a record is that of its `produce` call.
        self._producer = Producer(producer_config(bootstrap, **{"linger.ms": 0, "compression.type": "none"}))
        self._topic = topic
        self._owner = owner
        self._sent: list[tuple[int, int, int]] = []
        self._fraud: list[tuple[object, ...]] = []
        self._kinds: Counter[str] = Counter()
        self._failed = 0
        self._reported = time.monotonic()

    def send(self, emissions: Iterable[Emission]) -> None:
        """Sends them, each when it is due by the clock of this machine, until the owner says stop."""
        for emission in emissions:
            self._wait_until(emission.at_ms / 1000)
            if self._owner.stopping.is_set():
                break
            self._produce(emission)
        self._producer.flush(_FLUSH_SECONDS)
        self._failed += len(self._producer)
        self._report()

    def _wait_until(self, due: float) -> None:
        while (wait := due - time.time()) > 0 and not self._owner.stopping.is_set():
            self._poll(min(wait, _REPORT_SECONDS))

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._report()

    def _produce(self, emission: Emission) -> None:
        def delivered(error: object, message: Any) -> None:
            if error is not None:
                self._failed += 1
                return
            self._sent.append((message.partition(), message.offset(), message.timestamp()[1]))
            self._kinds[emission.kind] += 1
            if emission.episode is not None:
                self._fraud.append((emission.txn_id, *emission.episode))

        while True:
            try:
                self._producer.produce(self._topic, emission.value, emission.key, on_delivery=delivered)
                return
            except BufferError:  # the broker is slower than the generator: wait for it
                self._poll(_REPORT_SECONDS)
                if self._owner.stopping.is_set():
                    self._failed += 1  # it happened, and nobody will ever see it
                    return

    def _report(self) -> None:
        self._reported = time.monotonic()
        self._owner.report({"sent": self._sent, "fraud": self._fraud, "kinds": self._kinds, "failed": self._failed})
        self._sent, self._fraud, self._kinds, self._failed = [], [], Counter(), 0


def main(arguments: list[str]) -> None:
    """Sends until told to stop."""
    from examples.fraud.generator import Traffic, Transactions

    options = json.loads(arguments[0])
    owner = Owner()
    sender = Sender(options["bootstrap"], options["topic"], owner)
    # What is due before now is sent at once: the history of the first seconds.
    start_ms = int((time.time() - options["history_seconds"]) * 1000)
    sender.send(Transactions(Traffic(**options["traffic"]), start_ms=start_ms))


if __name__ == "__main__":
    main(sys.argv[1:])
