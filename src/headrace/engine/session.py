"""The Spark session: Java, jars, kernel and settings put together, quietly."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.engine.settings import JAVA_OPTIONS, SESSION, master
from headrace.errors import EnvironmentProblem
from headrace.jvm.class_archive import archive_of, using
from headrace.jvm.jars import resolve, spark_jars_dir
from headrace.jvm.java import find_java
from headrace.kernel import doorway
from headrace.kernel.build import kernel_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report = Callable[[str], None]
_LAST_LINES = 5


def check_session(spark: SparkSession | None) -> None:
    """Raise if the session lacks the kernel; without one, if this process has any: Spark would hand out that one."""
    from pyspark import SparkContext

    unfit = SparkContext._active_spark_context is not None if spark is None else not doorway.is_there(spark)
    if unfit:
        raise EnvironmentProblem(
            "a Spark session runs in this process already, and it is not one of Headrace.",
            why="Headrace needs one with its own connector, kernel and settings, which a session gets when it starts.",
            fix="make none in the module of the pipeline: columns need none, and in a function given to .apply\n"
            "it is df.sparkSession. In tests take that of hr.testing. One that is needed no more: spark.stop().",
        )


def open_session(
    name: str,
    *,
    slots: int,
    state_partitions: int,
    log_file: Path,
    report: Report | None = None,
    verbose: bool = False,
    extra: dict[str, str] | None = None,
    jvm_options: Sequence[str] | None = None,
) -> SparkSession:
    """Start Spark in this process with everything Headrace needs. The JVM's own chatter goes to `log_file`.

    Its JVM uses the archive of `headrace prepare` if there is one, unless it is given other options.
    """
    java = find_java()
    classpath = session_jars(report)
    options = using(session_archive(classpath)) if jvm_options is None else jvm_options
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Otherwise Spark looks for a network interface, warns about the one it finds, and may bind to it.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    log_file.parent.mkdir(parents=True, exist_ok=True)

    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession as Session

    # PySpark logs every exception that it raises to the terminal as well, as JSON; Headrace explains it instead.
    # So does Py4J with every call to a JVM that has just ended.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    # Some of it Py4J logs under no name at all.
    logging.getLogger().addFilter(_not_py4j)
    builder = Session.builder.appName(name).master(master(slots))
    settings = {
        **SESSION,
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, classpath)),
        "spark.driver.extraJavaOptions": " ".join(
            (JAVA_OPTIONS, *map(_quoted, (*_logging(log_file, verbose), *options)))
        ),
        **(extra or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    said_to = _output_file(log_file)
    try:
        with _output_to(said_to, enabled=not verbose):
            return builder.getOrCreate()
    except PySparkRuntimeError as problem:
        said = said_to.read_text(errors="replace").strip() if not verbose and said_to.exists() else ""
        raise EnvironmentProblem(
            "Spark's JVM did not start.",
            why="\n".join([f"{java.executable} ended at once.", *said.splitlines()[-_LAST_LINES:]]),
            fix=f"see {said_to} and {log_file}; too little memory and a wrong JAVA_HOME are the usual reasons",
        ) from problem


@contextlib.contextmanager
def started_with(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings for the queries that are started within: each keeps what the session has at that moment."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            if kept is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, kept)


def session_jars(report: Report | None = None) -> tuple[Path, ...]:
    """What is on the class path before Spark's own jars: the connector and the kernel."""
    return (*resolve("spark-kafka", progress=report), kernel_jar(progress=report))


def session_archive(jars: Sequence[Path]) -> Path:
    """Where the class archive of sessions with these jars is, or would be."""
    return archive_of("session", find_java(), [*jars, *sorted(spark_jars_dir().glob("*.jar"))])


def _not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _logging(log_file: Path, verbose: bool) -> tuple[str, ...]:
    config = Path(__file__).with_name("log4j2-verbose.properties" if verbose else "log4j2.properties")
    return (f"-Dlog4j2.configurationFile={config.as_uri()}", f"-Dheadrace.log={log_file}")


def _quoted(option: str) -> str:
    """Spark splits options at spaces, and takes quotes and backslashes for its own; a path may have any of them."""
    escaped = option.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def _output_file(log_file: Path) -> Path:
    return log_file.with_suffix(".out.log")


@contextlib.contextmanager
def _output_to(file: Path, *, enabled: bool) -> Iterator[None]:
    """Let a JVM that is started here inherit the file for what it prints: some of its words bypass all logging."""
    if not enabled:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        for descriptor in kept:
            os.dup2(target, descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, before in kept.items():
            os.dup2(before, descriptor)
            os.close(before)
        os.close(target)
