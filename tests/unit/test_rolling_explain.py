"""What `headrace explain` says of a rolling step: how long it keeps what, and in which modes it runs."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.engine.explain import explain_dict, explain_text


def rolled(watermark: hr.Watermark | None = None, **aggregates: object) -> hr.Pipeline:
    pipeline = hr.Pipeline("cards")
    timed = pipeline.read("uses", schema="card STRING, place STRING, at TIMESTAMP").event_time(
        "at", watermark=watermark
    )
    timed.key_by("card").rolling("activity", **aggregates).write("out")  # type: ignore[arg-type]
    return pipeline


@pytest.mark.parametrize(
    ("within", "keeps"),
    [
        (None, "events of the last 10m before the watermark, per key"),
        ("5m", "events of the last 10m before the watermark, per key"),
        ("1d", "events of the last 10m before the watermark and the last 2 of 1d, per key"),
    ],
)
def test_a_look_back_beyond_the_windows_keeps_few_events(within: str | None, keeps: str) -> None:
    pipeline = rolled(count=hr.last("10m").count(), before=hr.latest("place", back=2, within=within))
    assert f"state of `activity`: {keeps}" in explain_text(pipeline)


def test_without_windows_it_keeps_nothing_else() -> None:
    (query,) = explain_dict(rolled(before=hr.latest("place", within="1d")))["queries"]
    assert [(state["keeps"], state["retention_ms"]) for state in query["state"]] == [
        ("the last 1 of 1d, per key", 86_400_000)
    ]


def test_input_that_ends_is_for_replays() -> None:
    assert "  modes: replay\n" in explain_text(rolled(hr.perfect(), count=hr.last("10m").count())) + "\n"
