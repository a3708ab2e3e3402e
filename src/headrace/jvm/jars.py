"""Fetches the jars that Headrace needs by their coordinates, once per machine, with the Ivy inside PySpark.

The first time needs the network; afterwards the jars are in the cache and nothing is started or asked.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tomllib
from pathlib import Path

from headrace.errors import JarsNotFoundError
from headrace.jvm.ivy import Coordinate, Transcript, retrieve
from headrace.jvm.java import find_java
from headrace.jvm.once import build_once, exclusive
from headrace.jvm.progress import Progress, silent
from headrace.paths import cache_dir

COORDINATES = Path(__file__).with_name("coordinates.toml")
_MARKER = "complete.txt"


def resolve(name: str, progress: Progress | None = None, coordinates_file: Path = COORDINATES) -> tuple[Path, ...]:
    """The jars of a named set of coordinates.toml, fetched if they are not in the cache yet.

    >>> [jar.name for jar in resolve("spark-kafka") if jar.name.startswith("commons")]
    ['commons-pool2-2.12.1.jar']
    """
    wanted = coordinates(name, coordinates_file)
    digest = hashlib.sha256("\n".join(f"{c} {c.transitive}" for c in wanted).encode()).hexdigest()[:12]
    root = cache_dir() / "jars"
    report = progress or silent

    def fetch(folder: Path) -> None:
        _fetch(name, wanted, root, folder, report)

    def wait() -> None:
        report(f"{name}: another process fetches the jars, waiting")

    folder = build_once(root / f"{name}-{digest}", fetch, _complete, wait)
    return tuple(folder / jar for jar in _listed(folder))


def coordinates(name: str, coordinates_file: Path = COORDINATES) -> tuple[Coordinate, ...]:
    """What a named set asks for.

    >>> [str(c) for c in coordinates("kafka-broker") if c.transitive]
    ['org.apache.kafka:kafka_2.13:4.0.2']
    """
    sets = tomllib.loads(coordinates_file.read_text(encoding="utf-8"))
    if name not in sets:
        raise JarsNotFoundError(f"there is no set of jars called `{name}`.", fix=f"one of: {', '.join(sorted(sets))}")
    entry = sets[name]
    return tuple(
        Coordinate.parse(text, transitive=kind == "transitive")
        for kind in ("transitive", "exact")
        for text in entry[kind]
    )


def spark_jars_dir() -> Path:
    """The folder of jars inside the installed PySpark, found without importing it (which is slow).

    >>> any(spark_jars_dir().glob("scala-compiler-*.jar"))
    True
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsNotFoundError(
            "PySpark is not installed in this Python.",
            why="Spark, the Scala compiler and the tool that fetches jars are all inside it.",
            fix="install headrace with its dependencies: pip install headrace",
        )
    return Path(spec.origin).parent / "jars"


def _fetch(name: str, wanted: tuple[Coordinate, ...], root: Path, folder: Path, report: Progress) -> None:
    report(f"{name}: resolving {', '.join(str(c) for c in wanted)}")
    transcript = Transcript(name)
    log = root / f"{name}.log"
    # Ivy's cache is shared by all sets so that a download that broke off is not begun anew; Ivy does not lock it.
    with exclusive(root / "ivy.lock"):
        done = retrieve(
            find_java().executable,
            _ivy_jar(),
            transcript,
            wanted,
            cache=root / "ivy",
            into=folder,
            log=log,
            progress=report,
        )
    if not done:
        raise _failure(transcript, wanted, log)
    jars = sorted(path.name for path in folder.glob("*.jar"))
    (folder / _MARKER).write_text("\n".join(jars) + "\n", encoding="utf-8")
    log.unlink()
    report(f"{name}: {len(jars)} jars ready")


def _failure(transcript: Transcript, wanted: tuple[Coordinate, ...], log: Path) -> JarsNotFoundError:
    missing = transcript.unresolved or [str(c) for c in wanted]
    reason = f"Ivy says: {'; '.join(transcript.reasons)}\n" if transcript.reasons else ""
    return JarsNotFoundError(
        f"the jars of `{transcript.name}` can't be fetched: {', '.join(missing)}.",
        why=f"{reason}They are fetched once and then kept in {cache_dir()}. All that Ivy said: {log}",
        fix="connect to the network once and run again,\n"
        "or set HEADRACE_CACHE to a copy of the cache of a machine that has them.",
    )


def _ivy_jar() -> Path:
    return next(spark_jars_dir().glob("ivy-*.jar"))


def _complete(folder: Path) -> bool:
    return (folder / _MARKER).is_file() and all((folder / jar).is_file() for jar in _listed(folder))


def _listed(folder: Path) -> list[str]:
    return (folder / _MARKER).read_text(encoding="utf-8").split()
