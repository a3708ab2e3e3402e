"""The columns of a Protobuf message, and for the kernel what its bytes mean."""

from __future__ import annotations

import functools
import json
from typing import Any

from headrace.errors import InvalidSchemaError, closest
from headrace.pipeline.ddl import Column, check_names, struct_type
from headrace.pipeline.proto_text import ProtoField, ProtoFile, ProtoMessage, parse_proto
from headrace.pipeline.schema import Schema

_SCALARS = {
    "double": "double",
    "float": "float",
    "int32": "int",
    "sint32": "int",
    "sfixed32": "int",
    "uint32": "bigint",
    "fixed32": "bigint",
    "int64": "bigint",
    "sint64": "bigint",
    "sfixed64": "bigint",
    "uint64": "decimal(20,0)",
    "fixed64": "decimal(20,0)",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
}
_WRAPPED = {
    "DoubleValue": "double",
    "FloatValue": "float",
    "Int64Value": "int64",
    "UInt64Value": "uint64",
    "Int32Value": "int32",
    "UInt32Value": "uint32",
    "BoolValue": "bool",
    "StringValue": "string",
    "BytesValue": "bytes",
}
_GOOGLE = """
syntax = "proto3"; package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Any { string type_url = 1; bytes value = 2; }
""" + "".join(f"message {name} {{ {type} value = 1; }}\n" for name, type in _WRAPPED.items())


def proto_columns(text: str, references: tuple[tuple[str, str], ...] = (), message: str = "") -> Schema:
    """The columns of a message of the schema: the one named, else the first of the file.

    A scalar that proto3 does not mark `optional` is never null: absent is its default.

    >>> proto_columns('syntax = "proto3"; message Click { string user = 1; optional int32 x = 2; }').ddl()
    '`user` string NOT NULL, `x` int'
    """
    return _schema(text, references, message)[0]


def proto_layout(text: str, references: tuple[tuple[str, str], ...] = (), message: str = "") -> str:
    """The message for the kernel: its name, its path in the file, and its fields, as JSON."""
    return _schema(text, references, message)[1]


@functools.lru_cache(maxsize=256)
def _schema(text: str, references: tuple[tuple[str, str], ...], message: str) -> tuple[Schema, str]:
    own = parse_proto(text)
    files = [parse_proto(_GOOGLE), *(parse_proto(reference) for _, reference in references), own]
    types = _Types(files)
    chosen = _chosen(own, message)
    columns, layout = types.message(chosen, ())
    return Schema(columns), json.dumps({"message": chosen.name, "path": list(chosen.path), "fields": layout})


def _chosen(file: ProtoFile, name: str) -> ProtoMessage:
    if not file.messages:
        raise InvalidSchemaError("the schema has no message.")
    if not name:
        return next(iter(file.messages.values()))
    for full in (name, f"{file.package}.{name}"):
        if full in file.messages:
            return file.messages[full]
    meant = closest(name, file.messages)
    raise InvalidSchemaError(
        f"the schema has no message `{name}`.",
        fix=f"{f'did you mean `{meant}`? ' if meant else ''}Messages: {', '.join(file.messages)}",
    )


class _Types:
    def __init__(self, files: list[ProtoFile]) -> None:
        self._messages = {name: message for file in files for name, message in file.messages.items()}
        self._enums = {name: values for file in files for name, values in file.enums.items()}

    def message(self, message: ProtoMessage, parents: tuple[str, ...]) -> tuple[tuple[Column, ...], list[Any]]:
        if message.name in parents:
            raise InvalidSchemaError(
                f"message `{message.name}` contains itself.", why="A Spark type has a fixed depth.", fix="unfold it."
            )
        columns, layout = [], []
        for field in message.fields:
            spark, spec, is_message = self._type(field.type, message.name, (*parents, message.name))
            if field.map_key is not None:
                key_spark, key_spec, _ = self._type(field.map_key, message.name, parents)
                spark, spec = f"map<{key_spark},{spark}>", {"kind": "map", "key": key_spec, "value": spec}
            elif field.repeated:
                spark, spec = f"array<{spark}>", {"kind": "array", "element": spec, "packed": field.packed}
            nullable = not field.repeated and (field.presence or is_message) and not field.required
            columns.append(Column(field.name, spark, nullable))
            layout.append({**_place(field, nullable), "type": spec})
        if not columns:
            raise InvalidSchemaError(f"message `{message.name}` has no fields.", why="A row has at least one column.")
        check_names(column.name for column in columns)
        return tuple(columns), layout

    def _type(self, name: str, scope: str, parents: tuple[str, ...]) -> tuple[str, dict[str, Any], bool]:
        """The Spark type, what the kernel needs to know, and whether it is a message: they may be absent."""
        if name in _SCALARS:
            return _SCALARS[name], {"kind": name}, False
        full = self._resolve(name, scope)
        if full in self._enums:
            numbers = {str(number): value for number, value in self._enums[full].items()}
            return "string", {"kind": "enum", "name": full, "values": numbers}, False
        if full == "google.protobuf.Timestamp":
            return "timestamp", {"kind": "timestamp"}, True
        short = full.removeprefix("google.protobuf.")
        if short != full and short in _WRAPPED:
            return _SCALARS[_WRAPPED[short]], {"kind": "wrapper", "value": {"kind": _WRAPPED[short]}}, True
        fields, layout = self.message(self._messages[full], parents)
        return struct_type(Column(f.name, f.type) for f in fields), {"kind": "message", "fields": layout}, True

    def _resolve(self, name: str, scope: str) -> str:
        """From the innermost scope outwards, as the language has it."""
        if name.startswith("."):
            candidates = [name[1:]]
        else:
            parts = scope.split(".")
            candidates = [".".join((*parts[:i], name)) for i in range(len(parts), -1, -1)]
        for full in candidates:
            if full in self._messages or full in self._enums:
                return full
        raise InvalidSchemaError(
            f"the schema uses type `{name}`, which neither it nor its references define.",
            why=f"It is used in message `{scope}`.",
        )


def _place(field: ProtoField, nullable: bool) -> dict[str, Any]:
    return {"name": field.name, "number": field.number, "required": field.required, "presence": nullable}
