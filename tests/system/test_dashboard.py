"""The dashboard on a real broker with a real pipeline, in a real browser: its numbers are true, its alarms fire."""

from __future__ import annotations

import json
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser

import headrace as hr
from headrace.engine.publishing import TOPIC as PROGRESS
from headrace.engine.settings import Mode
from headrace.log.broker import EmbeddedBroker
from headrace.log.producer import producer_config
from headrace.log.topics import Topics
from headrace.ops.alarming import TOPIC as ALARM_TOPIC
from headrace.ops.alarming import Alarms, to_topic
from headrace.ops.watch import KafkaSource, Watch
from headrace.ops.web.server import Address, Dashboard
from tests.system.browser import Tab, browser, open_tab
from tests.system.processes import Headrace
from tests.system.records import Sent, produce, read_all
from tests.system.running import Engine, beside, fresh, wait_for
from tests.unit.synthetic_feed import Synthetic

ALARM = "lag_events > 1500 for 1s"
ATTACK = "<img src=x onerror=document.title='attacked'>"


class Clicks:
    """A pipeline with every kind of output, and a generator that knows what it has sent."""

    def __init__(self, bootstrap: str, topic: Callable[..., str]) -> None:
        self.source = topic("clicks", partitions=2)
        self.results, self.late = topic("counts", partitions=1), topic("clicks-late", partitions=1)
        self.name = fresh("clicks")
        self.sent = 0
        self.log: list[tuple[float, int]] = []
        self._producer = Producer(producer_config(bootstrap, **{"linger.ms": 0}))
        self.pipeline = hr.Pipeline(self.name)
        clicks = self.pipeline.read(self.source, schema="user STRING NOT NULL, at TIMESTAMP NOT NULL")
        counts = clicks.event_time("at", out_of_order="1s").key_by("user").rolling("counts", n=hr.last("1m").count())
        counts.write(self.results)
        counts.late.write(self.late)
        self.pipeline.alarm(ALARM)

    def send(self, count: int = 1, *, user: str | None = None, age: float = 0.0, raw: bytes | None = None) -> None:
        for _ in range(count):
            at = (datetime.now(UTC) - timedelta(seconds=age)).isoformat(timespec="milliseconds")
            name = user or f"user-{self.sent % 40}"
            value = raw if raw is not None else json.dumps({"user": name, "at": at}).encode()
            self._producer.produce(self.source, value, name.encode())
            self.sent += 1
        self._producer.flush()

    def rate(self, at: float, seconds: float = 5.0) -> float:
        """What it sent per second, in the seconds before a time."""
        sent = [max((n for t, n in self.log if t <= moment), default=0) for moment in (at - seconds, at)]
        return (sent[1] - sent[0]) / seconds

    @contextmanager
    def traffic(self, per_second: int) -> Iterator[None]:
        """Paced by the clock until the block ends."""

        def work(stopping: threading.Event) -> None:
            began, sent = time.monotonic(), 0
            while not stopping.wait(0.02):
                due = int((time.monotonic() - began) * per_second)
                self.send(due - sent)
                sent = due
                self.log.append((time.time(), self.sent))

        with beside(work):
            yield


@pytest.fixture(scope="module")
def clicks(broker: EmbeddedBroker, topic: Callable[..., str]) -> Clicks:
    return Clicks(broker.bootstrap, topic)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clicks")


@pytest.fixture(scope="module")
def watch(broker: EmbeddedBroker) -> Watch:
    alarms = Alarms()
    to_topic(alarms, broker.bootstrap)
    return Watch(KafkaSource(broker.bootstrap), alarms)


@pytest.fixture(scope="module")
def url(watch: Watch) -> Iterator[str]:
    with Dashboard(watch, Address(port=0)) as running:
        yield running.url


@pytest.fixture(scope="module")
def launched() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture
def opened(launched: Browser) -> Iterator[Callable[..., Tab]]:
    """Opens pages, and closes them after the test."""
    tabs: list[Tab] = []

    def open_page(url: str, **options: Any) -> Tab:
        tabs.append(open_tab(launched, url, **options))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.page.close()


def value(watch: Watch, pipeline: str, name: str) -> float | None:
    lines = {line["name"]: line for line in watch.summary()["pipelines"]}
    found: float | None = lines[pipeline]["values"][name] if pipeline in lines else None
    return found


