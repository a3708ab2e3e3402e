"""The `headrace` command. Importing it is quick: what is heavy is imported by the command that needs it."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from headrace.cli import broker, contracts, dead_letters, registry, tables, topics
from headrace.cli.dashboard import dashboard
from headrace.cli.demo import demo
from headrace.cli.doctor import doctor
from headrace.cli.explain import explain
from headrace.cli.output import Format, Output
from headrace.cli.prepare import prepare
from headrace.cli.run import run
from headrace.cli.top import top
from headrace.errors import EnvironmentProblem, HeadraceError

_VERBOSE = "--verbose"

app = typer.Typer(
    name="headrace",
    help="Streaming pipelines for PySpark users.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(run)
app.command()(explain)
app.command()(dashboard)
app.command()(top)
app.command()(doctor)
app.command()(prepare)
app.add_typer(broker.app, name="broker")
app.add_typer(topics.app, name="topics")
app.add_typer(registry.app, name="registry")
app.add_typer(contracts.app, name="contracts")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(tables.app, name="tables")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and exits: 0 done, 1 a Headrace error, 2 a command that can't be read, 130 interrupted.

    >>> try:
    ...     main(["topics", "list", "--bootstrap", "127.0.0.1:1", "--output", "json"])
    ... except SystemExit as end:
    ...     print(end.code)
    1
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbose = _VERBOSE in words
    try:
        # --verbose may stand anywhere: it is added to a command that has just failed, at its end.
        app(args=[word for word in words if word != _VERBOSE], prog_name="headrace")
    except HeadraceError as error:
        Output.of(_asked_format(words)).error(error, verbose=verbose)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as problem:
        if problem.filename is None:  # not about a file of the user's
            raise
        unusable = EnvironmentProblem(
            f"{problem.filename}: {problem.strerror}.",
            fix="choose another path, or see that this user may read and write there",
        )
        unusable.__cause__ = problem
        Output.of(_asked_format(words)).error(unusable, verbose=verbose)
        sys.exit(1)


def _print_version(asked: bool) -> None:
    if asked:
        try:
            print(importlib.metadata.version("headrace"))
        except importlib.metadata.PackageNotFoundError:
            print("not installed: this runs from a source tree")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print it")
    ] = False,
    verbose: Annotated[bool, typer.Option(_VERBOSE, help="show the trace of an error; may stand anywhere")] = False,
) -> None:
    """Streaming pipelines for PySpark users."""


def _asked_format(words: Sequence[str]) -> Format:
    """The output format, read from the words themselves: an error may come before or after typer has read them."""
    text = " ".join(words)
    return Format.JSON if "--output json" in text or "--output=json" in text else Format.TEXT
