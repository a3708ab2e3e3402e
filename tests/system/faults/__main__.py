"""`make chaos SECONDS=... KILLS=... SEED=...`: kills, then the audit as a JSON line; exit code 1 on any fault."""

from __future__ import annotations

import argparse
import json
import shutil
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
    options.add_argument("--kills", type=int, help="end after so many, if that is sooner")
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()

    def say(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    folder = Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    say(f"in {folder}, which stays if something is wrong")
    with (
        EmbeddedBroker(folder / "broker", port=free_port()) as broker,
        closing(PostgresServer()) as database,
        closing(Chaos(broker, database, folder / "job", seed=asked.seed, name="chaos")) as chaos,
    ):
        found = chaos.run(seconds=asked.seconds, kills=asked.kills, say=say)
    kills = dict(chaos.killed)
    books = {name: asdict(book) for name, book in found.items()}
    print(json.dumps({"seed": asked.seed, "kills": sum(kills.values()), **kills, **books}))
    if not all(book.clean for book in found.values()):
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped before the audit: nothing is shown", file=sys.stderr)
        sys.exit(130)
