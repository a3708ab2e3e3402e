"""Contracts: the schema that a topic's producers and consumers agree on, by the subject that names it in a registry.

Naming one asks nobody. The registry is asked when the pipeline is run or explained; a contract with a schema file of
its own is known here and now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import InvalidSchemaError, PipelineError
from headrace.pipeline.arguments import Argument, Reading
from headrace.pipeline.avro_columns import avro_columns
from headrace.pipeline.json_columns import json_columns
from headrace.pipeline.location import caller_location
from headrace.pipeline.proto_columns import proto_columns, proto_layout
from headrace.pipeline.schema import Schema

_KINDS = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


@dataclass(frozen=True)
class ContractSchema:
    """A schema with the texts of all that it refers to, by name, each after what it needs itself."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    id: int | None = None
    """Its id in the registry, once it is known."""
    version: int | None = None

    def columns(self, message: str = "") -> Schema:
        """The columns that rows of it have."""
        match self.kind:
            case "AVRO":
                return avro_columns(self.text, self.references).schema
            case "JSON":
                return json_columns(self.text, self.references)
            case _:
                return proto_columns(self.text, self.references, message)

    def required(self) -> frozenset[str]:
        """The columns that a writer can't leave out."""
        if self.kind == "AVRO":
            return avro_columns(self.text, self.references).required
        if self.kind == "JSON":
            return frozenset(c.name for c in json_columns(self.text, self.references).columns if not c.nullable)
        return frozenset()

    def spec(self, message: str = "") -> dict[str, object]:
        """For the kernel. Of a Protobuf schema it gets what its bytes mean, read here."""
        text = self.text
        if self.kind == "PROTOBUF":
            text = proto_layout(self.text, self.references, message)
        return {"kind": self.kind, "text": text, "references": [list(r) for r in self.references], "message": message}


@dataclass(frozen=True)
class Contract(Argument):
    """A subject of the registry, and which schema of it is meant. Made by `hr.contract`.

    >>> contract("transactions-value", version=3)
    Contract(subject='transactions-value', version=3, message='', file=None, schema=None)
    """

    subject: str
    version: int | None = None
    message: str = ""
    file: str | None = None
    schema: ContractSchema | None = None
    """None until the registry is asked, or a file read."""

    def with_schema(self, schema: ContractSchema) -> Contract:
        """The same with its schema known."""
        return replace(self, schema=schema)

    def columns(self) -> Schema | None:
        """The columns, if the schema is known."""
        return None if self.schema is None else self.schema.columns(self.message)


def contract(
    subject: str, *, schema: str | Path | None = None, version: int | None = None, message: str = ""
) -> Contract:
    """A contract with more than its subject: a schema file of your own, a pinned version, or a Protobuf message.

    Without a version, a pipeline reads with the latest one that is registered when it starts. A `schema` file
    (.avsc, .proto or .json) makes its columns known with no registry; when the pipeline starts it is compared with what
    is registered, and for an output registered. `message` names one of several messages of a .proto.

    >>> import headrace as hr
    >>> orders = hr.contract("orders-value", version=3)
    >>> orders.subject, orders.version
    ('orders-value', 3)
    """
    reading = Reading("contract")
    if not isinstance(subject, str) or not subject.strip():
        fix = 'name a subject of the registry, like hr.contract("transactions-value").'
        reading.refuse(f"contract(...) takes the name of a subject, not {subject!r}.", None, fix)
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 1):
        reading.refuse(f"contract(..., version={version!r}) is no version.", None, "pass 1 or a number above it.")
    if schema is not None and version is not None:
        what = "contract(...) has both a schema file and a version."
        reading.refuse(what, "Each says which schema is meant.", "keep one of the two.")
    found = None
    if schema is not None:
        try:
            found = _from_file(Path(schema), message)
        except PipelineError as problem:
            reading.refuse(f'contract("{subject}", schema=...): {problem.what}', problem.why, problem.fix)
    if found is not None and message and found.kind != "PROTOBUF":
        what = f"contract(..., message={message!r}) names a message, but {schema} is no Protobuf schema."
        reading.refuse(what, None, "leave out message=...")
    file = None if schema is None else str(schema)
    return Contract(str(subject), version, message, file, found, problems=reading.problems)


def _from_file(path: Path, message: str) -> ContractSchema:
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise PipelineError(f"{path} is no schema file by its name.", fix="use .avsc, .proto or .json.")
    # As written, or beside the module that declares the pipeline.
    beside = Path(caller_location().file).parent / path
    found = path if path.exists() else beside
    try:
        text = found.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = f"{type(problem).__name__}: {getattr(problem, 'strerror', None) or problem}"
        raise PipelineError(f"{path} can't be read.", why=why, fix="check the path.") from problem
    schema = ContractSchema(kind, text)
    try:
        schema.columns(message)
    except InvalidSchemaError as problem:
        raise PipelineError(f"{path}: {problem.what}", why=problem.why, fix=problem.fix) from problem
    return schema


def as_contract(value: object, reading: Reading) -> Contract:
    """What a step was given as its contract: the name of a subject, or what `hr.contract` made."""
    if isinstance(value, str) and value.strip():
        return Contract(value)
    fix = 'pass the name of a subject, like "transactions-value", or hr.contract(...).'
    return reading.argument(value, Contract, Contract("unknown"), "a contract", fix, "contract")
