"""The three languages of schemas behind one interface: read, write in one form, compare. Each is loaded when needed."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.contracts.breaks import Break
from headrace.contracts.schemas import SchemaType
from headrace.errors import InvalidContractError


@dataclass(frozen=True)
class SchemaSource:
    """A schema with the text of everything that it refers to, by name, each after the ones that it needs itself."""

    type: SchemaType
    text: str
    references: tuple[tuple[str, str], ...] = ()


def canonical(source: SchemaSource, *, normalize: bool = False) -> str:
    """The text to keep, if it is a valid schema; with `normalize`, the same for all that mean the same.

    >>> canonical(SchemaSource(SchemaType.AVRO, '{"type": "string"}'))
    '"string"'
    """
    if not source.text.strip():
        raise InvalidContractError("the schema is empty.")
    if source.type is SchemaType.AVRO:
        from headrace.contracts.avro_schemas import canonical_avro, normalized_avro, parse_avro

        parse_avro(source.text, (text for _, text in source.references))
        return normalized_avro(source.text) if normalize else canonical_avro(source.text)
    if source.type is SchemaType.JSON:
        from headrace.contracts.json_schemas import canonical_json, parse_json_schema

        parse_json_schema(source.text, dict(source.references))
        return canonical_json(source.text, sort=normalize)
    from headrace.contracts.proto_schemas import canonical_proto

    return canonical_proto(source.text, source.references, normalize=normalize)


def breaks(reader: SchemaSource, writer: SchemaSource) -> list[Break]:
    """Why a reader with one schema can't read what is written with the other; empty if it can.

    >>> breaks(SchemaSource(SchemaType.AVRO, '"long"'), SchemaSource(SchemaType.AVRO, '"int"'))
    []
    """
    if reader.type is not writer.type:
        return [Break("SCHEMA_TYPE_CHANGED", "", f"the reader's is {reader.type}, the writer's is {writer.type}")]
    if reader.type is SchemaType.AVRO:
        from headrace.contracts.avro_compatibility import avro_breaks
        from headrace.contracts.avro_schemas import parse_avro

        return avro_breaks(
            parse_avro(reader.text, (text for _, text in reader.references)),
            parse_avro(writer.text, (text for _, text in writer.references)),
        )
    if reader.type is SchemaType.JSON:
        from headrace.contracts.json_compatibility import json_breaks
        from headrace.contracts.json_schemas import parse_json_schema

        return json_breaks(
            parse_json_schema(reader.text, dict(reader.references)),
            parse_json_schema(writer.text, dict(writer.references)),
        )
    from headrace.contracts.proto_compatibility import proto_breaks
    from headrace.contracts.proto_schemas import parse_proto

    return proto_breaks(
        parse_proto(reader.text, reader.references),
        parse_proto(writer.text, writer.references),
    )


def formatted(source: SchemaSource, format: str) -> str:
    """The text in another form: `serialized` is a descriptor in base64 (Protobuf); others are the text as it is."""
    if format == "serialized" and source.type is SchemaType.PROTOBUF:
        from headrace.contracts.proto_schemas import serialized_proto

        return serialized_proto(source.text, source.references)
    return source.text
