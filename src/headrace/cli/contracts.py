"""`headrace contracts`: the schemas of topics, in the registry and in files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import Format, Output, OutputOption

if TYPE_CHECKING:
    from headrace.contracts import RegistryClient

BROKEN = 4

app = typer.Typer(no_args_is_help=True, help="The schemas of topics: register, check, show.")

RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry", metavar="URL", help="the registry; else HEADRACE_REGISTRY, else the embedded one of this project"
    ),
]
SubjectArgument = Annotated[str, typer.Argument(help="the subject, such as transactions-value")]
FileArgument = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="the schema: .avsc, .json or .proto")]
TypeOption = Annotated[str | None, typer.Option("--type", help="avro, json or protobuf; else by the name of the file")]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference", metavar="NAME=SUBJECT:VERSION", help="a schema that it uses; may be given several times"
    ),
]


@app.command()
def register(
    subject: SubjectArgument,
    file: FileArgument,
    type: TypeOption = None,
    reference: ReferenceOption = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="write it in one form first")] = False,
    registry: RegistryOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Register a schema under a subject, unless it is there already."""
    from headrace.contracts.files import read_schema_file

    client = _client(registry)
    local = read_schema_file(file, type, reference or ())
    id = client.register(subject, local.text, local.type, local.references, normalize=normalize)
    found = client.lookup(subject, local.text, local.type, local.references, normalize=normalize)
    version = None if found is None else found.version
    Output.of(output).record(
        {"subject": subject, "id": id, "version": version}, f"{subject}: version {version}, id {id}"
    )


@app.command()
def check(
    files: Annotated[
        list[str], typer.Argument(metavar="SUBJECT=FILE...", help="or files: FILE is the subject without its suffix")
    ],
    type: TypeOption = None,
    reference: ReferenceOption = None,
    registry: RegistryOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Compare local schema files with the registry, under each subject's mode. Exits with 4 if one breaks."""
    from headrace.contracts.files import check_file, subject_and_file

    client = _client(registry)
    out = Output.of(output)
    broken = False
    for word in files:
        subject, path = subject_and_file(word)
        result = check_file(client, subject, path, type, reference or ())
        broken = broken or not result.compatible
        out.record(result.to_dict(), result.render())
    if broken:
        raise typer.Exit(BROKEN)


@app.command("list")
def list_contracts(registry: RegistryOption = None, output: OutputOption = Format.TEXT) -> None:
    """List the subjects with their latest versions and their compatibility."""
    client = _client(registry)

    def row(subject: str) -> dict[str, object]:
        latest = client.latest(subject)
        return {
            "subject": subject,
            "version": latest.version,
            "id": latest.id,
            "type": latest.type.value,
            "compatibility": client.compatibility(subject),
        }

    with ThreadPoolExecutor(8) as pool:  # two questions for each subject, and there may be thousands
        rows = list(pool.map(row, client.subjects()))
    columns = ("subject", "version", "id", "type", "compatibility")
    Output.of(output).rows(columns, rows, empty="there are no contracts yet")


@app.command()
def show(
    subject: SubjectArgument,
    version: Annotated[str, typer.Option(help="a number, or latest")] = "latest",
    registry: RegistryOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Show a schema."""
    from headrace.contracts.files import pretty

    found = _client(registry).version(subject, version)
    references = [each.to_json() for each in found.references]
    fields = {
        "subject": subject,
        "version": found.version,
        "id": found.id,
        "type": found.type.value,
        "references": references,
        "schema": found.text,
    }
    used = "".join(f"\nuses {each.name}: {each.subject}, version {each.version}" for each in found.references)
    head = f"{subject}, version {found.version}, id {found.id}, {found.type.value}{used}"
    Output.of(output).record(fields, f"{head}\n{pretty(found.type, found.text)}")


@app.command()
def diff(
    subject: SubjectArgument,
    old: Annotated[str, typer.Argument(help="a version")],
    new: Annotated[str, typer.Argument(help="a version, or a file")] = "latest",
    type: TypeOption = None,
    reference: ReferenceOption = None,
    registry: RegistryOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Show what changed between two versions, or between a version and a file, and what the change breaks."""
    from headrace.contracts.files import differences

    result = differences(_client(registry), subject, old, new, type, reference or ())
    Output.of(output).record(result.to_dict(), result.render())


@app.command("set-compatibility")
def set_compatibility(
    mode: Annotated[str, typer.Argument(help="BACKWARD, FORWARD, FULL, each also with _TRANSITIVE, or NONE")],
    subject: Annotated[
        str | None, typer.Argument(help="the subject; all that have no mode of their own if left out")
    ] = None,
    registry: RegistryOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Set which changes a subject allows."""
    set_to = _client(registry).set_compatibility(mode.upper(), subject)
    text = f"{subject or 'all subjects without a mode of their own'}: {set_to}"
    Output.of(output).record({"subject": subject, "compatibility": set_to}, text)


def _client(url: str | None) -> RegistryClient:
    from headrace.contracts import RegistryClient, registry_url

    return RegistryClient(registry_url(url))
