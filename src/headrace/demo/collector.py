"""Reads all output topics as fast as they come, and reports which transaction each record belongs to, and when it came.

Run by the demo as a worker: `python -m headrace.demo.collector OPTIONS`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headrace.demo.accounting import Alert, Outcome, Receipt
from headrace.demo.worker import Owner
from headrace.errors import RunError
from headrace.log.consumer import consumer_config

ALERTS = "alerts"
_REPORT_SECONDS = 0.1
_FINISH_SECONDS = 15.0
_Place = tuple[str, int]


class Collector:
    """One consumer of every output topic; `outputs` says what a record of a topic means: an outcome, or an alert."""

    def __init__(self, bootstrap: str, outputs: Mapping[str, str], owner: Owner) -> None:
        self._outputs = outputs
        self._owner = owner
        self._receipts: list[Receipt] = []
        self._alerts: list[Alert] = []
        self._reported = time.monotonic()
        self._consumer = Consumer(
            consumer_config(
                bootstrap,
                "headrace-demo",
                **{
                    # The broker answers as soon as there is a byte, and waits this long only if there is none.
                    "fetch.min.bytes": 1,
                    "fetch.wait.max.ms": 100,
                    "enable.partition.eof": True,
                },
            )
        )
        # Partitions by hand and no group: there is nobody to share with, and no rebalance to wait for.
        known = self._consumer.list_topics(timeout=10).topics
        self._places: list[_Place] = [(topic, partition) for topic in outputs for partition in known[topic].partitions]
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in self._places])
        self._ends: dict[_Place, int] = {}

    def collect(self) -> None:
        """Reads until the owner says stop, and then to the end of what is written by then."""
        self._owner.report({"ready": True})
        while not self._owner.stopping.is_set():
            self._read()
        deadline = time.monotonic() + _FINISH_SECONDS
        ends = {
            place: self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=10)[1] for place in self._places
        }
        while any(self._ends.get(place, -1) < end for place, end in ends.items()):
            if time.monotonic() > deadline:
                raise RunError(f"the output topics could not be read to their ends {ends}: only to {self._ends}.")
            self._read()
        self._report()
        self._consumer.close()

    def _read(self) -> None:
        message = self._consumer.poll(_REPORT_SECONDS)
        received_ms = round(time.time() * 1000, 2)
        if message is not None:
            error = message.error()
            if error is None:
                self._take(message, received_ms)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._note_end(message)
            else:
                raise KafkaException(error)
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._report()

    def _note_end(self, message: Any) -> None:
        self._ends[message.topic(), message.partition()] = message.offset()

    def _take(self, message: Any, received_ms: float) -> None:
        partition, offset, sent_ms = origin(message.topic(), dict(message.headers() or ()))
        meaning = self._outputs[message.topic()]
        if meaning == ALERTS:
            row = json.loads(message.value())
            reasons = tuple(row["reasons"])
            self._alerts.append(
                Alert(
                    partition, offset, sent_ms, received_ms, row["txn_id"], row["card_id"], row.get("amount"), reasons
                )
            )
            return
        outcome = Outcome(meaning)
        flagged = outcome is Outcome.DECIDED and json.loads(message.value())["decision"] == "flag"
        self._receipts.append(Receipt(outcome, partition, offset, sent_ms, received_ms, flagged))

    def _report(self) -> None:
        self._reported = time.monotonic()
        if self._receipts or self._alerts:
            self._owner.report({"receipts": self._receipts, "alerts": self._alerts})
            self._receipts, self._alerts = [], []


def origin(topic: str, headers: Mapping[str, bytes]) -> tuple[int, int, int]:
    """The partition, offset and timestamp of the transaction that an output record comes from.

    >>> origin("decisions", {"headrace-id": b"transactions/1/42/card-activity", "headrace-source-timestamp": b"1700"})
    (1, 42, 1700)
    """
    try:
        _, partition, offset, _ = headers["headrace-id"].decode().split("/", 3)
        return int(partition), int(offset), int(headers["headrace-source-timestamp"])
    except (KeyError, ValueError) as error:
        raise RunError(
            f"a record of topic `{topic}` does not say where it comes from.",
            why=f"Its headers are {dict(headers)!r}.",
            fix="write only with the job to this topic: its records carry headrace-id and headrace-source-timestamp",
        ) from error


def main(arguments: list[str]) -> None:
    """Collects until told to stop."""
    options = json.loads(arguments[0])
    Collector(options["bootstrap"], options["outputs"], Owner()).collect()


if __name__ == "__main__":
    main(sys.argv[1:])
