"""What a change of a schema breaks, and the modes that say which breaks count."""

from __future__ import annotations

import enum
from dataclasses import dataclass


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
