"""What the registry knows: the log of records, folded. Changed by `apply` only, so every instance has the same."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headrace.contracts.records import NOOP, Version, read_json, read_version
from headrace.contracts.schemas import Schema, SchemaType

_LOG = logging.getLogger(__name__)


class RegistryState:
    """Subjects, versions, ids, configurations and modes.

    Safe to use from several threads: each method holds the lock; hold `lock` around several that belong together.

    >>> from headrace.contracts.records import schema_record
    >>> state = RegistryState()
    >>> state.apply(*schema_record(Version("names-value", 1, Schema(7, SchemaType.AVRO, '"string"'))))
    >>> state.schema(7).text, [version.subject for version in state.versions_of_id(7)]
    ('"string"', ['names-value'])
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.highest_id = 0
        self._subjects: dict[str, dict[int, Version]] = {}
        self._by_id: dict[int, Version] = {}
        self._uses: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
        self._by_fingerprint: dict[bytes, int] = {}
        self._referrers: defaultdict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        self._configs: dict[str | None, dict[str, Any]] = {}
        self._modes: dict[str | None, str] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Takes in the next record of the log. One that can't be read is told of and skipped: it must stop nobody."""
        try:
            parsed = read_json(key or b"")
            content = None if value is None else read_json(value)
            with self.lock:
                self._apply(str(parsed.get("keytype")), parsed, content)
        except (ValueError, KeyError, TypeError) as error:
            _LOG.warning("a record of the log can't be read and is skipped: %s: %s", type(error).__name__, error)

    def subjects(self, prefix: str = "", *, deleted: bool = False, live: bool = True) -> list[str]:
        """The names of the subjects that have live versions, deleted versions, or either."""
        with self.lock:
            return sorted(
                name
                for name, versions in self._subjects.items()
                if name.startswith(prefix) and any(deleted if each.deleted else live for each in versions.values())
            )

    def versions(self, subject: str, *, deleted: bool = False, live: bool = True) -> list[Version]:
        """The versions of a subject in their order."""
        with self.lock:
            found = sorted(self._subjects.get(subject, {}).items())
        return [each for _, each in found if (deleted if each.deleted else live)]

    def version(self, subject: str, number: int) -> Version | None:
        """A version of a subject, deleted or not."""
        with self.lock:
            return self._subjects.get(subject, {}).get(number)

    def schema(self, id: int) -> Schema | None:
        """The schema of an id."""
        found = self.version_of_id(id)
        return None if found is None else found.schema

    def version_of_id(self, id: int) -> Version | None:
        """Some version that has the id."""
        with self.lock:
            return self._by_id.get(id)

    def versions_of_id(self, id: int, *, deleted: bool = False) -> list[Version]:
        """All versions that have the id."""
        with self.lock:
            found = [self._subjects[subject][number] for subject, number in sorted(self._uses.get(id, ()))]
        return [each for each in found if deleted or not each.deleted]

    def id_of(self, fingerprint: bytes) -> int | None:
        """The id of the schema with this fingerprint."""
        with self.lock:
            return self._by_fingerprint.get(fingerprint)

    def referrers(self, subject: str, number: int, *, deleted: bool = False) -> list[Version]:
        """The versions that refer to a version of a subject."""
        with self.lock:
            pairs = sorted(self._referrers.get((subject, number), ()))
            found = [self._subjects[name][each] for name, each in pairs]
        return [each for each in found if deleted or not each.deleted]

    def config(self, subject: str | None) -> dict[str, Any] | None:
        """The configuration of a subject, or of all (None), if it was set."""
        with self.lock:
            return self._configs.get(subject)

    def mode(self, subject: str | None) -> str | None:
        """The mode of a subject, or of all (None), if it was set."""
        with self.lock:
            return self._modes.get(subject)

    def _apply(self, keytype: str, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        subject = key.get("subject")
        if keytype == "SCHEMA":
            self._forget(str(subject), int(key["version"]))
            if value is not None:
                self._keep(read_version(value))
        elif keytype == "DELETE_SUBJECT" and value is not None:
            for number, version in list(self._subjects.get(str(subject), {}).items()):
                if number <= int(value["version"]):
                    self._subjects[str(subject)][number] = version.marked_deleted()
        elif keytype == "CLEAR_SUBJECT" and value is not None:
            for name in [str(subject)] if subject is not None else list(self._subjects):
                for version in self.versions(name, deleted=True, live=False):
                    self._forget(name, version.version)
        elif keytype == "CONFIG":
            _set(self._configs, subject, value)
        elif keytype == "MODE":
            _set(self._modes, subject, None if value is None else str(value["mode"]))
        elif keytype == NOOP and value is not None:
            self.highest_id = max(self.highest_id, int(value.get("maxId", 0)))

    def _keep(self, version: Version) -> None:
        place = (version.subject, version.version)
        schema = version.schema
        self._subjects.setdefault(version.subject, {})[version.version] = version
        self._by_id.setdefault(schema.id, version)
        self._by_fingerprint.setdefault(fingerprint_of(version), schema.id)
        self._uses[schema.id].add(place)
        for reference in schema.references:
            self._referrers[reference.subject, reference.version].add(place)
        self.highest_id = max(self.highest_id, schema.id)

    def _forget(self, subject: str, number: int) -> None:
        gone = self._subjects.get(subject, {}).pop(number, None)
        if gone is None:
            return
        if not self._subjects[subject]:
            del self._subjects[subject]
        for reference in gone.schema.references:
            self._referrers[reference.subject, reference.version].discard((subject, number))
        uses = self._uses[gone.schema.id]
        uses.discard((subject, number))
        if not uses:
            del self._uses[gone.schema.id], self._by_id[gone.schema.id]
            self._by_fingerprint.pop(fingerprint_of(gone), None)


def fingerprint(schema: Schema, metadata: Any = None, rule_set: Any = None) -> bytes:
    """What makes two schemas the same one, with one id: text, references, and what is attached.

    >>> a, b = (Schema(id, SchemaType.AVRO, '"int"') for id in (1, 2))
    >>> fingerprint(a) == fingerprint(b)
    True
    """
    text = schema.text
    if schema.type is SchemaType.PROTOBUF:
        from headrace.contracts.proto_text import without_layout

        text = without_layout(text)  # it is kept as it was written, with its comments
    parts: Sequence[object] = (schema.type.value, [each.to_json() for each in schema.references], metadata, rule_set)
    return hashlib.md5(json.dumps([text, *parts], sort_keys=True).encode(), usedforsecurity=False).digest()


def fingerprint_of(version: Version) -> bytes:
    """The fingerprint of a version."""
    return fingerprint(version.schema, version.metadata, version.rule_set)


def guid_of(version: Version) -> str:
    """The same for every registry that has this schema, whatever its id there.

    >>> len(guid_of(Version("names-value", 1, Schema(7, SchemaType.AVRO, '"string"'))))
    36
    """
    return str(UUID(bytes=fingerprint_of(version)))


def _set(values: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        values.pop(subject, None)
    else:
        values[subject] = value
