"""Made-up pipelines, as many as wanted, for what must hold however many there are."""

from __future__ import annotations

import json

from headrace.ops.cluster import Offsets
from headrace.ops.runs import Runs
from headrace.ops.sampling import Sampled


class Synthetic:
    """Pipelines that read `in-N` and write `out-N`, and a clock that goes a second forward with each look."""

    def __init__(self, pipelines: int, partitions: int, *, rate: int = 10, start: float = 1_794_000_000.0) -> None:
        self.pipelines = pipelines
        self.partitions = partitions
        self.rate = rate
        self.now = start
        self.looks = 0
        self.stalled: set[int] = set()
        self._positions = [0] * pipelines

    def wall(self) -> float:
        return self.now

    def ends(self, runs: Runs) -> Offsets:
        self.looks += 1
        self.now += 1
        ends: Offsets = {}
        for n in range(self.pipelines):
            end = self.looks * self.rate
            if n not in self.stalled:
                self._positions[n] = end
            if self.looks == 1:
                self._tell(runs, n, "announced", queries=[_query(n)], mode="microbatch", graph=[], alarms=[])
                self._tell(runs, n, "started", query=f"q-{n}", mode="microbatch")
            positions = {f"in-{n}": {str(p): self._positions[n] for p in range(self.partitions)}}
            self._tell(runs, n, "progress", query=f"q-{n}", positions=positions, state_bytes=1000 * n, commit_ms=5)
            ends[f"in-{n}"] = dict.fromkeys(range(self.partitions), end)
            ends[f"out-{n}"] = {0: self._positions[n]}
        return ends

    def _tell(self, runs: Runs, n: int, event: str, **fields: object) -> None:
        runs.take(json.dumps({"event": event, "pipeline": f"pipeline-{n:02}", "run": "r", **fields}).encode(), self.now)

    def sample(self, ends: Offsets) -> list[Sampled]:
        found = []
        for n in range(min(self.pipelines, 20)):
            headers = {
                "headrace-id": f"in-{n}/0/{self.looks}/q".encode(),
                "headrace-source-timestamp": str(int(self.now * 1000) - 12).encode(),
            }
            value = json.dumps({"user": "<script>alert(1)</script>", "n": self.looks}).encode()
            found.append(Sampled(f"out-{n}", 0, self.looks, int(self.now * 1000), b"k", value, headers))
        return found

    def density(self, topic: str) -> float:
        return 1.0

    def stamps(self, places: list[tuple[str, int, int]]) -> dict[tuple[str, int, int], float]:
        return dict.fromkeys(places, self.now - 3600)

    def close(self) -> None:
        pass


def _query(n: int) -> dict[str, object]:
    outputs = [{"topic": f"out-{n}", "route": "result"}]
    return {"name": f"q-{n}", "source": f"in-{n}", "key": ["user"], "steps": ["count"], "outputs": outputs}
