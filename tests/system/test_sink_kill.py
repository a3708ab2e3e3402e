"""A job that writes to stores is killed with SIGKILL in mid-stream: every row is in every store once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.log.broker import EmbeddedBroker
from tests.system.postgres_server import PostgresServer
from tests.system.processes import Headrace, headrace
from tests.system.records import Sent, produce
from tests.system.running import wait_for

Topic = Callable[..., str]
EVENTS = 3_000
KILLS = 1


def payments() -> list[Sent]:
    rows = [{"id": i, "card": f"c{i % 7}", "amount": i % 50, "at": "2024-01-01T10:00:00Z"} for i in range(EVENTS)]
    return [Sent.row(row, key=str(row["card"]), partition=i % 7 % 2) for i, row in enumerate(rows)]


@pytest.mark.soak
def test_a_killed_job_leaves_every_row_in_every_store_once(
    broker: EmbeddedBroker, topic: Topic, tmp_path: Path
) -> None:
    rng, source, database = random.Random(5), topic("killed", partitions=2), PostgresServer()
    produce(broker.bootstrap, source, payments())
    told = {"TEST_SOURCE": source, "TEST_DATABASE": database.url, "TEST_FOLDER": str(tmp_path)}
    words = ("run", "tests.system.jobs.stores:stores", "--bootstrap", broker.bootstrap)
    options = ("--checkpoint", str(tmp_path / "checkpoint"), "--max-rows", "300")

    def stored() -> int:
        if not database.query(f"SELECT to_regclass('\"{source}-all\"')")[0][0]:
            return 0
        return int(database.query(f'SELECT count(*) FROM "{source}-all"')[0][0])

    try:
        for number in range(KILLS):
            before = stored()
            job = Headrace(tmp_path / str(number), *words, "--mode", "microbatch", *options, **told)
            try:
                wait_for(lambda: stored() > before or job.process.poll() is not None, "new rows", 180)  # noqa: B023
                assert job.process.poll() is None, job.err
                time.sleep(rng.uniform(0, 1))  # any moment will do: in a batch, between two, in a commit
                job.kill()
                job.until_gone()
            finally:
                job.end()
        assert stored() < EVENTS, "it was killed in mid-stream"
        done = headrace(tmp_path / "last", *words, "--mode", "replay", *options[:2], **told)
        assert done.process.returncode == 0, done.err

        from deltalake import DeltaTable

        assert [i for (i,) in database.query(f'SELECT id FROM "{source}-all" ORDER BY id')] == list(range(EVENTS))
        lake = Counter(DeltaTable(tmp_path / "all").to_pyarrow_table()["id"].to_pylist())
        assert lake == Counter(range(EVENTS))
        expected = Counter[str]()
        for i in range(EVENTS):
            expected[f"c{i % 7}"] += i % 50
        assert dict(database.query(f'SELECT card, total FROM "{source}-totals"')) == dict(expected)
        assert "s3cret-pass" not in done.out + done.err + (tmp_path / "checkpoint" / "spark.log").read_text()
    finally:
        database.close()
