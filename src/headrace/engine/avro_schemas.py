"""Avro schemas made of the columns of a stream."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidSchemaError
from headrace.pipeline.avro_columns import avro_columns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = {
    "string": "string",
    "bigint": "long",
    "int": "int",
    "smallint": "int",
    "tinyint": "int",
    "double": "double",
    "float": "float",
    "boolean": "boolean",
    "binary": "bytes",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
}
_WIDER = {
    "tinyint": {"int", "bigint"},
    "smallint": {"int", "bigint"},
    "int": {"bigint", "double"},
    "float": {"double"},
}


def evolved(
    latest: str | None, references: tuple[tuple[str, str], ...], row: StructType, subject: str
) -> dict[str, Any] | None:
    """The schema of rows of these columns, with the fields of the latest version where they fit; None if all do.

    A new field may be null and has null as its default, so that readers with either schema read both. A field of the
    latest version that is no column any more is left out, unless it has a default, which is then written.
    """
    if latest is None:
        return _record(_record_name(subject), row)
    schema = json.loads(latest) if latest.strip()[:1] in ("{", "[", '"') else latest.strip()
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return None  # no record: the kernel says whether the column fits
    known = avro_columns(latest, references).schema
    columns = {field.name: field.dataType for field in row.fields}
    fields, changed = [], False
    for field in schema["fields"]:
        name = field["name"]
        if name not in columns:
            changed = changed or "default" not in field
            if "default" in field:
                fields.append(field)
        elif _fits(columns[name].simpleString(), known[name] or ""):
            fields.append(field)
        else:
            changed = True
            fields.append(_field(name, columns[name], schema["name"]))
    present = {field["name"] for field in schema["fields"]}
    new = [_field(name, kind, schema["name"]) for name, kind in columns.items() if name not in present]
    return {**schema, "fields": [*fields, *new]} if changed or new else None


def _fits(column: str, field: str) -> bool:
    return column == field or field in _WIDER.get(column, ())


def _record(name: str, row: StructType) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(f.name, f.dataType, name) for f in row.fields]}


def _field(name: str, kind: DataType, parent: str) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        raise InvalidSchemaError(
            f"column `{name}` has a name that Avro does not allow.",
            why="Avro names have letters, digits and underscores, and no digit first.",
            fix="rename it in a .select(...), or give the contract a schema file of its own.",
        )
    return {"name": name, "type": ["null", _type(kind, f"{parent}_{name}")], "default": None}


def _type(kind: DataType, name: str) -> Any:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructType

    plain = _PLAIN.get(kind.simpleString())
    if plain is not None:
        return plain
    match kind:
        case DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case ArrayType():
            return {"type": "array", "items": ["null", _type(kind.elementType, name)]}
        case MapType() if isinstance(kind.keyType, StringType):
            return {"type": "map", "values": ["null", _type(kind.valueType, name)]}
        case StructType():
            return _record(name, kind)
    raise InvalidSchemaError(
        f"column type {kind.simpleString()} has no Avro type.", fix="convert it, or leave it out with .select(...)."
    )


def _record_name(subject: str) -> str:
    """A name for the record of a subject: `fraud-alerts-value` is `fraud_alerts`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", subject.removesuffix("-value"))
    return name if _NAME.fullmatch(name) else f"_{name}"
