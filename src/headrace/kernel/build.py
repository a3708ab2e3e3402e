"""Compiles the kernel with the Scala compiler inside PySpark, once per version of its sources."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import KernelBuildError
from headrace.jvm.jars import coordinates, resolve, spark_jars_dir
from headrace.jvm.java import find_java
from headrace.jvm.once import build_once
from headrace.jvm.progress import Progress, silent
from headrace.paths import cache_dir

SOURCES = Path(__file__).with_name("scala")
RESOURCES = Path(__file__).with_name("resources")
_CONNECTOR = "spark-kafka"
_FLAGS = ("-deprecation", "-feature", "-unchecked", "-Werror")


def kernel_jar(progress: Progress | None = None, sources: Path = SOURCES, resources: Path = RESOURCES) -> Path:
    """The compiled kernel. Compiles it if its sources, its resources or what it is compiled against changed.

    >>> kernel_jar().suffix
    '.jar'
    """
    scala = _files(sources, "*.scala")
    extras = _files(resources, "*")
    if not scala:
        raise KernelBuildError(f"there are no Scala sources in {sources}.", fix="install headrace again")
    report = progress or silent

    def build(jar: Path) -> None:
        report(f"kernel: compiling {len(scala)} Scala file{'s' if len(scala) > 1 else ''}")
        _compile(scala, sources, [*sorted(spark_jars_dir().glob("*.jar")), *resolve(_CONNECTOR, progress)], jar)
        with zipfile.ZipFile(jar, "a", zipfile.ZIP_DEFLATED) as archive:
            for extra in extras:
                archive.write(extra, extra.relative_to(resources))
        report("kernel: compiled")

    digest = _digest([(sources, scala), (resources, extras)])
    return build_once(
        cache_dir() / "kernel" / f"{digest}.jar",
        build,
        Path.is_file,
        lambda: report("kernel: another process compiles it, waiting"),
    )


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


def _digest(parts: Sequence[tuple[Path, Sequence[Path]]]) -> str:
    total = hashlib.sha256()
    against = [importlib.metadata.version("pyspark"), *(str(c) for c in coordinates(_CONNECTOR)), *_FLAGS]
    total.update("\n".join(against).encode())
    for folder, files in parts:
        for file in files:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"\n{folder.name}/{file.relative_to(folder).as_posix()} {content}".encode())
    return total.hexdigest()


def _compile(scala: Sequence[Path], sources: Path, classpath: Sequence[Path], jar: Path) -> None:
    compiler = subprocess.run(
        [
            str(find_java().executable),
            "-Xss4m",  # scalac recurses deeply over long expressions
            *("-cp", f"{spark_jars_dir()}/*"),
            "scala.tools.nsc.Main",
            *_FLAGS,
            *("-classpath", os.pathsep.join(str(path) for path in classpath)),
            *("-d", str(jar)),
            *(str(path.relative_to(sources)) for path in scala),
        ],
        cwd=sources,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if compiler.returncode != 0:
        said = "\n".join(line for line in compiler.stdout.splitlines() if not line.startswith("Picked up JAVA"))
        count = re.search(r"^(\d+ errors?)$", said, re.MULTILINE)
        raise KernelBuildError(
            f"the kernel does not compile{f': {count[1]}' if count else ''}.",
            why=f"Sources in {sources}. The Scala compiler says:\n{said}",
            fix="correct the sources; if you did not change them, install headrace again",
        )
