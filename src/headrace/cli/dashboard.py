"""`headrace dashboard`: the golden numbers of every pipeline, on a page of this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import Format, Output, OutputOption
from headrace.cli.run import Bootstrap
from headrace.errors import DashboardError
from headrace.log.broker import default_bootstrap

if TYPE_CHECKING:
    from headrace.ops.alarming import Alarms

TOKEN = "HEADRACE_TOKEN"
WEBHOOK = "HEADRACE_WEBHOOK"

AlarmsOption = Annotated[
    Path | None, typer.Option("--alarms", help="a YAML file of alarms; default: sensible ones for every pipeline")
]


def dashboard(
    bootstrap: Bootstrap = None,
    host: Annotated[str, typer.Option(help="where to listen; anything but loopback needs a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8430,
    alarms: AlarmsOption = None,
    grafana: Annotated[bool, typer.Option("--grafana", help="print the Grafana dashboard as JSON, and end")] = False,
    output: OutputOption = Format.TEXT,
) -> None:
    """Show every pipeline of a cluster on a web page, live, until Ctrl-C.

    The token is read from HEADRACE_TOKEN, and where alarms are posted to from HEADRACE_WEBHOOK: an
    argument would be seen in the list of processes.
    """
    if grafana:
        import json

        from headrace.ops.exposition import grafana_dashboard

        print(json.dumps(grafana_dashboard(), indent=2))
        return
    from headrace.ops.watch import KafkaSource, Watch
    from headrace.ops.web.server import Address, Dashboard

    address = Address(host, port, os.environ.get(TOKEN) or None)
    address.check()
    servers = bootstrap or default_bootstrap()
    watch = Watch(KafkaSource(servers), load_alarms(alarms, servers))
    ended = threading.Event()
    handlers = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Dashboard(watch, address) as running:
            fields = {"url": running.url, "bootstrap": servers, "pid": os.getpid()}
            Output.of(output).record(fields, f"dashboard of {servers}: {running.url}   (Ctrl-C stops)")
            sys.stdout.flush()
            ended.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def load_alarms(file: Path | None, bootstrap: str) -> Alarms:
    """The alarms of a file or the defaults, told to the log, the terminal and the webhook."""
    from headrace.ops.alarming import to_topic, to_webhook

    alarms = alarms_of(file)
    to_topic(alarms, bootstrap)
    webhook = os.environ.get(WEBHOOK)
    if webhook:
        to_webhook(alarms, webhook, _say)
    alarms.on_change(lambda c: _say(f"{c['at'][11:19]} {c['event']}: {c['pipeline']}: {c['alarm']} (now {c['shown']})"))
    return alarms


def alarms_of(file: Path | None) -> Alarms:
    """The alarms of a file, or the defaults."""
    from headrace.ops.alarming import Alarms, read_alarms

    if file is None:
        return Alarms()
    try:
        return read_alarms(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as problem:
        raise DashboardError(f"{file} can't be read.", why=str(problem), fix="check --alarms") from problem


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
