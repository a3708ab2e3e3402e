"""What a registry keeps: schemas with a type, an id and references to others. Plain values; nothing is parsed here."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidContractError


class SchemaType(enum.StrEnum):
    """The languages in which a schema may be written, by the names that registries use."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"

    @classmethod
    def named(cls, name: str | None) -> SchemaType:
        """The type of that name; a registry leaves the name out for Avro.

        >>> SchemaType.named(None), SchemaType.named("json")
        (<SchemaType.AVRO: 'AVRO'>, <SchemaType.JSON: 'JSON'>)
        """
        if not name:
            return cls.AVRO
        try:
            return cls(name.upper())
        except ValueError:
            raise InvalidContractError(
                f"`{name}` is not a type of schema.", fix=f"one of {', '.join(each.value for each in cls)}"
            ) from None


@dataclass(frozen=True)
class Reference:
    """A schema that another one uses: the name by which it is used, and the version of a subject that is meant.

    The name is a full name in Avro, the path of an import in Protobuf, a URI in JSON Schema.
    """

    name: str
    subject: str
    version: int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Reference:
        """From its form in the REST API."""
        return cls(str(fields["name"]), str(fields["subject"]), int(fields["version"]))

    def to_json(self) -> dict[str, object]:
        """Its form in the REST API."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class Schema:
    """A schema as a registry knows it by its id.

    >>> Schema(1, SchemaType.AVRO, '"string"').references
    ()
    """

    id: int
    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RegisteredSchema(Schema):
    """A schema with the place where it is registered.

    >>> RegisteredSchema(id=1, type=SchemaType.AVRO, text='"string"', subject="names-value", version=3).version
    3
    """

    subject: str
    version: int


def resolve_references(references: Iterable[Reference], fetch: Callable[[str, int], Schema]) -> dict[str, Schema]:
    """The schemas that are referred to, and those that they refer to, by name, each after the ones that it needs.

    `fetch` gives a version of a subject, as `RegistryClient.version` does.

    >>> uses_a = Schema(2, SchemaType.AVRO, "...", (Reference("A", "a", 1),))
    >>> known = {"a": Schema(1, SchemaType.AVRO, "..."), "b": uses_a}
    >>> list(resolve_references([Reference("B", "b", 1)], lambda subject, version: known[subject]))
    ['A', 'B']
    """
    resolved: dict[str, Schema] = {}
    sources: dict[str, Reference] = {}

    def visit(reference: Reference, path: tuple[str, ...]) -> None:
        if reference.name in path:
            raise InvalidContractError(
                f"the references of schemas go round in a circle: {' -> '.join((*path, reference.name))}.",
                fix="move what both need into a third schema",
            )
        known = sources.setdefault(reference.name, reference)
        if (known.subject, known.version) != (reference.subject, reference.version):
            raise InvalidContractError(
                f"`{reference.name}` is meant to be two schemas: version {known.version} of `{known.subject}` "
                f"and version {reference.version} of `{reference.subject}`.",
                fix="use the same version everywhere",
            )
        if reference.name in resolved:
            return
        schema = fetch(reference.subject, reference.version)
        for inner in schema.references:
            visit(inner, (*path, reference.name))
        resolved[reference.name] = schema

    for reference in references:
        visit(reference, ())
    return resolved
