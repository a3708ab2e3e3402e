"""`headrace prepare`: everything that a first start would do, now."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.cli.output import Format, Output, OutputOption
from headrace.jvm.class_archive import forget_old
from headrace.jvm.jars import resolve
from headrace.jvm.once import exclusive
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
        wanted = {
            "broker": broker_archive(resolve("kafka-broker", report)),
            "session": session_archive(session_jars(report)),
        }
        lock = wanted["session"].with_name("prepare.lock")
        with exclusive(lock, lambda: report("class archives: another process makes them, waiting")):
            missing = {name: archive for name, archive in wanted.items() if not archive.is_file()}
            if missing:
                _make(missing, report)
                forget_old()
        made = all(archive.is_file() for archive in wanted.values())
    said = "ready: jars, kernel and class archives are there"
    if not made:
        said = "ready: jars and kernel are there. There are no class archives: starts take their full time"
    out.record({"prepared": True, "class_archives": made}, said)


def _make(missing: dict[str, Path], report: Progress) -> None:
    """Let a broker and a session work for a moment, and keep what their JVMs leave."""
    report("class archives: a broker and a session work for a minute, once")
    folder = next(iter(missing.values())).parent
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making.") as scratch:
        drafts = {name: Path(scratch) / archive.name for name, archive in missing.items()}
        asked = [word for name, draft in drafts.items() for word in (f"--{name}", str(draft))]
        command = [sys.executable, "-m", "headrace.cli.class_training", *asked]
        trained = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        for name, draft in drafts.items():
            if draft.is_file():
                draft.replace(missing[name])
    if trained.returncode != 0:
        report(f"class archives: the work failed, and starts take their full time: {trained.stderr.strip()[-500:]}")
