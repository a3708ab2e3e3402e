"""What holds for a subject: its compatibility, whether it may be changed, whether its schemas are normalized."""

from __future__ import annotations

import enum
from typing import Any

from headrace.contracts import refusals
from headrace.contracts.breaks import Compatibility
from headrace.contracts.records import Record, clear_subject_record, config_record, mode_record, schema_tombstone
from headrace.contracts.state import RegistryState

_SUPPORTED = {"compatibility", "compatibilityLevel", "normalize"}


class Mode(enum.StrEnum):
    """What may be done with a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"


class Rules:
    """The rules in one state: those of a subject, else those of all subjects, else the defaults.

    >>> Rules(RegistryState()).compatibility("names-value")
    <Compatibility.BACKWARD: 'BACKWARD'>
    """

    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def config(self, subject: str | None) -> dict[str, Any]:
        """The configuration that holds for a subject."""
        common = {"compatibilityLevel": Compatibility.BACKWARD.value, **(self._state.config(None) or {})}
        own = {} if subject is None else self._state.config(subject) or {}
        return {name: value for name, value in {**common, **own}.items() if name != "subject"}

    def compatibility(self, subject: str | None) -> Compatibility:
        """The compatibility mode that holds for a subject."""
        return Compatibility(str(self.config(subject)["compatibilityLevel"]))

    def normalize(self, subject: str) -> bool:
        """Whether schemas of the subject are normalized, asked for or not."""
        return self.config(subject).get("normalize") is True

    def mode(self, subject: str | None) -> Mode:
        """The mode that holds for a subject. READONLY_OVERRIDE, set for all, is stronger than a subject's own."""
        common = Mode(self._state.mode(None) or Mode.READWRITE)
        own = None if subject is None else self._state.mode(subject)
        return common if own is None or common is Mode.READONLY_OVERRIDE else Mode(own)

    def allow_changing(self, subject: str | None) -> None:
        """Refuses if the subject may only be read."""
        if self.mode(subject) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise refusals.not_permitted(f"Subject {subject or 'of all names'} is in read-only mode")

    def allow_registering(self, subject: str, *, with_id: bool) -> None:
        """Refuses what the mode does not allow: an id of the client's is for imports, and imports need one."""
        self.allow_changing(subject)
        if with_id and self.mode(subject) is not Mode.IMPORT:
            raise refusals.not_permitted(f"Subject {subject} is not in import mode")
        if not with_id and self.mode(subject) is Mode.IMPORT:
            raise refusals.not_permitted(f"Subject {subject} is not in read-write mode")


def set_config(
    state: RegistryState, subject: str | None, wanted: dict[str, Any]
) -> tuple[dict[str, Any], list[Record]]:
    """Sets the configuration of a subject, or of all (None). What this registry would not act on is refused."""
    unknown = sorted(name for name, value in wanted.items() if value is not None and name not in _SUPPORTED)
    if unknown:
        raise refusals.invalid_compatibility(f"This registry does not support the setting {', '.join(unknown)}")
    Rules(state).allow_changing(subject)
    config = dict(state.config(subject) or {})
    config.pop("subject", None)
    level = wanted.get("compatibility") or wanted.get("compatibilityLevel")
    if level is not None:
        try:
            config["compatibilityLevel"] = Compatibility(str(level).upper()).value
        except ValueError:
            raise refusals.invalid_compatibility() from None
    if isinstance(wanted.get("normalize"), bool):
        config["normalize"] = wanted["normalize"]
    if not config:
        raise refusals.invalid_compatibility()
    return config, [config_record(subject, config)]


def delete_config(state: RegistryState, subject: str | None) -> tuple[dict[str, Any], list[Record]]:
    """Removes the configuration of a subject, or of all; returns what it was."""
    Rules(state).allow_changing(subject)
    found = state.config(subject)
    if found is None and subject is not None:
        raise refusals.subject_not_found(subject)
    if found is None:
        return Rules(state).config(None), []
    return {name: value for name, value in found.items() if name != "subject"}, [config_record(subject, None)]


def set_mode(state: RegistryState, subject: str | None, name: str, *, force: bool) -> tuple[Mode, list[Record]]:
    """Sets the mode of a subject, or of all (None). An import starts from nothing, unless it is forced."""
    try:
        mode = Mode(name.upper())
    except ValueError:
        raise refusals.invalid_mode() from None
    records: list[Record] = []
    if mode is Mode.IMPORT and Rules(state).mode(subject) is not Mode.IMPORT and not force:
        names = state.subjects(deleted=True) if subject is None else [subject]
        for each in names:
            if state.versions(each):
                raise refusals.not_permitted("Cannot import since found existing subjects")
            for version in state.versions(each, deleted=True):
                if state.referrers(each, version.version, deleted=True):
                    raise refusals.reference_exists(each, version.version)
                records.append(schema_tombstone(each, version.version))
        records.append(clear_subject_record(subject))
    return mode, [*records, mode_record(subject, mode.value)]


def delete_mode(state: RegistryState, subject: str | None) -> tuple[Mode, list[Record]]:
    """Removes the mode of a subject, or of all; returns what it was."""
    found = state.mode(subject)
    if found is None and subject is not None:
        raise refusals.subject_not_found(subject)
    if found is None:
        return Rules(state).mode(None), []
    return Mode(found), [mode_record(subject, None)]
