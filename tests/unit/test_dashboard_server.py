"""The dashboard's server over real sockets: what it answers, what it pushes, and whom it refuses."""

from __future__ import annotations

import gc
import http.client
import json
import re
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from headrace.errors import DashboardError, PortTakenError
from headrace.metrics import GOLDEN, METRICS
from headrace.ops.alarming import Alarms
from headrace.ops.exposition import grafana_dashboard
from headrace.ops.watch import Watch
from headrace.ops.web.server import PAGE, Address, Dashboard
from tests.unit.synthetic_feed import Synthetic

TOKEN = "a-token-that-is-long-enough"


class Client:
    """Requests to one dashboard, with whatever headers a test wants."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.host = re.sub(r"^http://|/$", "", dashboard.url)

    def get(self, path: str, **headers: str) -> tuple[int, bytes, Any]:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes, Any]:
        return self._ask("POST", path, body, headers)

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes, Any]:
        connection = http.client.HTTPConnection(self.host, timeout=20)
        try:
            connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        status, body, _ = self.get(path)
        assert status == 200, body
        return json.loads(body)


@pytest.fixture(scope="module")
def feed() -> Synthetic:
    return Synthetic(3, 4)


@pytest.fixture(scope="module")
def client(feed: Synthetic) -> Iterator[Client]:
    watch = Watch(feed, Alarms(["lag_events > 1000"]), wall=feed.wall)
    for _ in range(60):
        watch.look()
    with Dashboard(watch, Address(port=0)) as running:
        yield Client(running)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Client]:
    source = Synthetic(1, 1)
    with Dashboard(Watch(source, wall=source.wall), Address(port=0, token=TOKEN)) as running:
        yield Client(running)


def test_every_endpoint_that_openapi_names_answers_and_none_is_left_out(client: Client) -> None:
    described = client.json("/openapi.json")
    assert described["openapi"].startswith("3.1")
    for path, operations in described["paths"].items():
        filled = path.replace("{pipeline}", "pipeline-00").replace("{topic}", "out-0")
        status, body, headers = client.get(filled)
        assert status == 200, (path, body)
        (kind,) = operations["get"]["responses"]["200"]["content"]
        assert headers["content-type"].startswith(kind)
    assert {"/api/pipelines", "/api/pipelines/{pipeline}", "/api/alarms", "/metrics"} <= set(described["paths"])


def test_the_numbers_of_a_pipeline(client: Client) -> None:
    detail = client.json("/api/pipelines/pipeline-01")
    assert detail["status"] == "running"
    assert detail["values"]["lag_events"] == 0
    assert detail["values"]["events_in"] == pytest.approx(40.0)
    assert detail["values"]["p50"] == pytest.approx(12.0, rel=0.02)
    assert [edge["per_second"] for edge in detail["graph"]["edges"]] == [pytest.approx(40.0), pytest.approx(10.0)]
    assert len(detail["partitions"]) == 4
    history = client.json("/api/pipelines/pipeline-01/history?metrics=events_in,p99&span=30s")["series"]
    assert set(history) == {"events_in", "p99"}
    assert len(history["events_in"]) == 30


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/pipelines/nobody", 404),
        ("/api/pipelines/pipeline-00/history?metrics=nothing", 400),
        ("/api/pipelines/pipeline-00/history?span=forever", 400),
        ("/api/topics/__consumer_offsets/results", 404),
        ("/page/../server.py", 404),
        ("/page/%2e%2e/server.py", 404),
        ("/nothing", 404),
    ],
)
def test_what_is_not_there(client: Client, path: str, status: int) -> None:
    assert client.get(path)[0] == status


def test_prometheus_gets_every_metric_with_its_help(client: Client) -> None:
    families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics")[1].decode())}
    for metric in METRICS.values():
        assert families[metric.exposed].documentation == metric.help
    lag = {s.labels["partition"]: s.value for s in families["headrace_partition_lag_events"].samples}
    assert set(lag) == {"0", "1", "2", "3"}
    counted = [s for s in families["headrace_topic_events"].samples if s.labels["topic"] == "in-0"]
    assert counted[0].value >= 59 * 40
    assert families["headrace_latency_p50_seconds"].samples[0].value == pytest.approx(0.012, rel=0.02)


def test_grafana_asks_for_metrics_that_prometheus_has(client: Client) -> None:
    exposed = client.get("/metrics")[1].decode()
    panels = grafana_dashboard()["panels"]
    assert len(panels) == len(METRICS)
    assert {panel["title"].split(":")[0] for panel in panels[:5]} <= set(GOLDEN.values())
    for panel in panels:
        name = panel["targets"][0]["expr"].partition("{")[0]
        assert f"# HELP {name} " in exposed


def test_the_push_tells_all_pipelines_and_the_chosen_one(client: Client) -> None:
    with connect(f"ws://{client.host}/ws") as socket:
        first = json.loads(socket.recv(20))
        assert len(first["summary"]["pipelines"]) == 3
        assert "detail" not in first
        socket.send(json.dumps({"pipeline": "pipeline-02"}))
        detail = next(m for _ in range(5) if "detail" in (m := json.loads(socket.recv(20))))
        assert detail["detail"]["name"] == "pipeline-02"
        socket.send(json.dumps({"topic": "out-1"}))
        results = next(m for _ in range(5) if "results" in (m := json.loads(socket.recv(20))))
        assert results["results"][0]["latency_ms"] == 12
        looks = [json.loads(socket.recv(20))["summary"]["looks"] for _ in range(2)]
        assert looks[0] < looks[1]


def test_an_alarm_fires_on_a_lag_and_clears(client: Client, feed: Synthetic) -> None:
    with connect(f"ws://{client.host}/ws") as socket:

        def until(count: int) -> None:
            for _ in range(60):
                if json.loads(socket.recv(20))["summary"]["firing"] == count:
                    return
            raise AssertionError(f"never {count} firing")

        feed.rate, before = 1000, feed.rate
        feed.stalled.add(0)
        until(1)
        feed.stalled.clear()
        until(0)
        feed.rate = before
    changes = client.json("/api/alarms")["changes"]
    assert [c["event"] for c in changes[:2]] == ["cleared", "firing"]


# Who is refused


def test_the_strict_headers_are_on_every_answer(client: Client) -> None:
    for path in ("/", "/page/app.js", "/api/pipelines", "/nothing"):
        headers = client.get(path)[2]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["server"] is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8430", "127.0.0.1.evil.example", "", "192.168.1.5"])
def test_a_name_that_is_not_this_machine_is_refused(client: Client, host: str) -> None:
    """DNS rebinding: a page of evil.example makes its name point here."""
    assert client.get("/api/pipelines", Host=host)[0] == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
    ],
)
def test_a_page_of_another_site_can_neither_read_nor_act(client: Client, headers: dict[str, str]) -> None:
    status, body, answered = client.get("/api/pipelines", **headers)
    assert status == 403
    assert b"pipeline-0" not in body
    assert answered["access-control-allow-origin"] is None
    assert client.post("/login", b"x", **headers)[0] == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_a_page_of_another_site_gets_no_push(client: Client, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://{client.host}/ws", origin=Origin(origin)):
        pass
    assert refused.value.response.status_code == 403


def test_a_token_is_needed_where_there_is_one(guarded: Client) -> None:
    for path in ("/api/pipelines", "/metrics", "/openapi.json", "/grafana.json"):
        assert guarded.get(path)[0] == 401
        assert guarded.get(path, Authorization="Bearer wrong")[0] == 401
        assert guarded.get(path, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert guarded.get("/")[0] == 200  # it shows no number, and asks for the token
    with pytest.raises(InvalidStatus), connect(f"ws://{guarded.host}/ws"):
        pass


def test_the_token_is_given_once_for_a_cookie_that_does_not_tell_it(guarded: Client) -> None:
    assert guarded.post("/login", b"wrong")[0] == 401
    status, body, headers = guarded.post("/login", TOKEN.encode())
    assert status == 200
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert TOKEN.encode() not in body
    pair = cookie.partition(";")[0]
    assert guarded.get("/api/pipelines", Cookie=pair)[0] == 200
    assert guarded.get("/api/pipelines", Cookie="headrace-session=forged")[0] == 401
    assert guarded.post("/login", b"x" * 10_000)[0] == 413
    with connect(f"ws://{guarded.host}/ws", additional_headers={"Cookie": pair}) as socket:
        assert "summary" in json.loads(socket.recv(20))


def test_anything_but_loopback_needs_a_token() -> None:
    with pytest.raises(DashboardError, match="without a token"):
        Address(host="0.0.0.0").check()
    with pytest.raises(DashboardError, match="too short"):
        Address(host="0.0.0.0", token="secret").check()
    Address(host="0.0.0.0", token=TOKEN).check()


def test_a_port_that_is_taken_is_an_error_with_a_fix(client: Client) -> None:
    source = Synthetic(1, 1)
    with pytest.raises(PortTakenError) as refused:
        Dashboard(Watch(source), Address(port=int(client.host.rpartition(":")[2])))
    assert "--port 0" in refused.value.render()


def test_the_page_loads_nothing_from_anywhere_else() -> None:
    for file in [*PAGE.glob("*.html"), *PAGE.glob("*.js"), *PAGE.glob("*.css")]:
        found = re.findall(r"https?://[^\s\"'`)]+", file.read_text(encoding="utf-8"))
        assert [url for url in found if not url.startswith("http://www.w3.org/")] == [], file.name
    assert "MIT" in (PAGE / "vendor" / "LICENSE.uplot").read_text(encoding="utf-8")


# However many there are


def size_of(root: object) -> int:
    """The bytes of everything that hangs on an object."""
    seen: set[int] = set()
    waiting: list[object] = [root]
    total = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, type | ModuleType | FunctionType | BuiltinFunctionType):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        waiting += gc.get_referents(found)
    return total


def test_memory_is_bounded_however_long_it_watches() -> None:
    feed = Synthetic(4, 100)
    watch = Watch(feed, wall=feed.wall)
    for _ in range(310):
        watch.look()
    # Every ring has been filled once, and every partition has been thinned out.
    before = size_of(watch)
    for _ in range(200):
        watch.look()
    assert size_of(watch) < 1.1 * before  # a partition has 180 to 240 of its looks
    assert before < 400 * 12_000 + 4 * 600_000  # for each partition, and for each pipeline


def test_fifty_pipelines_and_five_thousand_partitions() -> None:
    feed = Synthetic(50, 100)
    watch = Watch(feed, wall=feed.wall)
    for _ in range(5):
        watch.look()
    assert len(watch.summary()["pipelines"]) == 50
    detail = watch.detail("pipeline-49")
    assert detail is not None
    assert detail["partition_count"] == 100
    assert len(json.dumps(watch.summary())) < 200_000
