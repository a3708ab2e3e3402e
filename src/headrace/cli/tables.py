"""`headrace tables`: the Delta tables that streams land in."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Annotated

import typer

from headrace.cli.durations import milliseconds
from headrace.cli.output import Format, Output, OutputOption

app = typer.Typer(no_args_is_help=True, help="The Delta tables that streams land in.")

PathArgument = Annotated[str, typer.Argument(help="the folder of the table")]


@app.command("history")
def show_history(
    path: PathArgument,
    limit: Annotated[int, typer.Option(min=1, help="so many of the newest")] = 20,
    output: OutputOption = Format.TEXT,
) -> None:
    """List the versions of a table, newest first."""
    from headrace.sinks.delta_tables import history

    columns = ("version", "at", "operation", "files_added", "rows")
    Output.of(output).rows(columns, [dataclasses.asdict(c) for c in history(path, limit)], empty="no versions")


@app.command("compact")
def compact_table(
    path: PathArgument,
    target_mb: Annotated[int | None, typer.Option(min=1, help="size of the files to make")] = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Write small files together into larger ones."""
    from headrace.sinks.delta_tables import compact

    done = compact(path, target_mb)
    text = f"{done.removed} files became {done.added}" if done.removed else "there is nothing to compact"
    Output.of(output).record({"path": path, **dataclasses.asdict(done)}, text)


@app.command("vacuum")
def vacuum_table(
    path: PathArgument,
    older_than: Annotated[str, typer.Option(help="keep younger files: somebody may read or write them")] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    output: OutputOption = Format.TEXT,
) -> None:
    """Remove files that no version needs, and those that failed attempts left behind."""
    from headrace.sinks.delta_tables import vacuum

    keep = timedelta(milliseconds=milliseconds(older_than, "--older-than", zero=True))
    gone = vacuum(path, keep, dry_run=dry_run)
    text = f"{len(gone)} files {'would be' if dry_run else 'were'} removed"
    Output.of(output).record({"path": path, "dry_run": dry_run, "files": gone}, text)
