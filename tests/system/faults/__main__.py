"""`make chaos SECONDS=... SEED=...`: kills for so long, then the audit as a JSON line; exit code 1 on any fault."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from headrace.log.broker import EmbeddedBroker, free_port
from tests.system.faults.harness import Chaos
from tests.system.postgres_server import PostgresServer


def main() -> int:
    options = argparse.ArgumentParser(prog="make chaos")
    options.add_argument("--seconds", type=float, default=300)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()

    def say(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as made:
        folder = Path(made)
        with (
            EmbeddedBroker(folder / "broker", port=free_port()) as broker,
            closing(PostgresServer()) as database,
            closing(Chaos(broker, database, folder / "job", seed=asked.seed, name="chaos")) as chaos,
        ):
            found = chaos.run(seconds=asked.seconds, say=say)
    kills = dict(chaos.killed)
    books = {name: asdict(book) for name, book in found.items()}
    print(json.dumps({"seed": asked.seed, "kills": sum(kills.values()), **kills, **books}))
    return 0 if all(book.clean for book in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
