"""Settings for producers: nothing lost and nothing written twice by a retry."""

from __future__ import annotations


def producer_config(bootstrap: str, **overrides: object) -> dict[str, object]:
    """For `confluent_kafka.Producer`. Overrides have librdkafka's own names.

    >>> producer_config("localhost:9092", **{"linger.ms": 0})["linger.ms"]
    0
    """
    return {
        "bootstrap.servers": bootstrap,
        # A record counts as written when every in-sync replica has it, and a retry never writes it again.
        "acks": "all",
        "enable.idempotence": True,
        # A few milliseconds of company make batches several times larger; lz4 costs the least time per byte saved.
        "linger.ms": 5,
        "compression.type": "lz4",
        # The client measures before compression, the broker after it: what the broker took once, it takes again.
        "message.max.bytes": 16_777_216,
        # librdkafka retries by itself and tells the terminal about each attempt; what fails for good comes as an error.
        "log_level": 2,
        **overrides,
    }
