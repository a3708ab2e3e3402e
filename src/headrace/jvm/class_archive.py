"""Archives of loaded classes: a JVM that finds one maps its classes into memory instead of reading and checking them.

Of the start of a JVM with Spark in it that is about half. An archive is made by a JVM that has done what later ones
will do, when it ends (`headrace prepare`); it fits one Java and one class path, and is named after both. A JVM that
finds that it does not fit after all leaves it and starts as ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from headrace.jvm.java import Java
from headrace.paths import cache_dir

_MOST_KEPT = 3
"""Of each name, of up to two hundred megabytes each: those of two sets of jars, and of one that came before."""


def archive_of(name: str, java: Java, jars: Iterable[Path]) -> Path:
    """Where the archive for this Java and these jars is, or would be.

    >>> from headrace.jvm.java import find_java
    >>> archive_of("broker", find_java(), []).name.startswith("broker-")
    True
    """
    release = java.executable.resolve().parent.parent / "release"
    total = hashlib.sha256(str(java.executable.resolve()).encode())
    total.update(release.read_bytes() if release.is_file() else str(java.version).encode())
    for jar in jars:
        # As the JVM does: by path, size and time.
        state = jar.stat()
        total.update(f"\n{jar} {state.st_size} {state.st_mtime_ns}".encode())
    return cache_dir() / "classes" / f"{name}-{total.hexdigest()[:32]}.jsa"


def using(archive: Path) -> list[str]:
    """Options of a JVM that shall use the archive; none if there is no such archive.

    >>> using(Path("/nowhere/broker.jsa"))
    []
    """
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", _QUIET] if archive.is_file() else []


def making(archive: Path) -> list[str]:
    """Options of a JVM that shall make the archive when it ends.

    >>> making(Path("/tmp/broker.jsa"))
    ['-XX:ArchiveClassesAtExit=/tmp/broker.jsa', '-Xlog:cds*=off']
    """
    return [f"-XX:ArchiveClassesAtExit={archive}", _QUIET]


_QUIET = "-Xlog:cds*=off"
"""An archive that does not fit, or a class that can't be in one, is no news to anybody."""


def forget_old() -> None:
    """Removes all but the newest archives of each name."""
    found = sorted((cache_dir() / "classes").glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for name in {_name(path) for path in found}:
        for old in [path for path in found if _name(path) == name][_MOST_KEPT:]:
            old.unlink(missing_ok=True)


def _name(archive: Path) -> str:
    return archive.name.rpartition("-")[0]
