"""`headrace broker`: the embedded Kafka broker of this project."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from headrace.cli.output import Format, Output, OutputOption
from headrace.log.broker import EmbeddedBroker, RunningBroker, default_data_dir, running_brokers
from headrace.log.cluster import EmbeddedCluster, refuse_cluster
from headrace.log.settings import HEAP

NOT_RUNNING = 3

app = typer.Typer(no_args_is_help=True, help="The embedded Kafka broker of this project.")


def _heap(size: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,5}[mg]", size):
        raise typer.BadParameter(f"`{size}` is no size: say 512m, or 2g")
    return size


@app.command()
def start(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="where clients connect; a free one is chosen if left out")
    ] = None,
    nodes: Annotated[
        int, typer.Option(min=1, max=9, help="3 for a cluster: a record is on 3 nodes, and one of them may die")
    ] = 1,
    heap: Annotated[
        str, typer.Option(metavar="SIZE", callback=_heap, help="memory of each node's JVM, as 512m or 2g")
    ] = HEAP,
    registry: Annotated[bool, typer.Option(help="also start the schema registry")] = True,
    output: OutputOption = Format.TEXT,
) -> None:
    """Start the broker and the schema registry, or say where they run already. `headrace broker stop` stops both."""
    from headrace.contracts.embedded import EmbeddedRegistry

    out = Output.of(output)
    if nodes > 1 and port is not None:
        raise typer.BadParameter("a cluster has a port for each node: leave out --port")
    with out.progress() as progress:
        if nodes > 1:
            bootstrap = EmbeddedCluster(nodes=nodes, attached=False, heap=heap).start(progress).bootstrap
        else:
            refuse_cluster(default_data_dir())
            bootstrap = EmbeddedBroker(port=port, attached=False, heap=heap).start(progress).bootstrap
        if registry:
            EmbeddedRegistry(bootstrap, attached=False).start(progress)
    _print(out, running_brokers())


@app.command()
def stop(output: OutputOption = Format.TEXT) -> None:
    """Stop the broker, and the schema registry that works on it. Their data stays."""
    from headrace.contracts.embedded import running_registry, stop_registry

    out = Output.of(output)
    running = running_brokers()
    where = ",".join(broker.bootstrap for broker in running)
    registry = running_registry()
    if running and registry is not None and registry.bootstrap == where:
        stop_registry()
    for broker in running:
        broker.stop()
    out.record({"stopped": bool(running)}, f"stopped the broker at {where}" if running else "the broker does not run")


@app.command()
def status(output: OutputOption = Format.TEXT) -> None:
    """Say whether the broker runs, and where. Exits with 3 if it does not."""
    running = running_brokers()
    _print(Output.of(output), running)
    if not running:
        raise typer.Exit(NOT_RUNNING)


def _print(out: Output, brokers: list[RunningBroker]) -> None:
    from headrace.contracts.embedded import running_registry

    registry = running_registry()
    if len(brokers) > 1:
        where = ",".join(broker.bootstrap for broker in brokers)
        nodes = [{"bootstrap": b.bootstrap, "pid": b.pid, "data_dir": str(b.data_dir)} for b in brokers]
        fields: dict[str, object] = {
            "running": True,
            "bootstrap": where,
            "nodes": nodes,
            "registry": None if registry is None else registry.url,
        }
        out.record(fields, f"a cluster of {len(brokers)} nodes runs at {where}")
        return
    running = brokers[0] if brokers else None
    if running is None:
        folder = default_data_dir()
        out.record({"running": False, "data_dir": str(folder)}, f"the broker does not run (its data is in {folder})")
        return
    fields = {
        "running": True,
        "bootstrap": running.bootstrap,
        "pid": running.pid,
        "started": running.started,
        "data_dir": str(running.data_dir),
        "registry": None if registry is None else registry.url,
    }
    text = f"the broker runs at {running.bootstrap} (process {running.pid}, since {running.started})"
    where = "" if registry is None else f"\nthe schema registry runs at {registry.url}"
    out.record(fields, f"{text}{where}\ndata and logs: {running.data_dir}")
