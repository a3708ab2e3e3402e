"""`headrace topics`: the topics of a cluster."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from headrace.cli.output import Format, Output, OutputOption
from headrace.log.broker import default_bootstrap
from headrace.log.topics import DEFAULT_PARTITIONS, Topics

app = typer.Typer(no_args_is_help=True, help="The topics of a Kafka cluster.")

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="the cluster; else HEADRACE_BOOTSTRAP, else the embedded broker of this project",
    ),
]
NameArgument = Annotated[str, typer.Argument(help="the topic")]


@app.command("list")
def list_topics(
    bootstrap: BootstrapOption = None,
    internal: Annotated[bool, typer.Option("--internal", help="also those that Kafka keeps for itself")] = False,
    output: OutputOption = Format.TEXT,
) -> None:
    """List the topics."""
    found = _topics(bootstrap).list(internal=internal)
    columns = ("name", "partitions", "replication")
    Output.of(output).rows(columns, [dataclasses.asdict(topic) for topic in found], empty="there are no topics yet")


@app.command()
def create(
    name: NameArgument,
    partitions: Annotated[int, typer.Option(min=1)] = DEFAULT_PARTITIONS,
    replication: Annotated[int | None, typer.Option(min=1, help="copies; default: the cluster's")] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="a setting of the topic; may be given several times")
    ] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="no error if it exists already")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Create a topic."""
    settings = dict(_setting(text) for text in config or ())
    created = _topics(bootstrap).create(name, partitions, replication, settings, exist_ok)
    text = f"created topic `{name}` with {partitions} partitions" if created else f"topic `{name}` exists already"
    Output.of(output).record({"topic": name, "created": created}, text)


@app.command()
def describe(name: NameArgument, bootstrap: BootstrapOption = None, output: OutputOption = Format.TEXT) -> None:
    """Show the partitions of a topic, their offsets, and its own settings."""
    found = _topics(bootstrap).describe(name)
    settings = ", ".join(f"{key}={value}" for key, value in found.config.items()) or "the broker's defaults"
    records = sum(partition.end - partition.begin for partition in found.partitions)
    text = f"topic {found.name}: {records} offsets in {len(found.partitions)} partitions; settings: {settings}"
    columns = ("partition", "leader", "replicas", "isr", "begin", "end")
    Output.of(output).sheet(dataclasses.asdict(found), text, columns=columns, rows="partitions")


@app.command()
def delete(name: NameArgument, bootstrap: BootstrapOption = None, output: OutputOption = Format.TEXT) -> None:
    """Delete a topic with its data."""
    _topics(bootstrap).delete(name)
    Output.of(output).record({"topic": name, "deleted": True}, f"deleted topic `{name}`")


def _topics(bootstrap: str | None) -> Topics:
    return Topics(bootstrap or default_bootstrap())


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"`{text}` is not KEY=VALUE", param_hint="--config")
    return key, value
