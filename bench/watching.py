"""The cost of watching: replay of the fraud job with its progress published and a dashboard open, against without."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import by_turns, emit, median, options, ratio, seconds, transactions
from bench.replay import fraud_job


@contextmanager
def dashboard(bootstrap: str) -> Iterator[None]:
    """The command in a process of its own, a page that listens, and a Prometheus that asks every 5 s."""
    from websockets.sync.client import connect

    command = [
        sys.executable,
        "-m",
        "headrace",
        "dashboard",
        "--bootstrap",
        bootstrap,
        "--port",
        "0",
        "--output",
        "json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    stopping = threading.Event()
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]

        def listen() -> None:
            with connect(url.replace("http", "ws") + "ws") as socket:
                socket.send(json.dumps({"pipeline": "card-fraud"}))
                asked = 0.0
                while not stopping.is_set():
                    socket.recv(10)
                    if time.monotonic() - asked > 5:
                        asked = time.monotonic()
                        urllib.request.urlopen(f"{url}metrics").read()

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        yield
        stopping.set()
        listener.join(5)
    finally:
        process.terminate()
        process.wait()


def looks() -> tuple[float, float]:
    """How long a look at 50 pipelines with 5,000 partitions takes, and the largest of them, in milliseconds."""
    from headrace.ops.watch import Watch
    from tests.unit.synthetic_feed import Synthetic

    feed = Synthetic(50, 100)
    watch = Watch(feed, wall=feed.wall)
    for _ in range(20):
        watch.look()
    took = []
    for _ in range(60):
        began = time.perf_counter()
        watch.look()
        json.dumps({"summary": watch.summary(), "detail": watch.detail("pipeline-07")})
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took), max(took)


def main() -> None:
    a = options(rows=500_000, rounds=5, max_rows=100_000)
    look, longest = looks()
    emit(bench="watching-looks", pipelines=50, partitions=5000, median_ms=round(look, 1), longest_ms=round(longest, 1))
    with transactions(a.rows) as (spark, bootstrap, folder):

        def watched() -> float:
            with dashboard(bootstrap):
                return seconds(lambda: fraud_job(spark, bootstrap, folder, a.max_rows))

        took = by_turns(
            a.rounds,
            {
                "alone": lambda: fraud_job(spark, bootstrap, folder, a.max_rows, publish=False),
                "watched": watched,
            },
        )
    emit(
        bench="watching",
        rows=a.rows,
        alone_rows_per_second=round(a.rows / median(took["alone"])),
        watched_rows_per_second=round(a.rows / median(took["watched"])),
        ratio=ratio(took["alone"], took["watched"]),
        target=0.97,
    )


if __name__ == "__main__":
    main()
