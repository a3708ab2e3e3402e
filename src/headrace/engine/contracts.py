"""The contracts of a run: what the registry has under them, whether the pipeline fits, and how the JVM reaches it.

The registry is asked once, before Spark starts, so that a pipeline under contracts is checked as any other is. After
that the JVM asks it by itself, for the schemas that payloads name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine import sql
from headrace.engine.contract_outputs import Encoding, encoding_of
from headrace.errors import (
    BrokenContractError,
    ContractNotFoundError,
    IncompatibleContractError,
    InvalidContractError,
    InvalidSchemaError,
    closest,
)
from headrace.kernel import doorway
from headrace.pipeline import Pipeline
from headrace.pipeline.contracts import Contract, ContractSchema
from headrace.pipeline.nodes import Node, Read, Write
from headrace.pipeline.plan import Problem

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.contracts import RegistryClient, Schema

PATIENCE_MS = 300_000
"""For how long a task asks a registry that does not answer, before the query stops."""


class Contracts:
    """The registry of one run, asked only if a pipeline has a contract."""

    def __init__(self, registry: str | None = None, *, patience_ms: int = PATIENCE_MS) -> None:
        self._named = registry
        self._patience_ms = patience_ms
        self._opened: RegistryClient | None = None
        self._encodings: dict[Write, Encoding] = {}

    @property
    def client(self) -> RegistryClient:
        """The registry; found when it is first needed."""
        if self._opened is None:
            from headrace.contracts import RegistryClient, registry_url

            self._opened = RegistryClient(registry_url(self._named))
        return self._opened

    def resolved(self, pipeline: Pipeline, *, offline: bool = False) -> Pipeline:
        """The pipeline with the schema of every contract known; what can't be is reported with its other problems.

        `offline` leaves what a schema file says unchecked: to look at a plan needs no registry then.
        """
        if not _has_contracts(pipeline):
            return pipeline
        problems: list[Problem] = []

        def changed(node: Node) -> Node:
            if isinstance(node, Read | Write) and node.contract is not None and not node.contract.problems:
                return self._known(node, problems, offline)
            return node

        return pipeline.rebuilt(changed, problems)

    def decode(self, spark: SparkSession, value: Column, read: Read, reason: str) -> Column:
        """Payloads as a struct of the read's columns and `reason`."""
        assert read.contract is not None
        assert read.contract.schema is not None
        columns = ", ".join(f"{sql.name(c.name)} {c.type}" for c in read.schema.columns)
        spec = read.contract.schema.spec(read.contract.message)
        return doorway.from_contract(spark, value, spec, columns, reason, self._access())

    def encode(self, df: DataFrame, struct: Column, write: Write) -> Column:
        """Rows as a struct of their payload and why there is none. Registers the schema."""
        from pyspark.errors import IllegalArgumentException

        if write not in self._encodings:
            row: Any = df.select(struct.alias("row")).schema[0].dataType
            self._encodings[write] = encoding_of(self.client, write, row)
        encoding = self._encodings[write]
        try:
            return doorway.to_contract(df, struct, encoding.spec, encoding.id)
        except IllegalArgumentException as problem:
            assert write.contract is not None
            raise BrokenContractError(
                f'.write("{write.topic}"): the stream does not fit contract `{write.contract.subject}`.',
                why=str(problem).splitlines()[0].strip(),
                fix="change the column with .select(...) or .with_column(...), or the contract.",
                location=write.location,
            ) from problem

    def _access(self) -> dict[str, Any]:
        return {**self.client.access(), "patienceMs": self._patience_ms}

    def _known(self, node: Read | Write, problems: list[Problem], offline: bool) -> Node:
        contract = node.contract
        assert contract is not None
        try:
            if contract.file is not None:
                if not offline:
                    self._check_file(contract, node)
                return node
            schema = self._registered(contract)
            if schema is None:
                return self._missing(node, problems)
            known = contract.with_schema(schema)
            if isinstance(node, Read):
                return replace(node, contract=known, schema=schema.columns(contract.message))
            return replace(node, contract=known)
        except (InvalidSchemaError, InvalidContractError, IncompatibleContractError) as problem:
            what = f"contract `{contract.subject}` can't be used: {problem.what}"
            problems.append(Problem(BrokenContractError, what, node.location, problem.why, problem.fix))
            return node

    def _registered(self, contract: Contract) -> ContractSchema | None:
        try:
            found = self.client.version(contract.subject, contract.version or "latest")
        except ContractNotFoundError:
            return None
        return contract_schema(self.client, found, found.version)

    def _missing(self, node: Read | Write, problems: list[Problem]) -> Node:
        contract = node.contract
        assert contract is not None
        if isinstance(node, Write) and contract.version is None:
            return node  # the first version will be made of the stream's columns
        version = "" if contract.version is None else f" version {contract.version} of"
        problems.append(
            Problem(
                BrokenContractError,
                f"the registry has no{version or ' contract'} `{contract.subject}`.",
                node.location,
                f"Registry: {self.client.url}",
                self._others(contract.subject),
            )
        )
        return node

    def _others(self, subject: str) -> str:
        subjects = self.client.subjects()
        if subject in subjects:
            versions = ", ".join(map(str, self.client.versions(subject)))
            return f"use one of its versions: {versions}"
        near = closest(subject, subjects)
        if near:
            return f"did you mean `{near}`?"
        return f"register it first: headrace contracts register {subject} FILE"

    def _check_file(self, contract: Contract, node: Read | Write) -> None:
        """A file is compared with what is registered: under the subject's mode, unless it is registered already."""
        schema = contract.schema
        assert schema is not None
        client = self.client
        if client.lookup(contract.subject, schema.text, schema.kind) is not None:
            return
        broken = client.compatible(contract.subject, schema.text, schema.kind)
        if broken:
            mode = client.compatibility(contract.subject)
            whom = "write" if isinstance(node, Write) else "read"
            raise IncompatibleContractError(
                f"{contract.file} breaks its compatibility mode, {mode}.",
                why="\n".join((f"To {whom} with it, it must fit the versions that are registered:", *broken)),
                fix="change the schema so that it fits, or use another subject.",
            )


def _has_contracts(pipeline: Pipeline) -> bool:
    return any(r.contract for r in pipeline.reads) or any(w.contract for w in pipeline.writes)


def contract_schema(client: RegistryClient, found: Schema, version: int | None) -> ContractSchema:
    """A schema of the registry as a pipeline uses it, with all that it refers to."""
    references = tuple((name, schema.text) for name, schema in client.resolve_references(found).items())
    return ContractSchema(found.type.value, found.text, references, found.id, version)


def as_json(pipeline: Pipeline, registry: str | None) -> Pipeline:
    """The same pipeline with JSON in place of contracts, for tests that send and read plain rows."""
    if not _has_contracts(pipeline):
        return pipeline

    def plain(node: Node, kind: type[Read] | type[Write]) -> Node:
        return replace(node, contract=None) if isinstance(node, kind) else node

    # What an output's schema would be, nobody has to know.
    known = Contracts(registry).resolved(pipeline.rebuilt(lambda node: plain(node, Write)), offline=True)
    known.check()
    return known.rebuilt(lambda node: plain(node, Read))
