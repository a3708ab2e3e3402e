"""Triggers behave as in Apache Beam: its transcripts, and more like them, played on the real plan and kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.transcripts import Transcript, TranscriptError, transcripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[1] / "data" / "triggers"
OURS = "clock_and_composites"
# Names are not unique. Those of our own take a minute more.
CASES = [
    pytest.param(t, id=f"{file.stem}-{number}-{t.name}", marks=[pytest.mark.soak] if file.stem == OURS else [])
    for file in sorted(FOLDER.glob("*.yaml"))
    for number, t in enumerate(transcripts(file))
]


@pytest.mark.parametrize("transcript", CASES)
def test_transcript(transcript: Transcript, spark: SparkSession) -> None:
    if transcript.error is None:
        transcript.run(spark)
    else:
        with pytest.raises(TranscriptError, match=re.escape(transcript.error)):
            transcript.run(spark)
