"""Sets the demo up, runs it, and takes it down, so that nothing is left behind however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from headrace.demo import warmup
from headrace.demo.accounting import Accounting, Alert, Outcome, Receipt, Sent
from headrace.demo.collector import ALERTS
from headrace.demo.interrupts import Interrupts
from headrace.demo.job import PIPELINE, Job
from headrace.demo.steps import Steps
from headrace.demo.summary import Summary
from headrace.demo.view import Frame, View, screenshot, view_for
from headrace.demo.worker import Report, Worker
from headrace.errors import AlreadyRunningError, HeadraceError, RunError
from headrace.jvm.jars import resolve
from headrace.jvm.java import find_java
from headrace.jvm.once import exclusive
from headrace.kernel.build import kernel_jar
from headrace.log.broker import EmbeddedBroker
from headrace.log.topics import Topics
from headrace.paths import project_root, state_dir

if TYPE_CHECKING:
    from examples.fraud.truth import Truth

SOURCE = "transactions"
SOURCE_PARTITIONS = 2
OUTPUTS = {
    "decisions": Outcome.DECIDED,
    "fraud-alerts": ALERTS,
    "transactions-late": Outcome.LATE,
    "transactions-duplicates": Outcome.DUPLICATE,
    "transactions-quarantined": Outcome.QUARANTINED,
    "transactions-dead-letters": Outcome.DEAD_LETTER,
}
HISTORY_SECONDS = 60.0  # of traffic is there before the job starts
RUNNING = "running"
DASHBOARD_PORT = 8430  # or a free one, if it is taken
_FRAME_SECONDS = 0.25
_READY_SECONDS = 60.0
_DRAIN_SECONDS = 30.0  # without any progress
_WORKER_STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Options:
    """What a user may choose."""

    seconds: float | None = None  # None: until Ctrl-C
    rate: float = 200.0
    seed: int = 1
    screenshot: Path | None = None


def run(options: Options, console: Console) -> Summary:
    """Runs the demo from start to end. KeyboardInterrupt if it is broken off before it runs."""
    project = find_project()
    with run_folder() as folder, Interrupts() as interrupts, ExitStack() as started:
        return _Demo(options, console, project, folder, interrupts, started).run()


class _Demo:
    def __init__(
        self,
        options: Options,
        console: Console,
        project: Path,
        folder: Path,
        interrupts: Interrupts,
        started: ExitStack,
    ) -> None:
        self._options = options
        self._console = console
        self._project = project
        self._folder = folder
        self._interrupts = interrupts
        self._started = started  # stops what was started, the last first
        self._books = Accounting()
        self._truth = _truth(project)
        self._injected: Counter[str] = Counter()
        self._undelivered = 0
        self._collecting = False
        self._warmup_seconds = 0.0
        self._picture: Frame | None = None
        self._dashboard = ""

    def run(self) -> Summary:
        steps = Steps(self._console)
        bootstrap = self._set_up(steps)
        with steps.step("traffic") as progress:
            collector = self._start_worker("collector", {"bootstrap": bootstrap, "outputs": OUTPUTS}, self._collected)
            self._await(lambda: self._collecting, collector)
            sender = self._start_sender(bootstrap)
            self._await(lambda: self._books.figures().produced > 0, sender)
            progress(f"{self._options.rate:g} transactions/s, seed {self._options.seed}")
        with steps.step("job") as progress:
            job = self._start_job(bootstrap)
            job.await_real_time(progress)
            progress(f"{PIPELINE} has caught up and runs in real-time mode")
        with steps.step("page") as progress:
            progress(self._start_dashboard(bootstrap))
        self._interrupts.defer()
        return self._perform(bootstrap, job, collector, sender)

    # Before

    def _set_up(self, steps: Steps) -> str:
        with steps.step("java") as progress:
            java = find_java()
            progress(f"Java {java.version} at {java.executable}")
        with steps.step("jars") as progress:
            jars = [*resolve("kafka-broker", progress), *resolve("spark-kafka", progress)]
            progress(f"{len(jars)} jars")
        with steps.step("kernel") as progress:
            progress(f"compiled as {kernel_jar(progress).stem[:12]}")
        with steps.step("broker") as progress:
            broker = EmbeddedBroker(self._folder / "broker")
            self._started.callback(broker.stop)
            broker.start(progress)
            self._interrupts.by_force(_killer(broker.pid))
            progress(f"Kafka at {broker.bootstrap}")
        with steps.step("topics") as progress:
            topics = Topics(broker.bootstrap, timeout=30)
            topics.create(SOURCE, partitions=SOURCE_PARTITIONS)
            for topic in OUTPUTS:
                topics.create(topic, partitions=1)
            progress(f"{SOURCE} and {len(OUTPUTS)} outputs")
        return broker.bootstrap

    def _start_job(self, bootstrap: str) -> Job:
        job = Job(bootstrap, project=self._project, folder=self._folder)
        self._started.callback(job.stop)
        self._interrupts.by_force(_killer(job.pid))
        return job

    def _start_dashboard(self, bootstrap: str) -> str:
        """Beside the demo, never in its way: without it everything else goes on."""
        address: list[str] = []
        options: dict[str, object] = {"bootstrap": bootstrap, "port": DASHBOARD_PORT}
        worker = self._start_worker("page", options, lambda report: address.append(report["url"]))
        try:
            self._await(lambda: bool(address), worker)
        except RunError as problem:
            worker.kill()
            return f"no dashboard: {problem.what}"
        self._dashboard = address[0]
        return f"dashboard at {self._dashboard}"

    def _start_sender(self, bootstrap: str) -> Worker:
        traffic = {"rate": self._options.rate, "seed": self._options.seed}
        options = {"bootstrap": bootstrap, "topic": SOURCE, "traffic": traffic, "history_seconds": HISTORY_SECONDS}
        return self._start_worker("sender", options, self._sent)

    def _start_worker(self, name: str, options: dict[str, object], on_report: Callable[[Report], None]) -> Worker:
        console = self._folder / f"{name}.log"
        worker = Worker(f"headrace.demo.{name}", options, on_report, folder=self._project, console=console)
        self._started.callback(worker.kill)
        self._interrupts.by_force(worker.kill)
        return worker

    def _await(self, condition: Callable[[], bool], worker: Worker) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not condition():
            worker.check()
            if time.monotonic() > deadline:
                raise RunError(f"a part of the demo did not start within {_READY_SECONDS:.0f} s.", fix="try again")
            time.sleep(0.02)

    # Reports of the workers, on their threads

    def _sent(self, report: Report) -> None:
        from examples.fraud.truth import Episode, EpisodeKind

        self._books.produced(Sent(*sent) for sent in report["sent"])
        self._injected.update(report["kinds"])
        self._undelivered += report["failed"]
        for txn_id, number, kind, card_id, transactions in report["fraud"]:
            self._truth.produced(txn_id, Episode(number, EpisodeKind(kind), card_id, transactions))

    def _collected(self, report: Report) -> None:
        if "ready" in report:
            self._collecting = True
            return
        self._books.received(Receipt(Outcome(outcome), *rest) for outcome, *rest in report["receipts"])
        for alert in self._books.alerted(
            Alert(*fields)._replace(reasons=tuple(fields[-1])) for fields in report["alerts"]
        ):
            self._truth.flagged(alert.txn_id)

    # The run

    def _perform(self, bootstrap: str, job: Job, collector: Worker, sender: Worker) -> Summary:
        failures: list[HeadraceError] = []

        def attempt(action: Callable[[], None]) -> None:
            try:
                action()
            except HeadraceError as failure:
                failures.append(failure)

        with view_for(self._console) as view:
            attempt(lambda: self._warm_up(view, bootstrap, job, [collector, sender]))
            if not failures and not self._interrupts.requested:
                attempt(lambda: self._measure(view, bootstrap, job, [collector, sender]))
            attempt(lambda: sender.stop(_WORKER_STOP_SECONDS))
            if not failures:
                attempt(lambda: self._drain(view, bootstrap, job, collector))
        job.stop()
        attempt(lambda: collector.stop(_WORKER_STOP_SECONDS))
        if self._options.screenshot is not None and self._picture is not None:
            self._options.screenshot.write_text(screenshot(self._picture), encoding="utf-8")
        return Summary(
            figures=self._books.figures(),
            score=self._truth.score(),
            injected=dict(self._injected),
            undelivered=self._undelivered,
            warmup_seconds=self._warmup_seconds,
            # What fails after the first fails because of it.
            failure=failures[0] if failures else None,
        )

    def _warm_up(self, view: View, bootstrap: str, job: Job, workers: list[Worker]) -> None:
        began = time.monotonic()
        while not self._interrupts.requested:
            self._check(job, workers)
            if warmup.is_over(
                self._warmup_seconds,
                waiting=self._books.figures().lost,
                rate=self._options.rate,
                recent_p99_ms=self._books.recent_p99_ms(time.time() * 1000, warmup.WINDOW_SECONDS),
            ):
                return
            self._show(view, "warming up", self._warmup_seconds, None, bootstrap, job)
            time.sleep(_FRAME_SECONDS)
            self._warmup_seconds = time.monotonic() - began

    def _measure(self, view: View, bootstrap: str, job: Job, workers: list[Worker]) -> None:
        self._books.measure_from(int(time.time() * 1000))
        began = time.monotonic()
        seconds = self._options.seconds
        while not self._interrupts.requested:
            self._check(job, workers)
            elapsed = time.monotonic() - began
            if seconds is not None and elapsed >= seconds:
                return
            self._show(view, RUNNING, elapsed, seconds, bootstrap, job)
            time.sleep(_FRAME_SECONDS)

    def _check(self, job: Job, workers: list[Worker]) -> None:
        job.check()
        for worker in workers:
            worker.check()

    def _drain(self, view: View, bootstrap: str, job: Job, collector: Worker) -> None:
        """Waits for what is still on its way, as long as something moves."""
        began = moved = time.monotonic()
        out = -1
        while not (figures := self._books.figures()).settled and time.monotonic() - moved < _DRAIN_SECONDS:
            self._check(job, [collector])
            now_out = sum(figures.outcomes.values()) + figures.alerts
            if now_out != out:
                out, moved = now_out, time.monotonic()
            self._show(view, "draining", time.monotonic() - began, None, bootstrap, job)
            time.sleep(_FRAME_SECONDS)

    def _show(self, view: View, phase: str, elapsed: float, seconds: float | None, bootstrap: str, job: Job) -> None:
        job.watch()
        frame = Frame(
            phase=phase,
            elapsed_seconds=elapsed,
            seconds=seconds,
            bootstrap=bootstrap,
            figures=self._books.figures(),
            history=self._books.history(time.time() * 1000),
            alerts=self._books.recent_alerts(),
            progress=job.progress,
            dashboard=self._dashboard,
        )
        view.show(frame)
        if phase == RUNNING:
            self._picture = frame


def find_project(*roots: Path) -> Path:
    """The checkout that holds the fraud example: around the current folder, else around this package."""
    for root in roots or (project_root(), Path(__file__).resolve().parents[3]):
        if (root / "examples" / "fraud" / "__init__.py").is_file():
            return root
    raise HeadraceError(
        "the fraud example is not here, and the demo runs it.",
        why=f"There is no examples/fraud in {project_root()}: it is part of the source tree, not of the package.",
        fix="run it inside a checkout of Headrace: make demo",
    )


@contextmanager
def run_folder() -> Iterator[Path]:
    """A fresh folder for one run; those of earlier runs go. One demo at a time."""
    home = (state_dir() / "demo").resolve()  # the job runs in another folder

    def refuse() -> None:
        raise AlreadyRunningError(
            "another demo runs in this project.",
            why=f"It keeps its data in {home}.",
            fix="stop it, or give this one a place of its own with HEADRACE_STATE=...",
        )

    with exclusive(home / "demo.lock", refuse):
        for old in home.iterdir():
            if old.is_dir():
                # A process of a demo that was killed may still be writing as it ends; the next run removes the rest.
                shutil.rmtree(old, ignore_errors=True)
        folder = home / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        folder.mkdir()
        yield folder


def _truth(project: Path) -> Truth:
    if str(project) not in sys.path:
        sys.path.insert(0, str(project))
    try:
        from examples.fraud.truth import Truth
    except ImportError as error:
        raise HeadraceError(
            "the fraud example can't be imported.",
            why=f"{error} (looked in {project})",
            fix="run the demo inside a checkout of Headrace, and see that no other package is called `examples`",
        ) from error
    return Truth()


def _killer(pid: int) -> Callable[[], None]:
    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    return kill