def firing(watch: Watch, pipeline: str) -> list[str]:
    return [a["alarm"] for a in watch.alarms.of(pipeline) if a["state"] == "firing"]


def test_the_numbers_agree_with_the_generator(
    engine: Engine, clicks: Clicks, watch: Watch, url: str, checkpoint: Path
) -> None:
    clicks.send(1)
    with engine.live(clicks.pipeline, Mode.MICROBATCH, checkpoint) as told:
        told.until(lambda t: sum(b.input_rows for b in t.batches) >= 1, "the first event")
        wait_for(lambda: {clicks.source, clicks.results} <= set(watch.flows), "the watch to see the topics")
        flow, out = watch.flows[clicks.source], watch.flows[clicks.results]
        counted, written, before = flow.counted, out.counted, clicks.sent
        wait_for(lambda: value(watch, clicks.name, "events_in") == 0, "the first event to be past")
        ratios: list[float] = []

        def another_rate() -> None:
            rate = value(watch, clicks.name, "events_in") or 0.0
            ratios.append(rate / clicks.rate(time.time()))

        with clicks.traffic(150):
            wait_for(lambda: clicks.sent - before >= 900, "a rate that is of this traffic alone")
            for more in range(1000, 1900, 100):
                wait_for(lambda: clicks.sent - before >= more, "more traffic")  # noqa: B023
                another_rate()
        sent = clicks.sent - before
        wait_for(lambda: flow.counted - counted >= sent, "all that was sent to be counted")
        assert flow.counted - counted == sent  # to the last one
        # At single moments a busy machine looks later than it sends.
        assert statistics.median(ratios) == pytest.approx(1.0, rel=0.02)
        # The ends of transactions are no records.
        wait_for(lambda: abs(out.counted - written - sent) <= 0.02 * sent, "all results to be counted")
        assert out.end > sent
        results = read_all(engine.bootstrap, clicks.results)
        exact = sorted(r.timestamp_ms - int(r.headers["headrace-source-timestamp"]) for r in results)
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            assert value(watch, clicks.name, name) == pytest.approx(exact[int(share * len(exact))], rel=0.02)


def test_state_bytes_are_those_of_the_files(engine: Engine, topic: Callable[..., str], tmp_path: Path) -> None:
    source, out = topic("wide-clicks", partitions=1), topic("wide-counts", partitions=1)
    pipeline = hr.Pipeline(fresh("wide"))
    clicks = pipeline.read(source, schema="user STRING NOT NULL, at TIMESTAMP NOT NULL").event_time("at")
    clicks.key_by("user").rolling("counts", n=hr.last("1h").count()).write(out)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    produce(engine.bootstrap, source, [Sent.row({"user": f"user-{n}" * 5, "at": now}) for n in range(20_000)])
    context: Any = engine.spark.sparkContext
    local = Path(context._jvm.org.apache.spark.util.Utils.getLocalDir(context._jsc.sc().conf()))
    before = set(local.rglob("*.sst"))
    with engine.live(pipeline, Mode.MICROBATCH, tmp_path / "checkpoint") as told:
        told.until(lambda t: sum(b.input_rows for b in t.batches) >= 20_000, "all events")
        # A file that is linked into a checkpoint is one file all the same.
        files = {f.stat().st_ino: f.stat().st_size for f in set(local.rglob("*.sst")) - before}
        assert sum(files.values()) > 500_000
        assert told.batches[-1].state_bytes == pytest.approx(sum(files.values()), rel=0.1)


def test_lag_is_what_kafka_says(engine: Engine, clicks: Clicks, watch: Watch, url: str, checkpoint: Path) -> None:
    """The pipeline is stopped: it read so far and no further, and the topic goes on."""
    clicks.send(137)
    spark_says = _committed(checkpoint, clicks.source)
    ends = Topics(engine.bootstrap).end_offsets(clicks.source)
    exact = {number: end - spark_says[str(number)] for number, end in ends.items()}
    assert sum(exact.values()) >= 137
    wait_for(lambda: value(watch, clicks.name, "lag_events") == sum(exact.values()), "the lag to be seen")
    detail = watch.detail(clicks.name)
    assert detail is not None
    assert {p["partition"]: p["lag_events"] for p in detail["partitions"]} == exact
    waited = value(watch, clicks.name, "lag_seconds")
    wait_for(lambda: (value(watch, clicks.name, "lag_seconds") or 0) > (waited or 0) + 1, "the wait to grow")
    with engine.live(clicks.pipeline, Mode.MICROBATCH, checkpoint):
        wait_for(lambda: value(watch, clicks.name, "lag_events") == 0, "the lag to be worked off")
        assert value(watch, clicks.name, "lag_seconds") == 0.0


