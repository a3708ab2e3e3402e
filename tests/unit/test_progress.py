"""Spark's progress in Headrace's own records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.engine.progress import Progress, event, from_spark, to_file

PROGRESS: dict[str, Any] = {
    "id": "1b1b",
    "runId": "2c2c",
    "name": "card-fraud",
    "timestamp": "2026-11-15T22:44:13.781Z",
    "batchId": 7,
    "batchDuration": 1500,
    "numInputRows": 1200,
    "inputRowsPerSecond": 100.0,
    "processedRowsPerSecond": 812.3456,
    "durationMs": {"triggerExecution": 1477, "walCommit": 40, "commitOffsets": 60, "addBatch": 1200},
    "eventTime": {"avg": "2024-05-01T12:00:00.000Z", "watermark": "2024-05-01T11:59:30.000Z"},
    "stateOperators": [
        {
            "numRowsTotal": 300,
            "memoryUsedBytes": 5000,
            "commitTimeMs": 25,
            "customMetrics": {"rocksdbSstFileSize": 700},
        },
        {"numRowsTotal": 20, "memoryUsedBytes": 100, "commitTimeMs": 5},
    ],
    "sources": [
        {
            "startOffset": {"txns": {"0": 10, "1": 0}},
            "endOffset": {"txns": {"0": 610, "1": 600}},
            "latestOffset": {"txns": {"0": 700, "1": 650, "2": 5}},
        }
    ],
    "sink": {"numOutputRows": 3},
    "observedMetrics": {"headrace": {"late": 3, "duplicates": 2, "quarantined": 1, "dead_letters": 4}},
}


def test_a_full_progress() -> None:
    assert from_spark(PROGRESS, "microbatch") == Progress(
        at="2026-11-15T22:44:13.781Z",
        query="card-fraud",
        mode="microbatch",
        batch=7,
        input_rows=1200,
        rows_per_second=812.3,
        lag=90 + 50 + 5,
        watermark="2024-05-01T11:59:30.000Z",
        state_rows=320,
        state_bytes=700 + 100,
        batch_ms=1477,
        commit_ms=40 + 60 + 25,
        late=3,
        duplicates=2,
        quarantined=1,
        dead_letters=4,
        state_memory_bytes=5100,
        positions={"txns": {"0": 610, "1": 600}},
    )


def test_a_progress_that_says_next_to_nothing() -> None:
    """A query without state, in its first batch: Spark leaves out what it does not know."""
    told = from_spark({"timestamp": "t", "batchId": 0, "name": None, "processedRowsPerSecond": None}, "replay")
    assert (told.query, told.watermark, told.state_rows, told.batch_ms, told.late) == ("", None, 0, 0, 0)
    assert told.lag == 0


def test_before_the_first_event_there_is_no_watermark() -> None:
    told = from_spark(PROGRESS | {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}, "replay")
    assert told.watermark is None


def test_the_lag_is_not_known_where_the_source_does_not_say() -> None:
    told = from_spark(PROGRESS | {"sources": [{"endOffset": {"txns": {"0": 5}}, "latestOffset": None}]}, "realtime")
    assert told.lag is None


def test_a_reader_that_is_ahead_of_a_stale_end_has_no_negative_lag() -> None:
    sources = [{"endOffset": {"txns": {"0": 10, "1": 5}}, "latestOffset": {"txns": {"0": 8, "1": 7}}}]
    assert from_spark(PROGRESS | {"sources": sources}, "realtime").lag == 2


def test_records_go_to_a_file_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "progress.jsonl"
    write = to_file(path)
    write(event("started", "card-fraud", "realtime"))
    write(from_spark(PROGRESS, "realtime"))
    first, second = [json.loads(line) for line in path.read_text().splitlines()]
    assert (first["event"], first["query"], first["mode"]) == ("started", "card-fraud", "realtime")
    assert (second["event"], second["batch"], second["state_rows"]) == ("progress", 7, 320)
