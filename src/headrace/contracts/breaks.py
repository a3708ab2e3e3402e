"""What a change of a schema breaks, and the modes that say which breaks count."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOLD = re.compile(
    r"errorType:\s*['\"](\w+)['\"]\s*,\s*description:\s*['\"](.*)['\"]\s*(?:,\s*additionalInfo.*)?}", re.S
)


@dataclass(frozen=True)
class Break:
    """One reason why a reader can't read what a writer writes.

    >>> str(Break("TYPE_MISMATCH", "lines[].price", "the reader expects int and the writer writes string"))
    'lines[].price: the reader expects int and the writer writes string (TYPE_MISMATCH)'
    """

    rule: str
    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path or 'the schema itself'}: {self.why} ({self.rule})"

    def to_message(self) -> str:
        """As registries tell it."""
        return f"{{errorType:'{self.rule}', description:'{self}'}}"


class Compatibility(enum.StrEnum):
    """The modes of a subject, by the names that registries use."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        """Whether all versions count, not only the latest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """Whether readers with the new schema must be able to read what was written with the old ones.

        >>> Compatibility.FULL.backward, Compatibility.FORWARD.backward
        (True, False)
        """
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether readers with the old schemas must be able to read what is written with the new one."""
        return self.value.startswith(("FORWARD", "FULL"))


def reasons(messages: Sequence[str]) -> list[str]:
    """What the messages of a registry, ours or another, say: the reasons, and the version that it compared with.

    >>> reasons(["{errorType:'NAME_MISMATCH', description:'a: another name'}", "{oldSchemaVersion: 3}"])
    ['a: another name (NAME_MISMATCH)', 'compared with version 3']
    """
    found: list[str] = []
    against: list[str] = []
    for message in messages:
        told = _TOLD.search(message)
        version = re.search(r"oldSchemaVersion:\s*(\d+)", message)
        if told:
            rule, text = told[1], told[2]
            found.append(text if rule in text else f"{text} ({rule})")
        elif version:
            against.append(f"compared with version {version[1]}")
        elif not re.match(r"\{\s*(oldSchema|compatibility|validateFields)\b", message):
            found.append(message)
    return [*found, *against]
