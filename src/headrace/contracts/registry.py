"""What the registry does with schemas, behind its REST API: register, look up, compare, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from headrace.contracts import refusals
from headrace.contracts.breaks import Break
from headrace.contracts.formats import SchemaSource, breaks, canonical, formatted
from headrace.contracts.records import (
    Record,
    Version,
    config_record,
    delete_subject_record,
    highest_id_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from headrace.contracts.refusals import Refusal
from headrace.contracts.rules import Mode, Rules
from headrace.contracts.schemas import Reference, Schema, SchemaType, resolve_references
from headrace.contracts.state import RegistryState, fingerprint, fingerprint_of
from headrace.contracts.store import Decision, RegistryLog
from headrace.errors import InvalidContractError

T = TypeVar("T")
LATEST = -1
NEW = -1  # the id of a schema that has none yet
_MOST_VERSION = 2**31 - 1
_MOST_SUBJECT = 512


@dataclass(frozen=True)
class Asked:
    """A schema as a client sends it. `id` and `version` are given when a registry is copied (mode IMPORT)."""

    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[Reference, ...] = ()
    id: int = NEW
    version: int = 0
    metadata: Any = None
    rule_set: Any = None
    normalize: bool = False


class Registry:
    """The operations. All that change something go through the log, and return when the state has it."""

    def __init__(self, log: RegistryLog) -> None:
        self._log = log
        self.state = log.state

    # -- look up

    def by_id(self, id: int) -> Version:
        """The schema of an id. An id that is not known may be one that another instance has just given."""
        found = self.state.version_of_id(id)
        if found is None:
            self._log.sync()
            found = self.state.version_of_id(id)
        if found is None:
            raise refusals.schema_not_found(id)
        return found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """A version of a subject; LATEST is the latest."""
        found = self._find(self.state, subject, number, deleted=deleted)
        if found is None:
            self._log.sync()
            found = self._find(self.state, subject, number, deleted=deleted)
        if found is not None:
            return found
        if not self.state.versions(subject, deleted=deleted):
            raise refusals.subject_not_found(subject)
        raise refusals.version_not_found(number)

    def versions(self, subject: str, *, deleted: bool = False, live: bool = True) -> list[Version]:
        """The versions of a subject that exists."""
        if not self.state.versions(subject, deleted=deleted, live=live):
            self._log.sync()
        found = self.state.versions(subject, deleted=deleted, live=live)
        if not found:
            raise refusals.subject_not_found(subject)
        return found

    def lookup(self, subject: str, asked: Asked, *, deleted: bool = False) -> Version:
        """The version of a subject that has exactly this schema."""
        for attempt in (1, 2):
            versions = self.state.versions(subject, deleted=True)
            if any(deleted or not each.deleted for each in versions):
                wanted = self._canonical(self.state, subject, asked, new=False)
                mark = fingerprint(wanted, asked.metadata, asked.rule_set)
                for version in reversed(versions):
                    if (deleted or not version.deleted) and fingerprint_of(version) == mark:
                        return version
            if attempt == 1:
                self._log.sync()
        if not any(deleted or not each.deleted for each in versions):
            raise refusals.subject_not_found(subject)
        raise refusals.schema_not_found()

    def formatted(self, version: Version, format: str) -> str:
        """The text of a version, in another form if one is asked for."""
        if not format:
            return version.schema.text
        return _reading(partial(formatted, _source(self.state, version.schema), format))

    # -- register

    def register(self, subject: str, asked: Asked) -> Version:
        """Registers a schema under a subject, unless it is there already."""
        if not subject or len(subject) > _MOST_SUBJECT or any(ord(letter) < 32 for letter in subject):
            raise refusals.invalid_subject(subject[:_MOST_SUBJECT])
        known = self._registered(subject, asked)
        return known or self._write(lambda state: self._registration(state, subject, asked))

    def _registered(self, subject: str, asked: Asked) -> Version | None:
        """Producers register at each start what is there already: that needs no write."""
        if asked.id != NEW or asked.version or Rules(self.state).mode(subject) is not Mode.READWRITE:
            return None
        try:
            wanted = self._canonical(self.state, subject, asked, new=False)
        except Refusal:
            return None  # a reference may be one that this instance is about to hear of
        mark = fingerprint(wanted, asked.metadata, asked.rule_set)
        return next((each for each in self.state.versions(subject) if fingerprint_of(each) == mark), None)

    def _registration(self, state: RegistryState, subject: str, asked: Asked) -> tuple[Version, list[Record]]:
        rules = Rules(state)
        rules.allow_registering(subject, with_id=asked.id != NEW)
        wanted = self._canonical(state, subject, asked, new=asked.id == NEW)
        mark = fingerprint(wanted, asked.metadata, asked.rule_set)
        everything = state.versions(subject, deleted=True)
        live = [each for each in everything if not each.deleted]
        id = state.id_of(mark)
        if id is not None and asked.id in (NEW, id) and not asked.version:
            for version in live:
                if version.schema.id == id:
                    return version, []
        importing = rules.mode(subject) is Mode.IMPORT
        if not importing:
            told = self._messages(state, subject, wanted, live)
            if told:
                raise refusals.incompatible(subject, "[" + ", ".join(told) + "]")
        number = _next_version(everything, asked.version, importing=importing)
        if asked.id != NEW:
            taken = state.version_of_id(asked.id)
            if taken is not None and fingerprint_of(taken) != mark:
                raise refusals.id_taken(asked.id)
            id = asked.id
        elif id is None:
            id = state.highest_id + 1
        new = Version(subject, number, replace(wanted, id=id), False, asked.metadata, asked.rule_set)
        # A deleted version of the same schema is taken back under its new number, not kept twice.
        again = [
            schema_tombstone(subject, each.version)
            for each in everything
            if each.deleted
            and each.schema.id == id
            and each.version < number
            and not state.referrers(subject, each.version, deleted=True)
        ]
        return new, [*again, schema_record(new)]

    # -- compare

    def compatible(self, subject: str, asked: Asked, number: int | None = None) -> list[str]:
        """What the schema would break, as messages; compared with one version, or with those that the mode names."""
        if number is None:
            against = self.state.versions(subject)
        elif number == LATEST:
            against = self.state.versions(subject)[-1:]
        else:
            against = [self.version(subject, number)]
        wanted = self._canonical(self.state, subject, asked, new=True)
        return self._messages(self.state, subject, wanted, against)

    def _messages(self, state: RegistryState, subject: str, new: Schema, versions: Sequence[Version]) -> list[str]:
        mode = Rules(state).compatibility(subject)
        source = _source(state, new)
        for version in reversed(versions if mode.transitive else versions[-1:]):
            old = _source(state, version.schema)
            found: list[Break] = []
            if mode.backward:
                found += _reading(partial(breaks, source, old))
            if mode.forward:
                found += _reading(partial(breaks, old, source))
            if found:
                told = [each.to_message() for each in dict.fromkeys(found)]
                return [*told, f"{{oldSchemaVersion: {version.version}}}", f"{{compatibility: '{mode}'}}"]
        return []

    # -- delete

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Deletes one version, softly or for good; returns its number."""
        return self._write(lambda state: self._version_deletion(state, subject, number, permanent))

    def _version_deletion(
        self, state: RegistryState, subject: str, number: int, permanent: bool
    ) -> tuple[int, list[Record]]:
        found = self._find(state, subject, number, deleted=True)
        if found is None:
            if not state.versions(subject, deleted=True):
                raise refusals.subject_not_found(subject)
            raise refusals.version_not_found(number)
        if found.deleted and not permanent:
            raise refusals.version_soft_deleted(subject, found.version)
        if permanent and not found.deleted:
            raise refusals.version_not_soft_deleted(subject, found.version)
        Rules(state).allow_changing(subject)
        if state.referrers(subject, found.version, deleted=permanent):
            raise refusals.reference_exists(subject, found.version)
        if not permanent:
            return found.version, [schema_record(found.marked_deleted())]
        last = len(state.versions(subject, deleted=True)) == 1
        return found.version, self._forgetting(state, subject, [found], everything=last)

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Deletes all versions of a subject; returns their numbers."""
        return self._write(lambda state: self._subject_deletion(state, subject, permanent))

    def _subject_deletion(self, state: RegistryState, subject: str, permanent: bool) -> tuple[list[int], list[Record]]:
        everything = state.versions(subject, deleted=True)
        live = [each for each in everything if not each.deleted]
        if not everything:
            raise refusals.subject_not_found(subject)
        if not permanent and not live:
            raise refusals.subject_soft_deleted(subject)
        if permanent and live:
            raise refusals.subject_not_soft_deleted(subject)
        Rules(state).allow_changing(subject)
        going = everything if permanent else live
        for version in going:
            if any(each.subject != subject for each in state.referrers(subject, version.version, deleted=permanent)):
                raise refusals.reference_exists(subject, version.version)
        numbers = [each.version for each in going]
        if not permanent:
            return numbers, [delete_subject_record(subject, numbers[-1])]
        return numbers, self._forgetting(state, subject, going, everything=True)

    def _forgetting(
        self, state: RegistryState, subject: str, versions: Sequence[Version], *, everything: bool
    ) -> list[Record]:
        records = [schema_tombstone(subject, each.version) for each in reversed(versions)]
        if any(each.schema.id == state.highest_id for each in versions):
            records.append(highest_id_record(state.highest_id))
        if everything and state.mode(subject) is not None:
            records.append(mode_record(subject, None))
        if everything and state.config(subject) is not None:
            records.append(config_record(subject, None))
        return records

    # -- the rest

    def change_rules(self, decide: Decision[T]) -> T:
        """Writes what a decision of `rules` makes of the state."""
        return self._write(decide)

    def _write(self, decide: Decision[T]) -> T:
        try:
            return self._log.write(decide)
        except KafkaException as error:
            raise refusals.too_large() from error

    @staticmethod
    def _find(state: RegistryState, subject: str, number: int, *, deleted: bool) -> Version | None:
        if number == LATEST:
            return next(iter(reversed(state.versions(subject, deleted=deleted))), None)
        found = state.version(subject, number)
        return found if found is not None and (deleted or not found.deleted) else None

    def _canonical(self, state: RegistryState, subject: str, asked: Asked, *, new: bool) -> Schema:
        """The schema in the form in which it is kept. References to `latest` become references to what that is now."""
        references = tuple(_pinned(state, each, deleted=not new) for each in asked.references)
        schema = Schema(NEW, asked.type, asked.text, references)
        normalize = asked.normalize or Rules(state).normalize(subject)
        text = _reading(partial(canonical, _source(state, schema), normalize=normalize))
        return replace(schema, text=text)


def version_number(text: str) -> int:
    """The version that a client means: a number, or `latest`.

    >>> version_number("latest") == LATEST, version_number("3")
    (True, 3)
    """
    if text == "latest" or text == str(LATEST):
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:11]) <= _MOST_VERSION:
        raise refusals.invalid_version(text[:100])
    return int(text)


def _next_version(everything: Sequence[Version], asked: int, *, importing: bool) -> int:
    next_one = max((each.version for each in everything), default=0) + 1
    if asked > 0:
        if asked != next_one and not importing:
            raise refusals.invalid_schema("Version is not one more than previous version")
        return asked
    return next_one


def _pinned(state: RegistryState, reference: Reference, *, deleted: bool) -> Reference:
    found = Registry._find(state, reference.subject, reference.version, deleted=deleted)
    if found is None:
        told = f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
        raise refusals.invalid_schema(told)
    return replace(reference, version=found.version)


def _source(state: RegistryState, schema: Schema) -> SchemaSource:
    def fetch(subject: str, number: int) -> Schema:
        found = Registry._find(state, subject, number, deleted=True)
        if found is None:
            raise refusals.invalid_schema(f'No schema reference found for subject "{subject}" and version {number}')
        return found.schema

    resolved = _reading(partial(resolve_references, schema.references, fetch))
    return SchemaSource(schema.type, schema.text, tuple((name, each.text) for name, each in resolved.items()))


def _reading(read: Callable[[], T]) -> T:
    """What goes wrong when a schema is read is the client's mistake."""
    try:
        return read()
    except InvalidContractError as error:
        raise refusals.invalid_schema(" ".join(filter(None, (error.what, error.why)))) from error
    except RecursionError:
        raise refusals.invalid_schema("it is nested too deeply") from None
