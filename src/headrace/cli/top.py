"""`headrace top`: the dashboard's numbers in the terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.dashboard import AlarmsOption, alarms_of
from headrace.cli.output import Format, Output, OutputOption
from headrace.cli.run import Bootstrap
from headrace.errors import BrokerUnavailableError
from headrace.log.broker import default_bootstrap

if TYPE_CHECKING:
    from headrace.ops.watch import Watch


def top(
    pipeline: Annotated[str | None, typer.Argument(help="one pipeline in full; the first if left out")] = None,
    bootstrap: Bootstrap = None,
    alarms: AlarmsOption = None,
    once: Annotated[bool, typer.Option("--once", help="look for a few seconds, print, and end")] = False,
    output: OutputOption = Format.TEXT,
) -> None:
    """Show the golden numbers of every pipeline, live, until Ctrl-C.

    Into a pipe, and with --output json, it prints a line for each pipeline every five seconds.
    """
    from headrace.ops.runs import unknown_pipeline
    from headrace.ops.watch import KafkaSource, Watch

    servers = bootstrap or default_bootstrap()
    watch = Watch(KafkaSource(servers), alarms_of(alarms))
    try:
        watch.look()  # a broker that is not there is an error here, and not an empty screen
        if pipeline is not None and pipeline not in watch.runs.pipelines:
            raise unknown_pipeline(pipeline, list(watch.runs.pipelines))
        watch.start()
        if output is Format.TEXT and sys.stdout.isatty() and not once:
            _live(watch, servers, pipeline)
        else:
            _lines(watch, output, pipeline, once)
    except KeyboardInterrupt:
        return
    finally:
        watch.close()


def _live(watch: Watch, servers: str, pipeline: str | None) -> None:
    from rich.live import Live

    from headrace.ops.terminal import screen

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            summary = watch.summary()
            chosen = pipeline or next((p["name"] for p in summary["pipelines"]), None)
            detail = None if chosen is None else watch.detail(chosen)
            live.update(screen(summary, detail, servers), refresh=True)
            time.sleep(1)


def _lines(watch: Watch, output: Format, pipeline: str | None, once: bool) -> None:
    from headrace.ops.terminal import line_of

    out = Output.of(output)
    while True:
        looks = watch.looks
        while watch.looks < looks + 5:  # rates need a few looks
            if watch.problem is not None and once:
                raise BrokerUnavailableError(watch.problem, fix="check the address given with --bootstrap")
            time.sleep(0.2)
        summary = watch.summary()
        lines = [p for p in summary["pipelines"] if pipeline in (None, p["name"])]
        for line in lines:
            out.record({"at": summary["at"], **line}, line_of(line))
        if not lines and output is Format.TEXT:
            out.record({}, "no pipeline has run here yet")
        if once:
            return