def _committed(checkpoint: Path, topic: str) -> dict[str, int]:
    (query,) = (checkpoint / "queries").iterdir()
    last = max(int(f.name) for f in (query / "commits").iterdir() if f.name.isdigit())
    offsets: dict[str, dict[str, int]] = json.loads((query / "offsets" / str(last)).read_text().splitlines()[-1])
    return offsets[topic]


def test_an_alarm_fires_on_a_forced_lag_in_the_browser_and_clears(
    opened: Callable[..., Tab], engine: Engine, clicks: Clicks, watch: Watch, url: str, checkpoint: Path
) -> None:
    tab = opened(f"{url}#/{clicks.name}")
    page = tab.page
    lag = page.locator('[data-tile="lag"]')
    page.get_by_role("heading", name=clicks.name).wait_for()
    with engine.live(clicks.pipeline, Mode.MICROBATCH, checkpoint), clicks.traffic(60):
        page.locator(".pill.running").wait_for()
        shown = page.locator('[data-tile="throughput"] .big')
        seen = {shown.inner_text()}

        def moved() -> bool:
            seen.add(shown.inner_text())
            return len(seen) >= 3

        wait_for(moved, "the numbers to move")
        # Late events flow to their topic, and the graph shows it.
        edge = page.locator(f'[data-edge$=">topic:{clicks.late}"]')

        def late_flows() -> bool:
            clicks.send(5, age=3600)
            return float(edge.get_attribute("data-rate") or 0) > 0

        wait_for(late_flows, "late events on the graph")
        assert "firing" not in (lag.get_attribute("class") or "")
        tab.picture("dashboard-1440")
    clicks.send(2500)
    page.locator('[data-tile="lag"].firing').wait_for(timeout=60_000)
    assert "firing" in lag.inner_text()
    assert page.locator("#alarm-count.firing").is_visible()
    assert page.locator("#news").inner_text().startswith(clicks.name)
    assert firing(watch, clicks.name) == [ALARM]
    tab.picture("dashboard-firing")
    with engine.live(clicks.pipeline, Mode.MICROBATCH, checkpoint):
        page.locator('[data-tile="lag"].ok').wait_for(timeout=90_000)
    assert tab.problems == []
    assert {re.sub(r"^(https?://[^/]+).*", r"\1/", r) for r in tab.requests} == {url}
    told = [json.loads(r.value or b"") for r in read_all(engine.bootstrap, ALARM_TOPIC)]
    mine = [t["event"] for t in told if t["pipeline"] == clicks.name and t["metric"] == "lag_events"]
    assert mine[-2:] == ["firing", "cleared"]


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (390, "light"), (1440, "dark"), (768, "light")])
def test_the_layout_holds(opened: Callable[..., Tab], url: str, clicks: Clicks, width: int, scheme: str) -> None:
    tab = opened(f"{url}#/{clicks.name}", width=width, height=844, scheme=scheme)
    tab.page.locator("#graph svg").wait_for()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    cut = """[...document.querySelectorAll('.tile .big, .fact b, h1, h2')].filter(
        (e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline'
    ).map((e) => e.textContent)"""
    assert tab.page.evaluate(cut) == []
    tiles = tab.page.locator(".tile")
    assert tiles.count() == 5
    assert all(tiles.nth(i).is_visible() for i in range(5))
    tab.picture(f"dashboard-{width}-{scheme}")
    assert tab.problems == []


def test_it_is_used_with_the_keyboard_and_told_to_a_screen_reader(
    opened: Callable[..., Tab], url: str, clicks: Clicks
) -> None:
    page = opened(f"{url}#/{clicks.name}").page
    page.locator("#graph svg").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("radio", name="5 min").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("radio", name="1 h", exact=True).is_checked()
    assert page.get_by_role("region", name="Consumer lag").is_visible()
    assert "per second" in (page.get_by_role("img", name=re.compile("^Flow")).get_attribute("aria-label") or "")
    unnamed = """[...document.querySelectorAll('button, select, input, a')].filter((e) => e.offsetParent &&
        !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML)"""
    assert page.evaluate(unnamed) == []


