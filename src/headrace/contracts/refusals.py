"""What the registry refuses, with the status and error code that clients of Confluent's registry know."""

from __future__ import annotations


class Refusal(Exception):
    """An answer that is no.

    >>> subject_not_found("names-value").code
    40401
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.status = code // 100 if code >= 10_000 else code
        self.message = message
        super().__init__(message)


def subject_not_found(subject: str) -> Refusal:
    """There is no such subject."""
    return Refusal(40401, f"there is no subject `{subject}`")


def version_not_found(version: int | str) -> Refusal:
    """The subject has no such version."""
    return Refusal(40402, f"the subject has no version {version}")


def schema_not_found(what: object = None) -> Refusal:
    """No such schema, by id or by its text."""
    return Refusal(40403, "there is no such schema" if what is None else f"there is no schema {what}")


def subject_soft_deleted(subject: str) -> Refusal:
    """It is deleted already."""
    return Refusal(40404, f"`{subject}` is deleted already; permanent=true removes it for good")


def subject_not_soft_deleted(subject: str) -> Refusal:
    """It must be deleted softly first."""
    return Refusal(40405, f"`{subject}` is in use: delete it once without permanent=true, then with it")


def version_soft_deleted(subject: str, version: int) -> Refusal:
    """It is deleted already."""
    told = f"version {version} of `{subject}` is deleted already; permanent=true removes it for good"
    return Refusal(40406, told)


def version_not_soft_deleted(subject: str, version: int) -> Refusal:
    """It must be deleted softly first."""
    told = f"version {version} of `{subject}` is in use: delete it once without permanent=true, then with it"
    return Refusal(40407, told)


def no_config(subject: str) -> Refusal:
    """The subject has no configuration of its own."""
    return Refusal(40408, f"`{subject}` has no compatibility of its own; that of all subjects holds")


def no_mode(subject: str) -> Refusal:
    """The subject has no mode of its own."""
    return Refusal(40409, f"`{subject}` has no mode of its own; that of all subjects holds")


def incompatible(subject: str, details: object) -> Refusal:
    """The schema would break readers or writers."""
    told = f"the schema breaks what `{subject}` promises to those who use it, details: {details}"
    return Refusal(40901, told)


def invalid_schema(why: str) -> Refusal:
    """The schema can't be read."""
    return Refusal(42201, f"this is no schema: {why}")


def invalid_version(version: object) -> Refusal:
    """A version is a number from 1 on, or `latest`."""
    return Refusal(42202, f"`{version}` is no version; versions are numbers from 1 to 2147483647, or latest")


def invalid_compatibility(told: str = "") -> Refusal:
    """No such compatibility mode."""
    known = "NONE, BACKWARD, FORWARD, FULL, BACKWARD_TRANSITIVE, FORWARD_TRANSITIVE and FULL_TRANSITIVE"
    return Refusal(42203, told or f"there is no such compatibility; there are {known}")


def invalid_mode() -> Refusal:
    """No such mode."""
    return Refusal(42204, "there is no such mode; there are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT")


def not_permitted(why: str) -> Refusal:
    """The mode does not allow it."""
    return Refusal(42205, why)


def reference_exists(subject: str, version: int) -> Refusal:
    """Other schemas refer to it."""
    return Refusal(42206, f"other schemas refer to version {version} of `{subject}`; delete those first")


def id_taken(id: int) -> Refusal:
    """The id belongs to another schema."""
    return Refusal(42207, f"the id {id} belongs to another schema")


def invalid_subject(subject: str) -> Refusal:
    """No name for a subject."""
    return Refusal(42208, f"`{subject}` is no name for a subject")


def too_large() -> Refusal:
    """Kafka does not take a record of this size."""
    return Refusal(42209, "the schema is larger than a record of the log may be")
