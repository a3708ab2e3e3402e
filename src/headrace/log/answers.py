"""What a cluster answers to Kafka's admin client, which may have to ask twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

T = TypeVar("T")

# The client has let go of a broker of which the cluster did not tell it, as of a node that is just starting.
_LET_GO = KafkaError._DESTROY_BROKER
_PAUSE_SECONDS = 0.02


def answer(ask: Callable[[], T], seconds: float, passing: Collection[int] = ()) -> T:
    """What the cluster answers; it is asked again, for so long, if the client has let go of the broker meanwhile.

    So it is after errors that are expected to pass, as while a topic has just been made.

    >>> answer(lambda: 3, seconds=1)
    3
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in (_LET_GO, *passing) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
