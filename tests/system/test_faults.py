"""Everything is killed with SIGKILL while the ledger runs; at the end its books are right."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from headrace.engine.run import Run
from headrace.engine.settings import Mode, RunSettings
from headrace.log.broker import EmbeddedBroker, free_port
from headrace.log.topics import Topics
from tests.system.faults.gate import BEFORE_GATE, gated, rows_with_gate
from tests.system.faults.harness import Chaos
from tests.system.faults.victims import Broker, Driver
from tests.system.faults.worker import Job
from tests.system.postgres_server import PostgresServer
from tests.system.records import DEADLINE, produce, read_all
from tests.system.running import Engine, Told, wait_for

IMPATIENT = (
    ("max.block.ms", "2000"),
    ("delivery.timeout.ms", "2000"),
    ("request.timeout.ms", "1000"),
    ("linger.ms", "0"),
)
ALL_IDS = [*range(20), *range(100, 100 + BEFORE_GATE), 999]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of this file's own, which may be killed, and comes back at the same address."""
    with EmbeddedBroker(tmp_path_factory.mktemp("mortal"), port=free_port()) as broker:
        yield broker


class Scene:
    """Topics with rows in them, a gate that is closed, and the job that will stop there."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, *, claims: bool = False) -> None:
        self.claims = claims
        self.bootstrap = broker.bootstrap
        self.name = f"gate-{uuid.uuid4().hex[:6]}"
        self.source, self.sink = f"{self.name}-in", f"{self.name}-out"
        self.folder = folder
        self.gate = folder / "gate"
        self.gate.touch()
        Topics(self.bootstrap, timeout=30).ensure(self.source, self.sink, partitions=2)
        produce(self.bootstrap, self.source, rows_with_gate())

    def written(self) -> Counter[int]:
        """How often each id is there, for a reader of what is committed."""
        return Counter(record.row["id"] for record in read_all(self.bootstrap, self.sink))

    def undecided(self) -> bool:
        """Whether a transaction is open that has written something."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = {TopicPartition(self.sink, p): OffsetSpec.latest() for p in (0, 1)}  # type: ignore[no-untyped-call]

        def ends(level: IsolationLevel) -> list[int]:
            return [f.result(10).offset for f in admin.list_offsets(asked, isolation_level=level).values()]

        return ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED)

    def job(self, *, sparks_own: bool = False) -> Job:
        folder = str(self.folder / "checkpoint")
        return Job("gate", self.name, self.bootstrap, self.source, self.sink, folder, sparks_own, gate=str(self.gate))

    def run(self, engine: Engine, told: Told | None = None, **producer: str) -> Run:
        settings = tuple((name.replace("_", "."), value) for name, value in producer.items())
        return Run(
            gated(self.name, self.source, self.sink, str(self.gate), claims=self.claims),
            bootstrap=self.bootstrap,
            mode=Mode.REPLAY,
            checkpoint=self.folder / "checkpoint",
            settings=RunSettings(producer=settings),
            on_progress=None if told is None else told.records.append,
            spark=engine.spark,
        )


@pytest.mark.parametrize("sparks_own", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["ours", "spark's own"])
def test_a_driver_killed_between_the_commit_of_a_task_and_that_of_its_batch(
    mortal: EmbeddedBroker, tmp_path: Path, sparks_own: bool
) -> None:
    scene = Scene(mortal, tmp_path)
    driver = Driver(scene.job(sparks_own=sparks_own), tmp_path / "driver")
    try:
        wait_for(lambda: set(scene.written()) >= set(range(20)), "one task to have committed", 180)
        driver.kill()
        assert 999 not in scene.written(), "the batch was not done"
        scene.gate.unlink()
        driver.restore()
        wait_for(lambda: set(scene.written()) == set(ALL_IDS), "the rest", 180)
        wait_for(driver.ready, "the batch to be done", 60)
    finally:
        scene.gate.unlink(missing_ok=True)
        driver.end()
    doubled = {id for id, times in scene.written().items() if times > 1}
    if sparks_own:
        assert doubled >= set(range(20)), "Spark's own sink repeats what was written: the harness can see it"
    else:
        assert doubled == set()


def survived(scene: Scene) -> bool:
    try:
        return scene.undecided()
    except KafkaException:
        return False  # a broker that has just come back is not sure of its leaders yet


def test_a_broker_killed_in_the_middle_of_a_transaction(engine: Engine, mortal: EmbeddedBroker, tmp_path: Path) -> None:
    scene = Scene(mortal, tmp_path)
    with scene.run(engine) as run:
        wait_for(scene.undecided, "an open transaction")
        broker = Broker(mortal)
        broker.kill()
        broker.restore()
        wait_for(lambda: survived(scene), "the transaction to have survived with the log")
        scene.gate.unlink()
        run.wait()
    assert scene.written() == Counter(ALL_IDS)


def test_a_transaction_that_times_out_in_the_middle_of_a_task(
    engine: Engine, mortal: EmbeddedBroker, tmp_path: Path
) -> None:
    scene = Scene(mortal, tmp_path)
    with scene.run(engine, transaction_timeout_ms="3000") as run:
        wait_for(scene.undecided, "an open transaction")
        wait_for(lambda: not scene.undecided(), "Kafka to give it up")
        assert 999 not in scene.written()
        scene.gate.unlink()
        run.wait()
    assert scene.written() == Counter(ALL_IDS)


@pytest.mark.soak
@pytest.mark.parametrize("claims", [False, True], ids=["plain", "claims"])
def test_a_broker_that_stays_away_is_waited_for_and_nothing_is_lost(
    engine: Engine, mortal: EmbeddedBroker, tmp_path: Path, claims: bool
) -> None:
    """With claims a query asks the broker before it starts, too."""
    scene = Scene(mortal, tmp_path, claims=claims)
    told = Told()
    with scene.run(engine, told, **{name.replace(".", "_"): value for name, value in IMPATIENT}) as run:
        waiting = threading.Thread(target=run.wait)
        waiting.start()
        # Counting comes after the gate: before it is opened, nothing is written.
        tasks = engine.spark.sparkContext.statusTracker()
        wait_for(lambda: bool(tasks.getActiveStageIds()) if claims else scene.undecided(), "work that is half done")
        broker = Broker(mortal)
        broker.kill()
        scene.gate.unlink()
        told.until(lambda told: any(e.event == "retrying" for e in told.events), "the query to fail and be retried")
        broker.restore()
        waiting.join(DEADLINE)
        assert not waiting.is_alive()
    assert scene.written() == Counter(ALL_IDS)


def test_a_dozen_kills_and_the_books_are_right(mortal: EmbeddedBroker, tmp_path: Path) -> None:
    with (
        closing(PostgresServer()) as database,
        closing(Chaos(mortal, database, tmp_path, seed=7, name=f"ledger-{uuid.uuid4().hex[:6]}")) as chaos,
    ):
        found = chaos.run(plan={"task": 8, "database": 2, "broker": 1, "driver": 1})
    assert sum(chaos.killed.values()) == 12
    assert set(found) == {"kafka", "postgres", "lakehouse"}
    for book in found.values():
        assert book.transfers > 300
        assert book.clean, found
