"""`headrace demo`: card-fraud alerts in milliseconds, with everything that it takes, from one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headrace.cli.output import Format, OutputOption


def demo(
    seconds: Annotated[
        float | None, typer.Option(min=1, help="how long, after the warm-up; until Ctrl-C if left out")
    ] = None,
    rate: Annotated[float, typer.Option(min=1, max=5000, help="transactions per second")] = 200,
    seed: Annotated[int, typer.Option(help="the same seed gives the same transactions")] = 1,
    screenshot: Annotated[
        Path | None, typer.Option(hidden=True, help="where to write the last screen as SVG, for the documentation")
    ] = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Run the fraud example on generated traffic, and account for every transaction.

    Starts a Kafka broker, a generator of card transactions, and the fraud job in real-time mode, shows what happens,
    and stops it all. The last line is a JSON object; the exit code is 0 only if nothing was lost.
    """
    from headrace.demo.orchestration import Options, run

    console = Console(quiet=output is Format.JSON)
    summary = run(Options(seconds=seconds, rate=rate, seed=seed, screenshot=screenshot), console)
    console.print(summary.render())
    print(summary.to_json(), flush=True)
    if summary.failure is not None:
        raise summary.failure
    raise typer.Exit(0 if summary.succeeded else 1)
