"""`headrace prepare`: everything that a first start would do, now."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.cli.output import Format, Output, OutputOption
from headrace.jvm.class_archive import forget_old
from headrace.jvm.jars import resolve
from headrace.jvm.progress import Progress
from headrace.log.broker import broker_archive


def prepare(output: OutputOption = Format.TEXT) -> None:
    """Fetch the jars, compile the kernel, and make what lets later starts take about half the time.

    Once for each version of Java, PySpark and Headrace; after it nothing needs the network. For images and for machines
    that start many jobs. Without it the first start fetches and compiles, and every start takes its full time.
    """
    from headrace.engine.session import session_archive, session_jars

    out = Output.of(output)
    with out.progress() as report:
        broker = broker_archive(resolve("kafka-broker", report))
        session = session_archive(session_jars(report))
        made = all(archive.is_file() for archive in (broker, session)) or _make(broker, session, report)
        forget_old()
    said = "ready: jars, kernel and class archives are there"
    if not made:
        said = "ready: jars and kernel are there. This Java makes no class archives: starts take their full time"
    out.record({"prepared": True, "class_archives": made}, said)


def _make(broker: Path, session: Path, report: Progress) -> bool:
    """Let a broker and a session work for a moment, and keep what their JVMs leave."""
    report("class archives: a broker and a session work for a moment, once")
    session.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=session.parent, prefix=".making.") as scratch:
        drafts = [Path(scratch) / archive.name for archive in (broker, session)]
        command = [sys.executable, "-m", "headrace.demo.class_training", *map(str, drafts)]
        trained = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        made = [draft.is_file() for draft in drafts]
        for draft, archive in zip(drafts, (broker, session), strict=True):
            if draft.is_file():
                draft.replace(archive)
    if trained.returncode != 0:
        report(f"class archives: the work failed, and starts take their full time: {trained.stderr.strip()[-500:]}")
    return all(made)
