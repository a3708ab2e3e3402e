"""`headrace doctor [PIPELINE]...`: measures, then says what is wrong, why, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from headrace.cli.output import Format, Output, OutputOption
from headrace.cli.run import Bootstrap
from headrace.log.broker import default_bootstrap

if TYPE_CHECKING:
    from headrace.ops.doctor.rules import Finding

TROUBLE = 3


def doctor(
    pipelines: Annotated[
        list[str] | None, typer.Argument(metavar="[PIPELINE]...", help="by name; all that have run here if left out")
    ] = None,
    bootstrap: Bootstrap = None,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="how long to measure")] = 10,
    files: Annotated[
        list[Path] | None, typer.Option(exists=True, file_okay=False, help="a folder of output files to look at too")
    ] = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Measure the pipelines of a cluster for some seconds, and explain what is wrong with them.

    Exits with 0 if nothing is, and with 3 if something is.
    """
    from headrace.ops.doctor.evidence import gather
    from headrace.ops.doctor.rules import diagnose

    servers = bootstrap or default_bootstrap()
    out = Output.of(output)
    with out.progress() as progress:
        evidence = gather(servers, seconds, pipelines or (), files or (), progress)
    findings = [finding for each in evidence for finding in diagnose(each)]
    if output is Format.JSON:
        for finding in findings:
            out.record(finding.to_dict(), "")
    else:
        names = ", ".join(e.pipeline.name for e in evidence) or "no pipeline has run here yet"
        _print(findings, names)
    if findings:
        raise typer.Exit(TROUBLE)


def _print(findings: list[Finding], names: str) -> None:
    console = Console()
    if not findings:
        console.print(f"nothing is wrong: {names}", markup=False, highlight=False)
    for finding in findings:
        fields = finding.to_dict()
        console.print(Text.assemble((fields["name"], "bold red"), "  ", (fields["pipeline"], "bold")))
        for name in ("evidence", "cause", "fix", "command"):
            console.print(Text.assemble((f"  {name:<9}", "dim"), fields[name]), soft_wrap=True)
        console.print()
