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
    return Refusal(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> Refusal:
    """The subject has no such version."""
    return Refusal(40402, f"Version {version} not found.")


def schema_not_found(what: object = None) -> Refusal:
    """No such schema, by id or by its text."""
    return Refusal(40403, "Schema not found" if what is None else f"Schema {what} not found")


def subject_soft_deleted(subject: str) -> Refusal:
    """It is deleted already."""
    return Refusal(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> Refusal:
    """It must be deleted softly first."""
    return Refusal(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> Refusal:
    """It is deleted already."""
    told = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    return Refusal(40406, told)


def version_not_soft_deleted(subject: str, version: int) -> Refusal:
    """It must be deleted softly first."""
    told = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return Refusal(40407, told)


def no_config(subject: str) -> Refusal:
    """The subject has no configuration of its own."""
    return Refusal(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_mode(subject: str) -> Refusal:
    """The subject has no mode of its own."""
    return Refusal(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: object) -> Refusal:
    """The schema would break readers or writers."""
    told = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}'
    return Refusal(40901, told)


def invalid_schema(why: str) -> Refusal:
    """The schema can't be read."""
    return Refusal(42201, f"Invalid schema: {why}")


def invalid_version(version: object) -> Refusal:
    """A version is a number from 1 on, or `latest`."""
    allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
    return Refusal(42202, f"The specified version '{version}' is not a valid version id. {allowed}")


def invalid_compatibility(told: str = "") -> Refusal:
    """No such compatibility mode."""
    valid = "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"
    return Refusal(42203, told or f"Invalid compatibility level. Valid values are {valid}")


def invalid_mode() -> Refusal:
    """No such mode."""
    return Refusal(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT")


def not_permitted(why: str) -> Refusal:
    """The mode does not allow it."""
    return Refusal(42205, why)


def reference_exists(subject: str, version: int) -> Refusal:
    """Other schemas refer to it."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return Refusal(42206, f"One or more references exist to the schema {key}.")


def id_taken(id: int) -> Refusal:
    """The id belongs to another schema."""
    return Refusal(42207, f"Overwrite new schema with id {id} is not permitted.")


def invalid_subject(subject: str) -> Refusal:
    """No name for a subject."""
    return Refusal(42208, f"The specified subject '{subject}' is not a valid subject name.")


def too_large() -> Refusal:
    """Kafka does not take a record of this size."""
    return Refusal(42209, "Register operation failed because schema is too large")
