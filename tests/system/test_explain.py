"""`headrace explain` of the flagship example: what it says to people and to programs, and that it starts nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.processes import Headrace, headrace

FRAUD = "examples.fraud:fraud"
DAY_MS = 86_400_000
ROUTES = {
    "decisions": "result",
    "fraud-alerts": "result",
    "transactions-late": "late",
    "transactions-duplicates": "duplicate",
    "transactions-quarantined": "quarantined",
    "transactions-dead-letters": "dead_letter",
}


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A home whose `java` notes that it was called."""
    executable = tmp_path / "java" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f'#!/bin/sh\necho called >> "{tmp_path}/java/called"\n')
    executable.chmod(0o755)
    return tmp_path / "java"


def explained(folder: Path, java: Path, *words: str) -> str:
    state = folder / "state"
    said: Headrace = headrace(folder, "explain", FRAUD, *words, JAVA_HOME=str(java), HEADRACE_STATE=str(state))
    assert (said.process.returncode, said.err) == (0, "")
    assert not (java / "called").exists(), "a JVM was started, or at least looked for"
    assert not state.exists(), "something was begun"
    return said.out


def test_people_read_the_plan_its_state_and_the_guarantee_of_each_output(tmp_path: Path, java: Path) -> None:
    lines = explained(tmp_path, java).splitlines()
    assert lines[0] == "pipeline card-fraud"
    drawn = [line.split()[0] for line in lines[1:9]]
    assert drawn == ["read", "event_time", "dedupe", "key_by", "rolling", "with_column", "with_column", "select"]
    assert "dedupe `dedupe-txn_id`: txn_id within 1d" in lines
    assert [line for line in lines if line.startswith("query ")] == ["query card-fraud-card-activity"]
    fused = (
        "  keyed by card_id: `dedupe-txn_id` + `card-activity` fused into one operator: one shuffle, one state store"
    )
    assert fused in lines
    assert "  state of `dedupe-txn_id`: ids of the last 1d of event time, per key" in lines
    (activity,) = [line for line in lines if line.startswith("  state of `card-activity`: ")]
    assert "events of the last 10m before the watermark" in activity
    assert "  late after the watermark: 30s behind the latest `occurred_at`" in lines
    for topic, route in ROUTES.items():
        assert f"  {route.replace('_', ' ')} -> {topic}: exactly once; in real time at least once" in lines
    assert "exactly once (replay, microbatch)" in lines
    assert "at least once (realtime)" in lines


def test_programs_read_the_same_as_one_object(tmp_path: Path, java: Path) -> None:
    (line,) = explained(tmp_path, java, "--output", "json").splitlines()
    plan = json.loads(line)
    assert plan["pipeline"] == "card-fraud"
    writes = [node["details"]["topic"] for node in plan["nodes"] if node["kind"] == "write"]
    assert writes == list(ROUTES)
    (query,) = plan["queries"]
    assert (query["reads"], query["key"]) == ("transactions", ["card_id"])
    assert query["operator"] == ["dedupe-txn_id", "card-activity"]
    assert {state["step"]: state["retention_ms"] for state in query["state"]} == {
        "dedupe-txn_id": DAY_MS,
        "card-activity": DAY_MS,  # its windows are of minutes; the place before this one is kept for a day
    }
    assert {output["topic"]: output["route"] for output in query["outputs"]} == ROUTES
    for output in query["outputs"]:
        assert output["guarantees"] == {
            "replay": "exactly once",
            "microbatch": "exactly once",
            "realtime": "at least once",
        }
    assert plan["sinks"] == []
