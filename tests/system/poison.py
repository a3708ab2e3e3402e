"""Records of which one in a hundred is poison, of every kind, and what must become of each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

MAX_BYTES = 2_000
SCHEMA = "id BIGINT NOT NULL, card STRING NOT NULL, amount DOUBLE, at TIMESTAMP NOT NULL"
REASONS = {
    "malformed": "the payload is not a JSON object",
    "not text": "the payload is not UTF-8 text",
    "wrong type": "field `amount` is not a double",
    "missing": "required field `card` is missing or null",
    "oversized": f"max_bytes allows {MAX_BYTES}",
    "null": "the payload is null",
}
KINDS = tuple(REASONS)


def payload(number: int, kind: str | None) -> bytes | None:
    """A record: a good one, or poison of a kind."""
    row = {"id": number, "card": f"c{number % 97}", "amount": number % 50 + 0.5, "at": "2026-01-01T10:00:00Z"}
    match kind:
        case None:
            return json.dumps(row).encode()
        case "malformed":
            return json.dumps(row).encode()[:-7]
        case "not text":
            return b"\xff\xfe\x00" + bytes([number % 256])
        case "wrong type":
            return json.dumps(row | {"amount": "a lot"}).encode()
        case "missing":
            return json.dumps(row | {"card": None}).encode()
        case "oversized":
            return json.dumps(row | {"note": "x" * MAX_BYTES}).encode()
        case _:
            return None


def records(count: int, *, seed: int, poison: float = 0.01) -> Iterator[tuple[str | None, bytes | None]]:
    """So many records, each with its kind if it is poison."""
    rng = random.Random(seed)
    for number in range(count):
        kind = rng.choice(KINDS) if rng.random() < poison else None
        yield kind, payload(number, kind)
