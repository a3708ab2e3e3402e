"""`make bench`: every benchmark, each in a process of its own, one after the other."""

from __future__ import annotations

import subprocess
import sys

BENCHES = (
    "bench.latency",
    "bench.replay",
    "bench.window_population",
    "bench.windows",
    "bench.early_windows",
    "bench.contracts",
    "bench.registry",
)

if __name__ == "__main__":
    for module in BENCHES:
        print(f"== {module}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", module, *sys.argv[1:]], check=True)