def test_what_is_in_the_log_is_never_run_as_code(
    opened: Callable[..., Tab], engine: Engine, clicks: Clicks, watch: Watch, url: str, checkpoint: Path
) -> None:
    tab = opened(f"{url}#/{clicks.name}")
    tab.page.locator("#graph svg").wait_for()
    tab.page.get_by_role("tab", name=clicks.results).click()
    with engine.live(clicks.pipeline, Mode.MICROBATCH, checkpoint):

        def seen() -> bool:
            clicks.send(3, user=ATTACK)
            return ATTACK[:20] in tab.page.locator("#results").inner_text()

        wait_for(seen, "the attack to be shown as text")
    assert tab.page.title() != "attacked"
    assert tab.page.locator("#results img").count() == 0
    assert tab.problems == []


def test_what_a_run_publishes_is_bounded_and_tells_no_secret(engine: Engine, clicks: Clicks) -> None:
    config = Topics(engine.bootstrap).describe(PROGRESS).config
    assert int(config["retention.bytes"]) <= 64 * 1024 * 1024
    mine = [
        t for r in read_all(engine.bootstrap, PROGRESS) if (t := json.loads(r.value or b""))["pipeline"] == clicks.name
    ]
    assert {"announced", "started", "progress", "stopped", "ended"} <= {t["event"] for t in mine}
    assert engine.bootstrap not in json.dumps(mine)
    # A batch may take a few milliseconds; a second has one record of it all the same.
    per_second = [t["at"][:19] for t in mine if t["event"] == "progress"]
    assert max(per_second.count(second) for second in set(per_second)) <= 3


def test_the_command_serves_and_ends_cleanly(
    opened: Callable[..., Tab], broker: EmbeddedBroker, clicks: Clicks, tmp_path: Path
) -> None:
    command = Headrace(tmp_path, "dashboard", "--bootstrap", broker.bootstrap, "--port", "0", "--output", "json")
    try:
        command.until_told('"url"')
        told: dict[str, Any] = json.loads(command.out.splitlines()[0])
        opened(f"{told['url']}#/{clicks.name}").page.locator("#graph svg").wait_for()
        command.interrupt()
        assert command.process.wait(30) == 0
        assert "Traceback" not in command.err
    finally:
        command.end()


def test_top_prints_the_same_numbers(broker: EmbeddedBroker, clicks: Clicks, watch: Watch, tmp_path: Path) -> None:
    command = Headrace(tmp_path, "top", clicks.name, "--once", "--bootstrap", broker.bootstrap, "--output", "json")
    try:
        assert command.process.wait(60) == 0, command.err
    finally:
        command.end()
    line = json.loads(command.out)
    assert line["name"] == clicks.name
    assert line["values"]["lag_events"] == value(watch, clicks.name, "lag_events")
    assert line["values"]["state_rows"] == value(watch, clicks.name, "state_rows")


def test_fifty_pipelines_with_five_thousand_partitions_are_all_there_and_moving(opened: Callable[..., Tab]) -> None:
    feed = Synthetic(50, 100)
    watch = Watch(feed, Alarms(["lag_events > 10_000"]), wall=feed.wall)
    for _ in range(30):
        watch.look()
    with Dashboard(watch, Address(port=0)) as running:
        tab = opened(f"{running.url}#/pipeline-31")
        page = tab.page
        page.get_by_role("heading", name="pipeline-31").wait_for()
        assert page.locator("nav.pipelines a").count() == 50
        assert page.locator("#partitions tbody tr").count() == 100
        wait_for(lambda: page.locator("#partitions tbody tr").first.inner_text() != "", "its partitions")
        before = page.locator("#topics tbody tr td").nth(4).inner_text()
        page.get_by_role("link", name="pipeline-07").click()
        page.get_by_role("heading", name="pipeline-07").wait_for()
        wait_for(lambda: page.locator("#topics tbody tr td").nth(4).inner_text() != before, "the numbers to move")
        feed.rate, before_rate = 5000, feed.rate
        feed.stalled.add(12)
        page.locator('nav.pipelines a.firing[data-name="pipeline-12"]').wait_for()
        feed.stalled.clear()
        page.locator('nav.pipelines a.ok[data-name="pipeline-12"]').wait_for()
        feed.rate = before_rate
        tab.picture("dashboard-fifty")
        assert tab.problems == []
