"""The records of the `_schemas` topic, in the format of Confluent's registry: JSON keys and JSON values.

Keys are compared byte by byte when Kafka compacts the topic, so the order of their fields is part of the format.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headrace.contracts.schemas import Reference, Schema, SchemaType

TOPIC = "_schemas"
NOOP = "NOOP"


class Record(NamedTuple):
    """A record to write; without a value it deletes what stands under its key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True)
class Version:
    """One version of a subject. `metadata` and `rule_set` are kept for clients, which may act on them."""

    subject: str
    version: int
    schema: Schema
    deleted: bool = False
    metadata: Any = field(default=None, hash=False)
    rule_set: Any = field(default=None, hash=False)

    def marked_deleted(self) -> Version:
        """The same, softly deleted."""
        return replace(self, deleted=True)


def schema_record(version: Version) -> Record:
    """Registers or changes a version.

    >>> schema_record(Version("names-value", 1, Schema(7, SchemaType.AVRO, '"string"'))).key
    b'{"keytype":"SCHEMA","subject":"names-value","version":1,"magic":1}'
    """
    value = {
        "subject": version.subject,
        "version": version.version,
        "id": version.schema.id,
        **attributes(version),
        "schema": version.schema.text,
        "deleted": version.deleted,
    }
    return Record(_schema_key(version.subject, version.version), _bytes(value))


def attributes(version: Version) -> dict[str, Any]:
    """What a version may have beside its text, in the log and in the REST API alike: left out where it has not.

    >>> attributes(Version("names-value", 1, Schema(7, SchemaType.JSON, "true")))
    {'schemaType': 'JSON'}
    """
    schema = version.schema
    given = {
        "schemaType": None if schema.type is SchemaType.AVRO else schema.type.value,
        "references": [reference.to_json() for reference in schema.references] or None,
        "metadata": version.metadata,
        "ruleSet": version.rule_set,
    }
    return {name: value for name, value in given.items() if value is not None}


def schema_tombstone(subject: str, version: int) -> Record:
    """Forgets a version for good."""
    return Record(_schema_key(subject, version), None)


def delete_subject_record(subject: str, version: int) -> Record:
    """Deletes the versions of a subject up to this one, softly."""
    return Record(_subject_key("DELETE_SUBJECT", subject), _bytes({"subject": subject, "version": version}))


def clear_subject_record(subject: str | None) -> Record:
    """Forgets what is softly deleted, of a subject or of all."""
    return Record(_subject_key("CLEAR_SUBJECT", subject), _bytes(_subject(subject)))


def config_record(subject: str | None, config: dict[str, Any] | None) -> Record:
    """Sets the configuration of a subject, or of all (None); no configuration removes it.

    >>> config_record(None, {"compatibilityLevel": "FULL"})
    Record(key=b'{"keytype":"CONFIG","magic":0}', value=b'{"compatibilityLevel":"FULL"}')
    """
    value = None if config is None else _bytes({**_subject(subject), **config})
    return Record(_subject_key("CONFIG", subject), value)


def mode_record(subject: str | None, mode: str | None) -> Record:
    """Sets the mode of a subject, or of all (None); no mode removes it."""
    value = None if mode is None else _bytes({**_subject(subject), "mode": mode})
    return Record(_subject_key("MODE", subject), value)


def highest_id_record(id: int) -> Record:
    """Remembers the highest id when its schema is deleted for good: it must never be given to another schema.

    Confluent's registry skips records with this key whatever their value is.
    """
    return Record(_bytes({"keytype": NOOP, "magic": 0}), _bytes({"maxId": id}))


def read_version(value: dict[str, Any]) -> Version:
    """The version in the value of a SCHEMA record."""
    references = tuple(Reference.from_json(each) for each in value.get("references") or ())
    schema = Schema(int(value["id"]), SchemaType.named(value.get("schemaType")), str(value["schema"]), references)
    return Version(
        subject=str(value["subject"]),
        version=int(value["version"]),
        schema=schema,
        deleted=bool(value.get("deleted", False)),
        metadata=value.get("metadata"),
        rule_set=value.get("ruleSet"),
    )


def read_json(data: bytes) -> dict[str, Any]:
    """The object in a key or value; ValueError if there is none."""
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _schema_key(subject: str, version: int) -> bytes:
    return _bytes({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _subject_key(keytype: str, subject: str | None) -> bytes:
    return _bytes({"keytype": keytype, **_subject(subject), "magic": 0})


def _subject(subject: str | None) -> dict[str, Any]:
    """What is about all subjects names none."""
    return {} if subject is None else {"subject": subject}


def _bytes(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
