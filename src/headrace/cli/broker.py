"""`headrace broker`: the embedded Kafka broker of this project."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.output import Format, Output, OutputOption
from headrace.log.broker import EmbeddedBroker, RunningBroker, default_data_dir, running_broker

NOT_RUNNING = 3

app = typer.Typer(no_args_is_help=True, help="The embedded Kafka broker of this project.")


@app.command()
def start(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="where clients connect; a free one is chosen if left out")
    ] = None,
    registry: Annotated[bool, typer.Option(help="also start the schema registry")] = True,
    output: OutputOption = Format.TEXT,
) -> None:
    """Start the broker and the schema registry, or say where they run already. `headrace broker stop` stops both."""
    from headrace.contracts.embedded import EmbeddedRegistry

    out = Output.of(output)
    with out.progress() as progress:
        broker = EmbeddedBroker(port=port, attached=False).start(progress)
        if registry:
            EmbeddedRegistry(broker.bootstrap, attached=False).start(progress)
    _print(out, running_broker(broker.data_dir))


@app.command()
def stop(output: OutputOption = Format.TEXT) -> None:
    """Stop the broker, and the schema registry that works on it. Their data stays."""
    from headrace.contracts.embedded import running_registry, stop_registry

    out = Output.of(output)
    running = running_broker()
    registry = running_registry()
    if running is not None and registry is not None and registry.bootstrap == running.bootstrap:
        stop_registry()
    if running is not None:
        running.stop()
    text = "the broker does not run" if running is None else f"stopped the broker at {running.bootstrap}"
    out.record({"stopped": running is not None}, text)


@app.command()
def status(output: OutputOption = Format.TEXT) -> None:
    """Say whether the broker runs, and where. Exits with 3 if it does not."""
    running = running_broker()
    _print(Output.of(output), running)
    if running is None:
        raise typer.Exit(NOT_RUNNING)


def _print(out: Output, running: RunningBroker | None) -> None:
    from headrace.contracts.embedded import running_registry

    registry = running_registry()
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
