"""What `headrace explain` says of a window step: its windows, state, and when its results come."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.explain import explain_dict, explain_text
from headrace.engine.plan import Route, plan_queries
from headrace.pipeline.draw import describe, draw
from headrace.pipeline.explanations import results_of, retention_ms, state_of, watermark_of
from headrace.pipeline.nodes import EventTime, Window
from tests.unit.declared import Declared

# Made while no SparkContext exists, whatever other tests start later.
COUNT, VISITORS, TOTAL = F.count("*"), F.approx_count_distinct("user_id"), F.sum("amount")
LARGE = F.col("total") > 100

EARLY = hr.after_watermark(early=hr.every("5s"), late=hr.each())


def views() -> hr.Pipeline:
    pipeline = hr.Pipeline("web")
    read = pipeline.read("views", schema="url STRING, user_id STRING, at TIMESTAMP").event_time("at")
    per_minute = read.key_by("url").window(
        "views-per-minute",
        hr.tumbling("1m"),
        views=COUNT,
        visitors=VISITORS,
        trigger=EARLY,
        allowed_lateness="10m",
    )
    per_minute.write("views-per-minute")
    per_minute.late.write("views-too-late")
    return pipeline


def step(windowing: hr.Windowing, *, keyed: bool = True, time: dict[str, Any] | None = None, **options: Any) -> Window:
    timed = Declared().read.event_time("occurred_at", **(time or {}))
    node = (timed.key_by("card_id") if keyed else timed).window("w", windowing, total=TOTAL, **options).node
    assert isinstance(node, Window)
    return node


def test_the_plan_for_people() -> None:
    lines = explain_text(views()).splitlines()
    assert lines[:8] == [
        "pipeline web",
        "read views",
        "event_time at, out of order by 30s",
        "key_by url",
        "window `views-per-minute`: tumbling(1m), views=count(*), visitors=approx_count_distinct(user_id), "
        "trigger after_watermark(early=every(5s), late=each()), accumulating panes, allowed lateness 10m",
        "+- write views-per-minute",
        "+- late",
        "   write views-too-late",
    ]
    assert lines[9:15] == [
        "query web-views-per-minute",
        "  reads views",
        "  keyed by url: `views-per-minute`",
        "  state of `views-per-minute`: one buffer per key and open window, kept until 10m after its end",
        "  results of `views-per-minute`: early every 5s, at the window's end + 30s (watermark), late each",
        "  watermark: 30s behind the latest `at`",
    ]


def test_the_plan_for_machines() -> None:
    described = json.loads(json.dumps(explain_dict(views())))
    (query,) = described["queries"]
    assert query["state"] == [
        {
            "step": "views-per-minute",
            "retention_ms": 660_000,
            "keeps": "one buffer per key and open window, kept until 10m after its end",
            "results": "early every 5s, at the window's end + 30s (watermark), late each",
        }
    ]
    window = next(node for node in described["nodes"] if node["kind"] == "window")
    assert window["name"] == "views-per-minute"
    assert window["details"] == {
        "windows": "tumbling(1m)",
        "aggregates": {"views": "count(*)", "visitors": "approx_count_distinct(user_id)"},
        "trigger": "after_watermark(early=every(5s), late=each())",
        "allowed_lateness": "10m",
        "panes": "accumulating",
        "late": "side",
        "result_time": "at_end()",
        "state": query["state"][0]["keeps"],
        "results": query["state"][0]["results"],
    }
    time = next(node for node in described["nodes"] if node["kind"] == "event_time")
    assert time["details"] == {
        "column": "at",
        "out_of_order": "30s",
        "max_skew": None,
        "watermark": "bounded(30s)",
        "close_idle": None,
    }


def test_everything_that_was_asked_for_is_drawn() -> None:
    declared = Declared()
    timed = declared.read.event_time("occurred_at", max_skew="5m", watermark=hr.perfect(), close_idle="2m")
    timed.window(
        "w", hr.session("5m"), n="count(*)", panes="discarding", late="drop", result_time=hr.at_latest(), trigger=EARLY
    ).write("out")
    timed.window("s", hr.sliding("5m"), n="count(*)").write("slid")
    lines = [line.lstrip("+-| ") for line in draw(declared.pipeline).splitlines()]
    assert "event_time occurred_at, watermark perfect(), max skew 5m, close idle after 2m" in lines
    assert (
        "window `w`: session(5m), n=count(*), trigger after_watermark(early=every(5s), late=each()), discarding panes, "
        "late rows dropped, time at_latest()"
    ) in lines
    assert "window `s`: sliding(5m), n=count(*)" in lines


# State


@pytest.mark.parametrize(
    ("node", "keeps", "retention"),
    [
        (step(hr.tumbling("1h")), "one buffer per key and open window, kept until its end", 3_600_000),
        (step(hr.tumbling("1h"), keyed=False), "one buffer per open window, kept until its end", 3_600_000),
        (
            step(hr.hopping("1h", every="40m"), allowed_lateness="1m"),
            "one buffer per key and open window (2 at a time), kept until 1m after its end",
            3_660_000,
        ),
        (
            step(hr.session("5m"), allowed_lateness="1m", panes="retracting"),
            "one buffer and the last result per key and open session, kept until 6m after its last event",
            None,
        ),
        (
            step(hr.tumbling("1h"), panes="discarding"),
            "one buffer per key and open window, emptied with each result, kept until its end",
            3_600_000,
        ),
        (step(hr.global_window()), "one buffer per key, kept for ever", None),
        (step(hr.global_window(), keyed=False), "one buffer, kept for ever", None),
        (step(hr.sliding("10m")), "events of the last 10m before the watermark, per key", 600_000),
        (step(hr.sliding("10m"), keyed=False), "events of the last 10m before the watermark", 600_000),
    ],
)
def test_what_a_window_keeps_and_for_how_long(node: Window, keeps: str, retention: int | None) -> None:
    assert state_of(node) == keeps
    assert retention_ms(node) == retention


# Results


@pytest.mark.parametrize(
    ("options", "results"),
    [
        ({}, "at the window's end + 30s (watermark)"),
        ({"allowed_lateness": "1m"}, "at the window's end + 30s (watermark), late each"),
        ({"time": {"out_of_order": "0s"}}, "at the window's end (watermark)"),
        ({"time": {"close_idle": "2m"}}, "at the window's end + 30s (watermark or 2m of silence)"),
        ({"time": {"watermark": hr.adaptive()}}, "at the window's end + 1s to 10m (adaptive watermark)"),
        (
            {"time": {"watermark": hr.per_partition()}},
            "at the window's end + 30s (watermark of the slowest partition)",
        ),
        ({"time": {"watermark": hr.perfect()}}, "when the input ends (in replay; a live run has no end)"),
        ({"trigger": hr.after_watermark()}, "at the window's end + 30s (watermark)"),
        (
            {"trigger": hr.after_watermark(), "allowed_lateness": "1m"},
            "at the window's end + 30s (watermark); then no more, what still comes for the window is late",
        ),
        (
            {"trigger": hr.after_watermark(early=hr.any_of(hr.after_count(3), hr.every("5s")))},
            "early again and again (after 3 events or every 5s), at the window's end + 30s (watermark)",
        ),
        ({"trigger": hr.repeat(hr.after_count(100))}, "every 100 events"),
        ({"trigger": hr.after_count(1)}, "after 1 event; then no more, what still comes for the window is late"),
        ({"trigger": hr.repeat(hr.when(LARGE))}, "whenever >(total, 100)"),
        (
            {"trigger": hr.after_each(hr.when("total > 5"), hr.after_processing_time("5s"), hr.each())},
            "when total > 5, then 5s after the first event, then each",
        ),
        (
            {"trigger": hr.all_of(hr.each(), hr.after_each(hr.after_count(2), hr.each()))},
            "each and (after 2 events, then each)",
        ),
    ],
)
def test_when_the_results_of_a_window_come(options: dict[str, Any], results: str) -> None:
    assert results_of(step(hr.tumbling("1m"), **options)) == results


@pytest.mark.parametrize(
    ("windowing", "results"),
    [
        (hr.session("5m"), "5m after the session's last event + 30s (watermark)"),
        (hr.global_window(), "at the end of the stream"),
        (hr.sliding("5m"), "one with each event, when it comes"),
    ],
    ids=str,
)
def test_when_the_results_of_other_windows_come(windowing: hr.Windowing, results: str) -> None:
    assert results_of(step(windowing)) == results


@pytest.mark.parametrize(
    ("watermark", "text"),
    [
        (None, "30s behind the latest `at`"),
        (
            hr.adaptive(),
            "as far behind the latest `at` as 0.99 of the events lately came at most, at least 1s, at most 10m",
        ),
        (
            hr.per_partition(),
            "30s behind the latest `at` of the slowest partition, without those that were silent for 1m",
        ),
        (hr.perfect(), "nowhere until the input ends (in replay; a live run has no end), then past every event"),
    ],
    ids=str,
)
def test_where_the_watermark_is(watermark: hr.Watermark | None, text: str) -> None:
    node = hr.Pipeline("p").read("t", schema="at TIMESTAMP").event_time("at", watermark=watermark).node
    assert isinstance(node, EventTime)
    assert watermark_of(node) == text


# Queries


def test_an_unfinished_declaration_is_described_too() -> None:
    pipeline = hr.Pipeline("p")
    pipeline.read("t", schema="a INT").window("w", hr.tumbling("1m"), n="count(*)")
    assert describe(pipeline)["nodes"][1]["details"]["results"] == "at the window's end"


def test_late_rows_that_are_dropped_need_no_topic() -> None:
    declared = Declared("job")
    declared.timed.window("w", hr.tumbling("1m"), n="count(*)", late="drop").write("out")
    (query,) = plan_queries(declared.pipeline)
    assert Route.LATE not in [branch.route for branch in query.branches]
    text = explain_text(declared.pipeline)
    assert "  late in `w` -> dropped and counted" in text
    assert "  over the whole stream: `w`" in text


def test_a_dedupe_before_windows_of_the_whole_stream_does_not_divide_them() -> None:
    declared = Declared("job")
    declared.timed.dedupe("txn_id").window("w", hr.tumbling("1m"), n="count(*)", late="drop").write("out")
    (query,) = plan_queries(declared.pipeline)
    assert query.key == ()
    assert [each.name for each in query.stateful] == ["dedupe-txn_id", "w"]
    assert "job.late" in query.output_topics, "those of the dedupe"


def test_the_state_of_a_window_holds_what_its_aggregates_use() -> None:
    declared = Declared("job")
    declared.keyed.window("w", hr.tumbling("1m"), total=TOTAL, n=COUNT, sql="max(LAT)").write("out")
    (query,) = plan_queries(declared.pipeline)
    assert query.state_columns == {"card_id", "amount", "lat"}
