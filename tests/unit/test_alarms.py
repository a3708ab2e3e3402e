"""Alarms: what can be written, what is refused, and how they go from ok to pending, firing and back."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import headrace as hr
from headrace.errors import DashboardError, InvalidAlarmError, InvalidPipelineError
from headrace.ops.alarming import Alarms, Change, read_alarms, to_webhook
from headrace.ops.runs import Pipeline
from headrace.pipeline.alarms import DEFAULTS, parse_alarm
from tests.system.running import wait_for


@pytest.mark.parametrize(
    ("text", "metric", "threshold", "hold_ms"),
    [
        ("lag_seconds > 60 for 5m", "lag_seconds", 60.0, 300_000),
        ("lag_seconds > 2m", "lag_seconds", 120.0, 0),
        ("late_rate > 1% for 1m", "late_rate", 0.01, 60_000),
        ("state_bytes > 2GB", "state_bytes", 2e9, 0),
        ("state_bytes > 2GiB", "state_bytes", 2 * 2**30, 0),
        ("p99 > 500ms for 1m", "p99", 500.0, 60_000),
        ("p99 > 1.5s", "p99", 1500.0, 0),
        ("  no   events for 2m ", "idle_seconds", 120.0, 0),
        ("lag_events >= 10_000 for 1m30s", "lag_events", 10_000.0, 90_000),
        ("events_in < 5k", "events_in", 5000.0, 0),
        ("up < 1 for 15s", "up", 1.0, 15_000),
    ],
)
def test_what_can_be_written(text: str, metric: str, threshold: float, hold_ms: int) -> None:
    alarm = parse_alarm(text)
    assert (alarm.metric, alarm.threshold, alarm.hold_ms) == (metric, threshold, hold_ms)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lag is too big", "is not an alarm"),
        ("lag_secnds > 60", "did you mean `lag_seconds`?"),
        ("p99 > 5GB", "`GB` is no unit of a metric in milliseconds"),
        ("p99 > 500ms for a while", "is not a duration"),
        ("late_rate > 1% for 0s", "is zero"),
        ("p99 > 500ms; rm -rf /", "is not an alarm"),
        ("x" * 10_000, "is not an alarm"),
        ("", "is not an alarm"),
    ],
)
def test_what_is_refused_says_why(text: str, says: str) -> None:
    with pytest.raises(InvalidAlarmError) as refused:
        parse_alarm(text)
    assert says in refused.value.render()
    assert len(refused.value.render()) < 1500


def test_a_pipeline_tells_all_wrong_alarms_at_once() -> None:
    pipeline = hr.Pipeline("clicks")
    pipeline.read("clicks", schema="user STRING").write("copy")
    pipeline.alarm("p99 > 10ms", "lagg > 1", "p99 >")
    with pytest.raises(InvalidPipelineError) as refused:
        pipeline.check()
    assert [type(problem) for problem in refused.value.problems] == [InvalidAlarmError, InvalidAlarmError]
    assert "test_alarms.py" in refused.value.render()


def test_ok_pending_firing_and_back() -> None:
    alarms = Alarms(["lag_seconds > 60 for 10s"])
    changes: list[Change] = []
    alarms.on_change(changes.append)
    pipeline = Pipeline("clicks")

    def state_at(now: float, lag: float | None) -> str:
        alarms.evaluate(pipeline, {"lag_seconds": lag}, now)
        return str(alarms.of("clicks")[0]["state"])

    assert [
        state_at(at, lag) for at, lag in ((0, 10.0), (1, 61.0), (10, 70.0), (11, 71.0), (12, 80.0), (13, 60.0))
    ] == [
        "ok",
        "pending",
        "pending",
        "firing",
        "firing",
        "ok",
    ]
    assert [(c["event"], c["value"]) for c in changes] == [("firing", 71.0), ("cleared", 60.0)]


def test_a_peak_that_passes_fires_nothing_and_what_is_unknown_is_no_alarm() -> None:
    alarms = Alarms(["lag_seconds > 60 for 10s"])
    changes: list[Change] = []
    alarms.on_change(changes.append)
    for at, lag in ((0, 61.0), (9, 61.0), (10, 1.0), (11, 61.0), (20, 61.0), (20.5, None), (22, 61.0)):
        alarms.evaluate(Pipeline("clicks"), {"lag_seconds": lag}, at)
    assert changes == []


def test_an_alarm_of_the_pipeline_takes_the_place_of_the_default() -> None:
    alarms = Alarms()
    pipeline = Pipeline("clicks", alarms=("p99 > 20ms for 1m", "from_the_future > 1"))
    alarms.evaluate(pipeline, {}, 0)
    of_p99 = [a["alarm"] for a in alarms.of("clicks") if a["metric"] == "p99"]
    assert of_p99 == ["p99 > 20ms for 1m"]
    assert len(alarms.of("clicks")) == len(DEFAULTS)


def test_alarms_from_yaml() -> None:
    alarms = read_alarms("alarms: ['no events for 2m']\npipelines:\n  clicks: ['p99 > 1s']", "alarms.yaml")
    alarms.evaluate(Pipeline("clicks"), {}, 0)
    alarms.evaluate(Pipeline("other"), {}, 0)
    assert [a["alarm"] for a in alarms.of("clicks")] == ["p99 > 1s", "no events for 2m"]
    assert [a["alarm"] for a in alarms.of("other")] == ["no events for 2m"]


@pytest.mark.parametrize("text", ["alarms: 5", "alarm: []", "- x", "{", "alarms: ['p99 > ']", "pipelines: {a: b}"])
def test_a_file_that_is_wrong_is_an_error_with_the_file_in_it(text: str) -> None:
    with pytest.raises(DashboardError, match=r"my\.yaml"):
        read_alarms(text, "my.yaml")


def test_the_webhook_gets_what_fires_and_is_tried_again() -> None:
    got: list[dict[str, object]] = []
    answers = [500, 200, 200]

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = answers.pop(0)
            if status == 200:
                got.append(body)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    alarms = Alarms(["lag_seconds > 60"])
    said: list[str] = []
    to_webhook(alarms, f"http://127.0.0.1:{server.server_port}/secret-path", said.append)
    for at, lag in ((0, 61.0), (1, 1.0)):
        alarms.evaluate(Pipeline("clicks"), {"lag_seconds": lag}, at)
    wait_for(lambda: len(got) == 2, "both changes")
    alarms.close()
    server.shutdown()
    server.server_close()
    assert [(g["event"], g["pipeline"]) for g in got] == [("firing", "clicks"), ("cleared", "clicks")]
    assert said == []


def test_a_webhook_that_is_gone_is_told_without_its_address() -> None:
    alarms = Alarms(["lag_seconds > 60"])
    said: list[str] = []
    to_webhook(alarms, "http://127.0.0.1:1/secret-path", said.append)
    alarms.evaluate(Pipeline("clicks"), {"lag_seconds": 61.0}, 0)
    wait_for(lambda: bool(said), "the failure to be told")
    alarms.close()
    assert "secret-path" not in said[0]
