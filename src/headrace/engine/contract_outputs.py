"""The schema that an output under a contract is written with: given, pinned, registered, or made of its columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.engine.avro_schemas import evolved
from headrace.errors import BrokenContractError, IncompatibleContractError, InvalidContractError, InvalidSchemaError
from headrace.pipeline.contracts import Contract, ContractSchema
from headrace.pipeline.nodes import Write

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.contracts import RegistryClient


@dataclass(frozen=True)
class Encoding:
    """What the kernel encodes with, and the id that its payloads carry."""

    id: int
    spec: dict[str, object]


def encoding_of(client: RegistryClient, write: Write, row: StructType) -> Encoding:
    """The schema to write rows with, registered under the contract's subject unless it is there.

    A schema file is registered as it is, a pinned version used as it is. Otherwise the latest version is used if the
    columns fit it; if not, an Avro schema is evolved from it, or made anew for a subject that has none.
    """
    contract = write.contract
    assert contract is not None
    try:
        schema = _schema(client, contract, row)
    except (IncompatibleContractError, InvalidContractError, InvalidSchemaError) as problem:
        what = f'.write("{write.topic}", contract=...): {problem.what}'
        raise BrokenContractError(what, why=problem.why, fix=problem.fix, location=write.location) from problem
    assert schema.id is not None
    return Encoding(schema.id, schema.spec(contract.message))


def _schema(client: RegistryClient, contract: Contract, row: StructType) -> ContractSchema:
    known = contract.schema
    if known is not None and contract.file is not None:
        return _registered(client, contract, known.kind, known.text)
    if known is not None and (contract.version is not None or known.kind != "AVRO"):
        return known
    text = None if known is None else known.text
    references = () if known is None else known.references
    made: Any = evolved(text, references, row, contract.subject)
    if known is not None and made is None:
        return known  # the latest version as it is
    return _registered(client, contract, "AVRO", json.dumps(made), known)


def _registered(
    client: RegistryClient, contract: Contract, kind: str, text: str, latest: ContractSchema | None = None
) -> ContractSchema:
    """Registers it, unless that would break the subject's compatibility."""
    references = () if latest is None else client.version(contract.subject, latest.version or "latest").references
    if client.lookup(contract.subject, text, kind, references) is None:
        broken = client.compatible(contract.subject, text, kind, references)
        if broken:
            mode = client.compatibility(contract.subject)
            raise IncompatibleContractError(
                f"the pipeline would write a schema that breaks `{contract.subject}`, whose mode is {mode}.",
                why="\n".join(broken),
                fix="keep the columns that the contract has, give new ones a default, or use another subject.",
            )
    id = client.register(contract.subject, text, kind, references)
    return ContractSchema(kind, text, () if latest is None else latest.references, id)
