"""`headrace prepare`: what it makes is used by the JVMs that start after it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from headrace.log.broker import EmbeddedBroker
from tests.system.running import Engine


def test_a_broker_maps_its_archive(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "prepare", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["prepared"] is True
    with EmbeddedBroker(tmp_path) as broker:
        assert ("/classes/broker-" in mapped_files(broker.pid)) is said["class_archives"]


def test_a_session_maps_its_archive(engine: Engine) -> None:
    """If there was one when it started: `make test` sees to that."""
    context = engine.spark.sparkContext
    told = "SharedArchiveFile" in (context.getConf().get("spark.driver.extraJavaOptions") or "")
    gateway = context._gateway
    assert gateway is not None
    assert ("/classes/session-" in mapped_files(gateway.proc.pid)) is told


def mapped_files(process: int) -> str:
    return Path(f"/proc/{process}/maps").read_text()
