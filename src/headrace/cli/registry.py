"""`headrace registry`: the schema registry of this project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import Format, Output, OutputOption
from headrace.cli.topics import BootstrapOption

NOT_RUNNING = 3

app = typer.Typer(no_args_is_help=True, help="The schema registry of this project.")


@app.command()
def start(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="where clients connect; a free one is chosen if left out")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="listen beyond this machine; needs HEADRACE_REGISTRY_LOGIN=user:password")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="speak TLS with this certificate (PEM)")] = None,
    key: Annotated[Path | None, typer.Option(help="the key of the certificate, if it is in another file")] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Start the registry, or say where it runs already. It runs until `headrace registry stop`."""
    from headrace.contracts.embedded import EmbeddedRegistry
    from headrace.log.broker import default_bootstrap

    out = Output.of(output)
    with out.progress() as progress:
        EmbeddedRegistry(
            bootstrap or default_bootstrap(), port=port, host=host, certificate=certificate, key=key, attached=False
        ).start(progress)
    _print(out)


@app.command()
def stop(output: OutputOption = Format.TEXT) -> None:
    """Stop the registry. Its schemas stay, in Kafka."""
    from headrace.contracts.embedded import stop_registry

    stopped = stop_registry()
    text = "the registry does not run" if stopped is None else f"stopped the registry at {stopped.url}"
    Output.of(output).record({"stopped": stopped is not None}, text)


@app.command()
def status(output: OutputOption = Format.TEXT) -> None:
    """Say whether the registry runs, and where. Exits with 3 if it does not."""
    if not _print(Output.of(output)):
        raise typer.Exit(NOT_RUNNING)


def _print(out: Output) -> bool:
    from headrace.contracts.embedded import default_registry_dir, running_registry

    running = running_registry()
    if running is None:
        folder = default_registry_dir()
        out.record({"running": False, "folder": str(folder)}, f"the registry does not run (its log is in {folder})")
        return False
    fields = {
        "running": True,
        "url": running.url,
        "bootstrap": running.bootstrap,
        "pid": running.pid,
        "started": running.started,
    }
    text = f"the registry runs at {running.url} (process {running.pid}, since {running.started})"
    out.record(fields, f"{text}\nits schemas are in Kafka at {running.bootstrap}")
    return True
