"""Settings for consumers: only committed records, and offsets move when the program says so."""

from __future__ import annotations


def consumer_config(bootstrap: str, group: str, **overrides: object) -> dict[str, object]:
    """For `confluent_kafka.Consumer`. Overrides have librdkafka's own names.

    >>> consumer_config("localhost:9092", "fraud-view")["isolation.level"]
    'read_committed'
    """
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        # Records of an aborted transaction were never written, as far as a reader is concerned.
        "isolation.level": "read_committed",
        # An offset that is committed by a timer may be ahead of what was really processed.
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        # librdkafka retries by itself and tells the terminal about each attempt; what fails for good comes as an error.
        "log_level": 2,
        **overrides,
    }
