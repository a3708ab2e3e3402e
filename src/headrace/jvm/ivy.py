"""Runs the Ivy that ships inside PySpark, and reads what it says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import quoteattr

from headrace.jvm.progress import Progress


@dataclass(frozen=True)
class Coordinate:
    """A Maven artifact, with or without what it depends on.

    >>> str(Coordinate.parse("org.apache.kafka:kafka-clients:3.9.1", transitive=False))
    'org.apache.kafka:kafka-clients:3.9.1'
    """

    group: str
    artifact: str
    version: str
    transitive: bool

    @classmethod
    def parse(cls, text: str, *, transitive: bool) -> Coordinate:
        """Reads `group:artifact:version`."""
        group, artifact, version = text.split(":")
        return cls(group, artifact, version, transitive)

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass
class Transcript:
    """What Ivy printed, turned into progress for a person and into the reasons of a failure.

    >>> transcript = Transcript("kafka-broker")
    >>> transcript.read("  found org.slf4j#slf4j-api;1.7.36 in public")
    'kafka-broker: found 1 jar'
    """

    name: str
    found: int = 0
    downloading: int = 0
    unresolved: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def read(self, line: str) -> str | None:
        """Takes one line; returns a message if there is something to tell."""
        if re.match(r"\s*found \S+#\S+;\S+ in ", line):
            self.found += 1
            return f"{self.name}: found {self.found} jar{'s' if self.found > 1 else ''}"
        if download := re.match(r"downloading \S*/(\S+) \.\.\.", line):
            self.downloading += 1
            return f"{self.name}: downloading {self.downloading} of {self.found}, {download[1]}"
        if missing := re.match(r"\s*:: ([^#\s]+)#([^;\s]+);([^:!\s]+)[:!]", line):
            self._note(self.unresolved, ":".join(missing.groups()))
        elif trouble := re.match(r"\s*Server access error at url \S+ \((.+)\)\s*$", line):
            self._note(self.reasons, trouble[1])
        return None

    @staticmethod
    def _note(notes: list[str], text: str) -> None:
        if text not in notes:
            notes.append(text)


def retrieve(
    java: Path,
    ivy_jar: Path,
    transcript: Transcript,
    coordinates: Sequence[Coordinate],
    *,
    cache: Path,
    into: Path,
    log: Path,
    progress: Progress,
) -> bool:
    """Fetches the coordinates as jars into a folder. False if Ivy failed; `transcript` and `log` then say why."""
    into.mkdir(parents=True)
    module = into.with_name(f"{into.name}.ivy.xml")
    module.write_text(_module(transcript.name, coordinates), encoding="utf-8")
    command = [
        str(java),
        # Ivy sets no limits of its own: a network that swallows packets would hang it for ever.
        "-Dsun.net.client.defaultConnectTimeout=15000",
        "-Dsun.net.client.defaultReadTimeout=60000",
        *("-jar", str(ivy_jar)),
        *("-ivy", str(module)),
        *("-cache", str(cache)),
        *("-confs", "default"),
        # Relative to the working folder: the user's own path may hold parentheses, which mean something in a pattern.
        *("-retrieve", f"{into.name}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    with (
        log.open("w", encoding="utf-8") as lines,
        subprocess.Popen(
            command,
            cwd=into.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as ivy,
    ):
        assert ivy.stdout is not None
        try:
            for line in ivy.stdout:
                lines.write(line)
                if message := transcript.read(line):
                    progress(message)
        except BaseException:
            ivy.kill()
            raise
        return ivy.wait() == 0


def _module(name: str, coordinates: Sequence[Coordinate]) -> str:
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(c.group)} name={quoteattr(c.artifact)} rev={quoteattr(c.version)}"
        f' conf="default" transitive="{str(c.transitive).lower()}"/>'
        for c in coordinates
    )
    return (
        '<ivy-module version="2.0">\n'
        f'  <info organisation="headrace" module={quoteattr(name)}/>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</ivy-module>\n"
    )
