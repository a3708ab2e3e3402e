"""Runs trigger transcripts: dialogues of input, watermark and expected panes, in the format of Apache Beam.

Times are seconds since 1970, and an element is its own timestamp. Steps of a transcript:

- `input: [1, 2]`: one batch of elements.
- `watermark: 25`: the watermark is at 25 s. `processing_time: 5`: the clock is at 5 s (it starts at 0);
  `advance_processing_time: 5`: 5 s pass by the clock.
- `expect: [...]`: outputs of the last action. Each matches one output in the attributes that it names; outputs that
  no `expect` has named before the next action are errors.
- `state: {present: [...], absent: [...], tombstone: [...]}`: what is kept of windows. It is found out by behaviour, on
  copies of the stream: see `Transcript.check_state`.

Windows are written [start, last second in it]; the global window is null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import headrace as hr
from headrace.testing import Driver
from tests.spark.beam_names import result_time, trigger, windowing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Span = tuple[float, float] | None
Step = tuple[str, Any]

ATTRIBUTES = {"window", "values", "timestamp", "index", "nonspeculative_index", "early", "late", "final"}
ACTIONS = {"input", "watermark", "processing_time", "advance_processing_time"}
MAIN = "main"


class TranscriptError(AssertionError):
    """The outputs are not those of the transcript."""


@dataclass(frozen=True)
class Transcript:
    """One document of a transcript file."""

    name: str
    spec: dict[str, Any]

    @property
    def error(self) -> str | None:
        """What a transcript that is wrong on purpose must fail with."""
        return self.spec.get("error")

    @property
    def steps(self) -> list[Step]:
        """The steps in their order."""
        steps = []
        for line in self.spec["transcript"]:
            ((name, value),) = line.items()
            if name not in ACTIONS | {"expect", "state"}:
                raise ValueError(f"{self.name}: unknown step `{name}`")
            steps.append((name, value))
        return steps

    def pipeline(self) -> hr.Pipeline:
        """The pipeline that the transcript describes; what it does not say is as in Beam."""
        windows, custom = windowing(self.spec.get("window_fn", "GlobalWindows"))
        pipeline = hr.Pipeline("transcript")
        panes = (
            pipeline.read("elements", schema="track STRING, at BIGINT")
            .event_time("at", watermark=hr.perfect())
            .key_by("track")
            .window(
                "panes",
                windows,
                trigger=trigger(self.spec.get("trigger_fn", "Default")),
                panes=self.spec.get("accumulation_mode", "accumulating").lower(),
                allowed_lateness=f"{_millis(self.spec.get('allowed_lateness', 0))}ms",
                result_time=result_time(self.spec.get("timestamp_combiner", "OUTPUT_AT_EOW"), custom),
                elements="collect_list(at)",
            )
        )
        panes.write("panes")
        panes.late.write("late")
        return pipeline

    def run(self, spark: SparkSession) -> None:
        """Plays the steps; a TranscriptError says where the outputs are others."""
        outputs: list[dict[str, Any]] = []
        with Driver(self.pipeline(), spark=spark, start=0) as driver:
            play = Playing(driver, [MAIN])
            for number, (name, value) in enumerate(self.steps):
                if name == "expect":
                    for expected in value or []:
                        _consume(expected, outputs)
                    continue
                if outputs:
                    raise TranscriptError(f"Unexpected output: {outputs} before {name}: {value}")
                if name == "state":
                    self.check_state(spark, number, value)
                else:
                    outputs = play.act(name, value)[MAIN]
        if outputs:
            raise TranscriptError(f"Unexpected output: {outputs} at the end")

    def check_state(self, spark: SparkSession, number: int, claims: dict[str, list[Any]]) -> None:
        """Checks what is kept of windows when the steps before `number` have been played.

        Each window is probed on a copy of the stream: an element is sent into it, then event time goes on until all
        has come out. A window is a tombstone if the element is refused; present if it is taken, and comes out with
        elements from before or as a further pane; absent if nothing of before comes out. A tombstone has no contents,
        so it counts as absent, too: the transcripts call two windows in the same condition by either name.
        """
        unknown = claims.keys() - {"present", "absent", "tombstone"}
        if unknown:
            raise ValueError(f"{self.name}: unknown claims on state: {sorted(unknown)}")
        probes = {_track(claim, window): (claim, window) for claim, spans in claims.items() for window in spans}
        with Driver(self.pipeline(), spark=spark, start=0) as driver:
            play = Playing(driver, list(probes))
            for name, value in self.steps[:number]:
                if name in ACTIONS:
                    play.act(name, value)
            refused, found = play.probe(
                {track: 0 if window is None else window[0] for track, (_, window) in probes.items()}
            )
        for track, (claim, window) in probes.items():
            panes = [p for p in found[track] if p["window"] == _span(window)]
            present = track not in refused and any(len(p["values"]) > 1 or p["index"] > 0 for p in panes)
            holds = {"present": present, "absent": not present, "tombstone": track in refused}[claim]
            if not holds:
                raise TranscriptError(
                    f"Wrong state: {window} is not {claim}; refused: {track in refused}, panes: {panes}"
                )


class Playing:
    """Plays actions on tracks: copies of the stream, each a key of its own."""

    def __init__(self, driver: Driver, tracks: Sequence[str]) -> None:
        self._driver = driver
        self._tracks = tracks
        self._clock_ms = 0
        self._on_time_panes: dict[tuple[str, Span], int] = defaultdict(int)
        self._latest = 0.0

    def act(self, name: str, value: Any) -> dict[str, list[dict[str, Any]]]:
        """Plays one action; gives the outputs of each track."""
        if name == "input":
            self._latest = max([self._latest, *value])
            rows = [{"track": track, "at": _millis(element)} for track in self._tracks for element in value]
            self._driver.send("elements", *rows)
        elif name == "watermark":
            self._latest = max(self._latest, value)
            self._driver.advance_watermark(_millis(value))
        else:
            to = _millis(value) + (self._clock_ms if name == "advance_processing_time" else 0)
            if to < self._clock_ms:
                raise ValueError(f"the clock is at {self._clock_ms} ms and can't go back to {to} ms")
            self._driver.advance_clock(f"{to - self._clock_ms}ms")
            self._clock_ms = to
        return self._outputs()

    def probe(self, elements: dict[str, float]) -> tuple[set[str], dict[str, list[dict[str, Any]]]]:
        """Sends one element to each track, then lets event time go on by a year: which were refused, what came out."""
        self._driver.read("late")
        self._driver.send("elements", *({"track": track, "at": _millis(at)} for track, at in elements.items()))
        refused = {row["track"] for row in self._driver.read("late")}
        self._driver.advance_watermark(_millis(self._latest + 365 * 86_400))
        return refused, self._outputs()

    def _outputs(self) -> dict[str, list[dict[str, Any]]]:
        outputs: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self._driver.read("panes"):
            # Rows that take an earlier result back are corrections, not panes.
            if not row["row_kind"].startswith("-"):
                outputs[row["track"]].append(self._output(row))
        return outputs

    def _output(self, row: dict[str, Any]) -> dict[str, Any]:
        window: Span = None
        if "window_end" in row:
            window = (_seconds(row["window_start"]), _seconds(row["window_end"]) - 1)
        timing = row["pane_timing"]
        on_time_index = -1
        if timing != "early":
            on_time_index = self._on_time_panes[row["track"], window]
            self._on_time_panes[row["track"], window] += 1
        return {
            "window": window,
            "values": sorted(element / 1000 for element in row.get("elements", [])),
            "timestamp": int(_seconds(row["window_time"])) if "window_time" in row else None,
            "index": row["pane_index"],
            "nonspeculative_index": on_time_index,
            "early": timing == "early",
            "late": timing == "late",
            "final": row["is_last"],
        }


def transcripts(file: Path) -> list[Transcript]:
    """The transcripts of a file, one per YAML document."""
    documents: Iterable[dict[str, Any]] = yaml.safe_load_all(file.read_text())
    return [Transcript(spec["name"], spec) for spec in documents if spec]


def _consume(expected: dict[str, Any], outputs: list[dict[str, Any]]) -> None:
    """Takes the first output out that has what is expected."""
    unknown = expected.keys() - ATTRIBUTES
    if unknown:
        raise ValueError(f"unknown attributes of an output: {sorted(unknown)}")
    wanted = dict(expected)
    if "window" in wanted:
        wanted["window"] = _span(wanted["window"])
    if "values" in wanted:
        wanted["values"] = sorted(wanted["values"])
    for output in outputs:
        if all(output[name] == value for name, value in wanted.items()):
            outputs.remove(output)
            return
    raise TranscriptError(f"Unmatched output: {expected} is not in {outputs}")


def _track(claim: str, window: Any) -> str:
    return f"{claim}-{window}"


def _span(window: Any) -> Span:
    return None if window is None else (window[0], window[1])


def _millis(seconds: float) -> int:
    return round(seconds * 1000)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
