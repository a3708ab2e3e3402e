"""Local schema files against the registry: what a check in CI and a look at a change need."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.contracts.breaks import Break, reasons
from headrace.contracts.client import RegistryClient
from headrace.contracts.formats import SchemaSource, breaks
from headrace.contracts.schemas import Reference, Schema, SchemaType, resolve_references
from headrace.errors import ContractNotFoundError, InvalidContractError

_SUFFIXES = {
    ".avsc": SchemaType.AVRO,
    ".avro": SchemaType.AVRO,
    ".json": SchemaType.JSON,
    ".proto": SchemaType.PROTOBUF,
}


@dataclass(frozen=True)
class CheckResult:
    """What a check of one file found. `problems` are sentences, each with the field and the rule."""

    subject: str
    file: str
    mode: str
    compatible: bool
    new: bool
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "subject": self.subject,
            "file": self.file,
            "mode": self.mode,
            "compatible": self.compatible,
            "new_subject": self.new,
            "problems": list(self.problems),
        }

    def render(self) -> str:
        """For people."""
        if self.compatible:
            what = "a new subject" if self.new else f"compatible ({self.mode})"
            return f"ok      {self.subject}: {what}"
        lines = "".join(f"\n        {problem}" for problem in self.problems)
        return f"BREAKS  {self.subject}: {self.file} is not compatible ({self.mode}){lines}"


@dataclass(frozen=True)
class Differences:
    """What changed between two schemas: lines of text, and what each direction breaks."""

    subject: str
    lines: tuple[str, ...]
    backward: tuple[Break, ...]
    forward: tuple[Break, ...]

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "subject": self.subject,
            "changed": bool(self.lines),
            "diff": list(self.lines),
            "breaks_backward": [str(each) for each in self.backward],
            "breaks_forward": [str(each) for each in self.forward],
        }

    def render(self) -> str:
        """For people."""
        if not self.lines:
            return f"{self.subject}: no difference"
        told = [*self.lines, ""]
        told.append(_direction("BACKWARD, new readers on old records", self.backward))
        told.append(_direction("FORWARD, old readers on new records", self.forward))
        return "\n".join(told)


def read_schema_file(path: Path, type: str | None = None, references: Sequence[str] = ()) -> Schema:
    """The schema in a file; its type is told by the suffix unless it is given.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "names.avsc"
    >>> _ = file.write_text('"string"')
    >>> read_schema_file(file).type
    <SchemaType.AVRO: 'AVRO'>
    """
    if type is not None:
        kind = SchemaType.named(type)
    elif path.suffix.lower() in _SUFFIXES:
        kind = _SUFFIXES[path.suffix.lower()]
    else:
        raise InvalidContractError(
            f"which kind of schema `{path}` is can't be told by its name.", fix="say it with --type avro|json|protobuf"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidContractError(f"`{path}` can't be read.", why=f"{error}") from error
    return Schema(-1, kind, text, tuple(parse_reference(each) for each in references))


def parse_reference(text: str) -> Reference:
    """`NAME=SUBJECT:VERSION`.

    >>> parse_reference("money.proto=money-value:3")
    Reference(name='money.proto', subject='money-value', version=3)
    """
    name, equals, rest = text.rpartition("=")
    subject, colon, version = rest.rpartition(":")
    if not (name and equals and subject and colon and (version == "latest" or version.isdigit())):
        raise InvalidContractError(
            f"`{text}` is no reference.", fix="NAME=SUBJECT:VERSION, for instance money.proto=money-value:3"
        )
    return Reference(name, subject, -1 if version == "latest" else int(version))


def subject_and_file(word: str) -> tuple[str, Path]:
    """`SUBJECT=FILE`, or a file that is called as its subject.

    >>> subject_and_file("schemas/transactions-value.avsc")[0]
    'transactions-value'
    """
    subject, equals, path = word.partition("=")
    if not equals:
        return Path(word).stem, Path(word)
    return subject, Path(path)


def check_file(
    client: RegistryClient, subject: str, path: Path, type: str | None = None, references: Sequence[str] = ()
) -> CheckResult:
    """Compares a file with the registry under the mode of the subject. A file that is no schema is not compatible."""
    local = read_schema_file(path, type, references)
    mode = client.compatibility(subject)
    told = client.compatible(subject, local.text, local.type, local.references)
    new = not _known(client, subject)
    problems = told
    if new and not told:
        # There is nothing to compare it with, so the registry may not even have read it.
        problems = _unreadable(client, local)
    return CheckResult(subject, str(path), mode, not problems, new, tuple(reasons(problems)))


def differences(
    client: RegistryClient,
    subject: str,
    old: str,
    new: str,
    type: str | None = None,
    references: Sequence[str] = (),
) -> Differences:
    """What is between two versions of a subject, or a version and a file."""
    before: Schema = client.version(subject, old)
    after: Schema
    if new == "latest" or new.isdigit():
        after = client.version(subject, new)
    else:
        after = read_schema_file(Path(new), type, references)
    was, now = (pretty(each.type, each.text).splitlines() for each in (before, after))
    lines = difflib.unified_diff(was, now, f"{subject} {old}", f"{subject} {new}", lineterm="", n=2)
    sources = [_source(client, each) for each in (before, after)]
    return Differences(
        subject,
        tuple(lines),
        tuple(breaks(sources[1], sources[0])),
        tuple(breaks(sources[0], sources[1])),
    )


def pretty(type: SchemaType, text: str) -> str:
    """The text as people read it.

    >>> print(pretty(SchemaType.AVRO, '{"type":"array","items":"int"}'))
    {
      "type": "array",
      "items": "int"
    }
    """
    if type is SchemaType.PROTOBUF:
        return text.strip()
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _known(client: RegistryClient, subject: str) -> bool:
    try:
        return bool(client.versions(subject))
    except ContractNotFoundError:
        return False


def _source(client: RegistryClient, schema: Schema) -> SchemaSource:
    resolved = resolve_references(
        schema.references,
        lambda subject, version: client.version(subject, "latest" if version < 0 else version, deleted=True),
    )
    return SchemaSource(schema.type, schema.text, tuple((name, each.text) for name, each in resolved.items()))


def _unreadable(client: RegistryClient, schema: Schema) -> list[str]:
    from headrace.contracts.formats import canonical

    try:
        canonical(_source(client, schema))
    except InvalidContractError as error:
        return [" ".join(filter(None, (error.what, error.why)))]
    return []


def _direction(name: str, found: Sequence[Break]) -> str:
    if not found:
        return f"{name}: nothing breaks"
    return f"{name}: breaks" + "".join(f"\n  {each}" for each in found)
