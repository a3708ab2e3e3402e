"""What a checkpoint says to a run that is not the one of before: other queries, another cluster, another version."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine.checkpoint import Checkpoint
from headrace.engine.control import control_topic
from headrace.engine.plan import plan_queries
from headrace.errors import CheckpointMismatchError

SCHEMA = "k STRING, x BIGINT, at TIMESTAMP"
Build = Callable[[hr.Stream], None]


def copy(rows: hr.Stream) -> None:
    rows.write("out")


def applied(*topics: str) -> Build:
    """A function for each topic, in this order."""

    def build(rows: hr.Stream) -> None:
        for topic in topics:
            rows.apply(lambda df: df, schema=SCHEMA).write(topic)

    return build


def operator(rows: hr.Stream, **time: Any) -> None:
    rows.event_time("at", **time).key_by("k").rolling("activity", n=hr.last("1m").count()).write("counted")


@dataclass(frozen=True)
class Job:
    """A pipeline on one checkpoint."""

    folder: Path

    def open(self, *builds: Build, cluster: str | None = "one", name: str = "job", topic: str = "in") -> Checkpoint:
        pipeline = hr.Pipeline(name)
        rows = pipeline.read(topic, schema=SCHEMA)
        for build in builds:
            build(rows)
        checkpoint = Checkpoint(self.folder, name, plan_queries(pipeline), 2, cluster)
        checkpoint.close()
        return checkpoint

    def run(self, *builds: Build, **more: Any) -> Checkpoint:
        """Opens it, and does a batch of each query, as Spark notes it."""
        checkpoint = self.open(*builds, **more)
        for query in self.note["outputs"]:
            self.batch(query, 0, {"in": {"0": 5}})
        return checkpoint

    def refused(self, *builds: Build, **more: Any) -> CheckpointMismatchError:
        before = (self.folder / "headrace.json").read_text()
        with pytest.raises(CheckpointMismatchError) as caught:
            self.open(*builds, **more)
        assert (self.folder / "headrace.json").read_text() == before
        assert caught.value.pipeline == "job"
        assert "--checkpoint DIR" in str(caught.value.fix)
        return caught.value

    def batch(self, query: str, number: int, offsets: Any, logs: tuple[str, ...] = ("offsets", "commits")) -> None:
        for log in logs:
            file = self.folder / "queries" / query / log / str(number)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(["v1", "{}", *([json.dumps(offsets)] if log == "offsets" else [])]))

    @property
    def note(self) -> dict[str, Any]:
        note: dict[str, Any] = json.loads((self.folder / "headrace.json").read_text())
        return note

    def change_note(self, **fields: Any) -> None:
        (self.folder / "headrace.json").write_text(json.dumps(self.note | fields))

    def as_an_earlier_version(self, **renamed: str) -> None:
        """Without what earlier versions did not note, and with the names that they gave."""
        note = self.note
        del note["outputs"], note["cluster"]
        note["queries"] = {renamed.get(name, name): shape for name, shape in note["queries"].items()}
        (self.folder / "headrace.json").write_text(json.dumps(note))
        for name, old in renamed.items():
            (self.folder / "queries" / name).rename(self.folder / "queries" / old)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


# Queries without state


def test_what_a_query_without_state_has_written_is_not_written_again_by_one_of_another_name(job: Job) -> None:
    job.run(copy)
    error = job.refused(applied("out"))
    assert error.what == "query `job` of the checkpoint is gone, and a new query `job-intake-in` reads its topic, `in`."
    assert "under other ids" in str(error.why)
    assert f"delete {job.folder / 'queries' / 'job'}" in str(error.fix)
    job.open(copy)


def test_a_query_that_an_earlier_version_named_by_its_line_is_not_begun_anew(job: Job) -> None:
    job.run(applied("out"))
    job.as_an_earlier_version(**{"job-apply-in": "job-in-apply-7"})
    error = job.refused(applied("out"))
    assert "query `job-in-apply-7` of the checkpoint is gone, and a new query `job-apply-in`" in error.what
    assert "earlier versions also by their line in the file" in str(error.why)


def test_a_query_that_is_given_up_leaves_when_its_folder_is_deleted(job: Job) -> None:
    job.run(copy, operator)
    job.refused(operator, applied("out"))
    for file in sorted((job.folder / "queries" / "job").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    job.open(operator, applied("out"))


def test_an_output_without_state_may_go_and_come_back(job: Job) -> None:
    job.run(copy, operator)
    job.run(operator)
    job.run(copy, operator)


def test_what_was_removed_long_ago_keeps_nobody_out(job: Job) -> None:
    job.run(copy, operator)
    job.run(operator)
    job.run(operator, applied("other"))


def test_a_new_query_beside_those_of_before_is_welcome(job: Job) -> None:
    job.run(copy)
    job.run(copy, applied("more"), operator)
    job.run(copy, applied("more", "even-more"), operator)


def test_outputs_of_a_query_without_state_come_and_go(job: Job) -> None:
    job.run(copy)
    job.run(copy, lambda rows: rows.where("x > 5").write("large"))
    job.run(lambda rows: rows.where("x > 5").write("larger"))


def test_a_function_that_is_declared_before_another_does_not_push_it_to_the_beginning(job: Job) -> None:
    """Functions are counted: the one of before would have a new name, and write all of its topic again."""
    job.run(applied("out"))
    error = job.refused(applied("new", "out"))
    assert error.what == (
        "topic `out`, which query `job-apply-in` has written so far, would be written by a new query, `job-apply-in-2`."
    )
    assert "in the order of before" in str(error.fix)
    job.open(applied("out", "new"))


def test_a_query_that_never_began_is_nothing_to_be_followed(job: Job) -> None:
    job.run(operator)
    job.open(operator, copy)
    job.open(operator, applied("out"))


# The cluster


def test_a_checkpoint_belongs_to_its_cluster(job: Job) -> None:
    job.run(copy, cluster="development")
    error = job.refused(copy, cluster="production")
    assert error.what == ("the checkpoint belongs to the Kafka cluster `development`, and this run is on `production`.")
    assert "its log\nhas begun anew" in str(error.why)
    assert "--bootstrap" in str(error.fix)
    job.open(copy, cluster="development")


def test_one_that_no_cluster_is_noted_in_takes_the_first(job: Job) -> None:
    job.run(copy)
    job.as_an_earlier_version()
    job.open(copy, cluster="two")
    assert job.note["cluster"] == "two"
    job.refused(copy, cluster="three")


def test_a_cluster_that_does_not_say_its_id_is_not_compared(job: Job) -> None:
    job.run(copy, cluster="one")
    job.open(copy, cluster=None)
    assert job.note["cluster"] == "one"


def test_a_start_that_wrote_nothing_binds_to_no_cluster(job: Job) -> None:
    job.open(copy, cluster="one")
    job.open(copy, cluster="two")
    assert job.note["cluster"] == "two"


def test_the_position_of_a_sink_belongs_to_its_cluster_too(job: Job) -> None:
    def fed(rows: hr.Stream) -> None:
        rows.write(hr.sinks.console())

    job.open(fed, cluster="one")
    note = job.folder / "sinks" / "job-to-console" / "in" / "spark" / "offsets" / "0"
    note.parent.mkdir(parents=True)
    note.touch()
    assert "cluster `one`" in job.refused(fed, cluster="two").what


# Control records


def with_control(job: Job, number: int = 0) -> None:
    """As after a batch of a query that reads control records."""
    (query,) = (query for query in job.note["queries"] if "activity" in query)
    topic = f"headrace.{query}.{job.note['id']}.control"
    job.batch(query, number, {"in": {"0": 5}, topic: {"0": 3, "1": 3}})


@pytest.mark.parametrize(
    "time",
    [{"watermark": hr.adaptive()}, {"watermark": hr.per_partition()}, {"close_idle": "1m"}],
    ids=["adaptive", "per_partition", "close_idle"],
)
def test_a_query_can_not_leave_its_control_topic(job: Job, time: dict[str, Any]) -> None:
    job.run(lambda rows: operator(rows, **time))
    with_control(job)
    error = job.refused(operator)
    assert error.what == "query `job-activity` has read control records, and now has no use for them."
    assert "hr.adaptive(...)" in str(error.why)
    assert control_topic(plan_of(operator), job.note["id"]) in str(error.why)
    job.open(lambda rows: operator(rows, close_idle="2m"))


def plan_of(build: Build) -> Any:
    pipeline = hr.Pipeline("job")
    build(pipeline.read("in", schema=SCHEMA))
    return plan_queries(pipeline)[0]


def test_a_query_may_come_to_have_one(job: Job) -> None:
    job.run(operator)
    job.open(lambda rows: operator(rows, close_idle="1m"))
    job.open(operator)  # it has read nothing there yet
    with_control(job, 1)
    job.refused(operator)


# What is noted


def test_the_position_is_that_of_the_newest_batch_that_both_logs_have(job: Job) -> None:
    """Real time notes the commit before the offsets: a crash between the two leaves a commit alone."""
    checkpoint = job.run(operator)
    job.batch("job-activity", 9, {"in": {"0": 90}})
    job.batch("job-activity", 10, {"in": {"0": 100}}, logs=("commits",))
    assert checkpoint.read_offsets(plan_of(operator)) == {"in": {"0": 90}}


def test_there_is_no_position_before_the_first_batch(job: Job) -> None:
    checkpoint = job.open(operator)
    assert checkpoint.read_offsets(plan_of(operator)) == {}
    job.batch("job-activity", 0, {}, logs=("commits",))
    assert checkpoint.read_offsets(plan_of(operator)) == {}


def test_the_note_of_a_newer_version_is_refused(job: Job) -> None:
    job.run(copy)
    job.change_note(lineage="x", epoch=3)
    error = job.refused(copy)
    assert error.what == "the checkpoint was written by a newer Headrace than this one."
    assert "epoch, lineage" in str(error.why)


@pytest.mark.parametrize(
    "text",
    ["", "{ half a no", "[]", "null", '{"pipeline": "job"}', '{"pipeline": "job", "id": "1", "state_partitions": 2}'],
)
def test_a_note_that_can_not_be_read_is_refused(job: Job, text: str) -> None:
    job.run(copy)
    (job.folder / "headrace.json").write_text(text)
    error = job.refused(copy)
    assert error.what == "it can't be told whose checkpoint this is: its note is damaged."
    assert str(job.folder / "headrace.json") in str(error.why)
    assert "restore headrace.json" in str(error.fix)


@pytest.mark.parametrize("queries", [[], {"job": None}, {"job": {"topic": "in"}}], ids=str)
def test_a_note_with_holes_is_refused(job: Job, queries: Any) -> None:
    job.run(copy)
    job.change_note(queries=queries)
    assert "damaged" in job.refused(copy).what


@pytest.mark.parametrize(("layout", "version"), [(1, "an earlier version"), (99, "a newer version")])
def test_state_that_lies_in_another_order_is_refused(tmp_path: Path, layout: int, version: str) -> None:
    job = Job(tmp_path)
    job.run(operator)
    note = job.note | {"layout": layout}
    if layout == 1:
        del note["layout"]  # it was not noted then
    (tmp_path / "headrace.json").write_text(json.dumps(note))
    with pytest.raises(CheckpointMismatchError, match=version):
        job.open(operator)


def test_where_there_is_no_state_its_layout_is_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.run(copy)
    note = job.note
    del note["layout"]
    (tmp_path / "headrace.json").write_text(json.dumps(note))
    job.open(copy)
