"""Several brokers on this machine, as one cluster: for what only shows when a node can die and the others go on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.errors import BrokerStartError
from headrace.jvm.progress import Progress, silent
from headrace.log.broker import (
    NODES,
    EmbeddedBroker,
    default_data_dir,
    free_port,
    new_cluster_id,
    running_broker,
    running_brokers,
)
from headrace.log.settings import HEAP, Node


class EmbeddedCluster:
    """Nodes that replicate: of three, each record is on three, acknowledged by two at least.

    The nodes' ports stay the same as long as one of them runs: a node that died is started again at its own.

    >>> EmbeddedCluster(Path("somewhere"), nodes=3).replication
    3
    """

    def __init__(self, data_dir: Path | None = None, nodes: int = 3, attached: bool = True, heap: str = HEAP) -> None:
        self.data_dir = (data_dir or default_data_dir()).resolve()
        self.attached = attached
        self._count = nodes
        self._heap = heap
        self.nodes: tuple[EmbeddedBroker, ...] = ()

    @property
    def replication(self) -> int:
        """On how many nodes a record is, unless its topic says otherwise."""
        return min(3, self._count)

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for clients."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self, progress: Progress | None = None) -> Self:
        """Starts all nodes, and returns when each answers. Detached, it takes over those that run already."""
        report = progress or silent
        if running_broker(self.data_dir) is not None:
            raise BrokerStartError(
                "a single broker runs already on this data folder.",
                why=f"Data folder: {self.data_dir}. Its topics are not those of a cluster.",
                fix="stop it first: headrace broker stop",
            )
        self.nodes = self._make()
        report(f"broker: starting {self._count} nodes")
        try:
            # Side by side: a node answers only when most of them are there.
            with ThreadPoolExecutor(self._count) as pool:
                list(pool.map(lambda node: node.start(), self.nodes))
        except BaseException:
            self.stop()
            raise
        report(f"broker: ready at {self.bootstrap}")
        return self

    def stop(self) -> None:
        """Stops all nodes; nothing happens to those that do not run."""
        with ThreadPoolExecutor(self._count) as pool:
            list(pool.map(lambda node: node.stop(), self.nodes))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make(self) -> tuple[EmbeddedBroker, ...]:
        folder = self.data_dir / NODES
        folder.mkdir(parents=True, exist_ok=True)
        note = self.data_dir / "cluster.json"
        known = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else None
        if known is not None and len(known["ports"]) != self._count:
            raise BrokerStartError(
                f"the cluster in {self.data_dir} has {len(known['ports'])} nodes, not {self._count}.",
                why="Its records are spread over its nodes: their number is fixed when it is made.",
                fix=f"start it with --nodes {len(known['ports'])}, or delete {folder} and {note} if the data may go",
            )
        if known is None or not running_brokers(self.data_dir):
            ports = [free_port() for _ in range(2 * self._count)]
            identity = new_cluster_id() if known is None else known["id"]
            known = {"id": identity, "ports": ports[: self._count], "controllers": ports[self._count :]}
            note.write_text(json.dumps(known) + "\n", encoding="utf-8")
        controllers = dict(enumerate(known["controllers"], start=1))
        return tuple(
            EmbeddedBroker(
                folder / str(number), port, self.attached, Node(number, controllers, known["id"]), heap=self._heap
            )
            for number, port in enumerate(known["ports"], start=1)
        )


def refuse_cluster(data_dir: Path) -> None:
    """Raises BrokerStartError if a cluster runs on this data folder: a single broker would be another world."""
    nodes = [node for node in running_brokers(data_dir) if node.data_dir.parent.name == NODES]
    if nodes:
        raise BrokerStartError(
            f"a cluster of {len(nodes)} nodes runs already on this data folder.",
            why=f"Data folder: {data_dir}.",
            fix="use it as it is, or stop it first: headrace broker stop",
        )
