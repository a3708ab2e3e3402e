"""The folder that a run continues from: whose it is, who uses it, and whether its state can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.checkpoint import Checkpoint, default_checkpoint
from headrace.engine.plan import QueryPlan, plan_queries
from headrace.errors import AlreadyRunningError, CheckpointMismatchError

SCHEMA = "id STRING, k STRING, at TIMESTAMP, x BIGINT, y DOUBLE, z STRING"
Build = Callable[[hr.Stream], hr.Stream]

# Made while no SparkContext exists, whatever other tests start later.
MAX_USER = F.max("user")


def default(stream: hr.Stream) -> hr.Stream:
    return stream.dedupe("id", within="1h").rolling("activity", n=hr.last("1m").count(), total=hr.last("1h").sum("x"))


def queries(build: Build = default, name: str = "job", schema: str = SCHEMA, key: str = "k") -> tuple[QueryPlan, ...]:
    pipeline = hr.Pipeline(name)
    build(pipeline.read("in", schema=schema).event_time("at").key_by(key)).write("out")
    return plan_queries(pipeline)


def open_(folder: Path, *plan: QueryPlan, name: str = "job", partitions: int = 2) -> Checkpoint:
    return Checkpoint(folder, name, plan or queries(), partitions)


def reopen(folder: Path, build: Build = default, *, schema: str = SCHEMA, key: str = "k") -> str:
    """Opens a checkpoint that the default pipeline has written; gives its id."""
    checkpoint = open_(folder, *queries(build, schema=schema, key=key))
    checkpoint.close()
    return checkpoint.id


def begin(folder: Path, log: str = "offsets") -> None:
    """As Spark notes its first batch."""
    note = folder / "queries" / "job-activity" / log / "0"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """By a start that went no further."""
    open_(tmp_path).close()
    return tmp_path


@pytest.fixture
def written(made: Path) -> Path:
    begin(made)
    return made


def test_it_keeps_its_identity_from_run_to_run(written: Path) -> None:
    assert reopen(written) == reopen(written)


def test_another_folder_is_another_writer(tmp_path: Path) -> None:
    first, second = open_(tmp_path / "a"), open_(tmp_path / "b")
    (query,) = queries()
    assert first.writer(query) != second.writer(query)
    assert first.location(query) == str(tmp_path / "a" / "queries" / "job-activity")
    first.close()
    second.close()


def test_the_number_of_state_partitions_is_that_of_the_first_run(tmp_path: Path) -> None:
    open_(tmp_path, partitions=3).close()
    begin(tmp_path)
    later = open_(tmp_path, partitions=8)
    assert later.state_partitions == 3
    later.close()


def test_the_checkpoint_of_another_pipeline_is_refused(written: Path) -> None:
    with pytest.raises(CheckpointMismatchError, match="belongs to pipeline `job`, not to `other`") as caught:
        open_(written, *queries(name="other"), name="other")
    assert "--checkpoint DIR" in str(caught.value.fix)
    assert str(written) in str(caught.value.why)
    reopen(written)


def rolled(s: hr.Stream, window: str = "1m", column: str = "x") -> hr.Stream:
    return s.rolling("activity", n=hr.last(window).count(), total=hr.last("1h").sum(column))


@pytest.mark.parametrize(
    ("build", "difference"),
    [
        (
            lambda s: rolled(s.dedupe("id", within="2h")),
            "steps.dedupe-id.within_ms: 3600000 in the checkpoint, 7200000 now",
        ),
        (
            lambda s: rolled(s.dedupe("id", within="1h"), window="2m"),
            "steps.activity.aggregates.n.window_ms: 60000 in the checkpoint, 120000 now",
        ),
        (
            lambda s: rolled(s.dedupe("id", within="1h"), column="y"),
            'steps.activity.aggregates.total.column: "x" in the checkpoint, "y" now',
        ),
        (rolled, "steps.dedupe-id"),
    ],
    ids=["dedupe", "window", "column", "a step less"],
)
def test_another_shape_of_state_is_refused_with_the_difference(written: Path, build: Build, difference: str) -> None:
    with pytest.raises(CheckpointMismatchError, match="another shape of pipeline `job`") as caught:
        reopen(written, build)
    assert difference in str(caught.value.why)
    assert "--checkpoint DIR" in str(caught.value.fix)
    reopen(written)


def test_a_start_that_wrote_nothing_binds_nobody(made: Path) -> None:
    """Java was too old, say, or Spark did not know a function: the pipeline is mended, and starts."""
    id = reopen(made, lambda s: rolled(s, window="2m"), key="z")
    other = open_(made, *queries(name="other"), name="other", partitions=8)
    assert (other.id, other.state_partitions) == (id, 8)
    other.close()


def test_another_type_of_a_column_in_the_state_is_refused(written: Path) -> None:
    with pytest.raises(CheckpointMismatchError) as caught:
        reopen(written, schema=SCHEMA.replace("x BIGINT", "x INT"))
    assert 'columns.x: "bigint" in the checkpoint, "int" now' in str(caught.value.why)


def in_sql(stream: hr.Stream) -> hr.Stream:
    return stream.window("activity", hr.tumbling("1m"), total="sum(x + length(z))")


@pytest.fixture
def written_in_sql(tmp_path: Path) -> Path:
    """By a pipeline whose aggregate is SQL text."""
    open_(tmp_path, *queries(in_sql)).close()
    begin(tmp_path)
    return tmp_path


def test_another_type_of_a_column_that_sql_text_aggregates_is_refused(written_in_sql: Path) -> None:
    reopen(written_in_sql, in_sql)
    with pytest.raises(CheckpointMismatchError) as caught:
        reopen(written_in_sql, in_sql, schema=SCHEMA.replace("x BIGINT", "x INT"))
    assert 'columns.x: "bigint" in the checkpoint, "int" now' in str(caught.value.why)


def test_a_checkpoint_of_before_such_columns_were_noted_is_taken_and_notes_them(written_in_sql: Path) -> None:
    note = written_in_sql / "headrace.json"
    identity = json.loads(note.read_text())
    ((_, shape),) = identity["queries"].items()
    assert shape["columns"].keys() >= {"x", "z"}
    del shape["columns"]["x"], shape["columns"]["z"]
    note.write_text(json.dumps(identity))
    reopen(written_in_sql, in_sql)
    with pytest.raises(CheckpointMismatchError):
        reopen(written_in_sql, in_sql, schema=SCHEMA.replace("x BIGINT", "x INT"))


@pytest.mark.parametrize("note", ["queries", "types"])
def test_a_column_that_another_version_found_in_the_same_text_does_not_count(written_in_sql: Path, note: str) -> None:
    """What is found in SQL text depends on the version of its parser."""
    (query,) = queries(in_sql)
    types = {"k": "string", "x": "bigint", "z": "string"}
    checkpoint = open_(written_in_sql, query)
    checkpoint.check_types(query, types)
    checkpoint.close()
    file = written_in_sql / "headrace.json"
    identity = json.loads(file.read_text())
    (shape,) = identity[note].values()
    shape.get("columns", shape)["y"] = "double"
    file.write_text(json.dumps(identity))
    again = open_(written_in_sql, query)
    again.check_types(query, types)
    with pytest.raises(CheckpointMismatchError) as caught:
        again.check_types(query, {**types, "x": "int"})
    again.close()
    assert 'columns.x: "bigint" in the checkpoint, "int" now' in str(caught.value.why)


@pytest.mark.parametrize("text", ["sum(x + length(id))", "sum(x)"])
def test_another_column_in_the_text_is_another_shape(written_in_sql: Path, text: str) -> None:
    with pytest.raises(CheckpointMismatchError) as caught:
        reopen(written_in_sql, lambda s: s.window("activity", hr.tumbling("1m"), total=text))
    assert "steps.activity.aggregates.total" in str(caught.value.why)


WITH_USER = SCHEMA + ", user STRING"


@pytest.mark.parametrize("value", [MAX_USER, "max(user)"], ids=["Column", "SQL"])
@pytest.mark.parametrize("applied", [True, False])
def test_a_column_that_is_called_as_a_function_is_one_of_the_state(tmp_path: Path, value: Any, applied: bool) -> None:
    def build(stream: hr.Stream) -> hr.Stream:
        # What an `.apply` gives is not known before it runs.
        rows = stream.apply(lambda rows: rows) if applied else stream
        return rows.window("activity", hr.tumbling("1m"), u=value)

    open_(tmp_path, *queries(build, schema=WITH_USER)).close()
    begin(tmp_path)
    reopen(tmp_path, build, schema=WITH_USER)
    with pytest.raises(CheckpointMismatchError) as caught:
        reopen(tmp_path, build, schema=WITH_USER.replace("user STRING", "user INT"))
    assert 'columns.user: "string" in the checkpoint, "int" now' in str(caught.value.why)


def test_the_same_text_is_another_shape_where_it_no_longer_means_a_column(tmp_path: Path) -> None:
    def build(stream: hr.Stream) -> hr.Stream:
        return stream.window("activity", hr.tumbling("1m"), u="max(user)")

    open_(tmp_path, *queries(build, schema=WITH_USER)).close()
    begin(tmp_path)
    with pytest.raises(CheckpointMismatchError) as caught:
        reopen(tmp_path, build)
    assert 'columns.user: "string" in the checkpoint, null now' in str(caught.value.why)


def test_another_key_is_refused(written: Path) -> None:
    with pytest.raises(CheckpointMismatchError) as caught:
        reopen(written, key="z")
    assert "key" in str(caught.value.why)


def test_the_order_in_which_a_step_names_its_aggregates_does_not_matter(written: Path) -> None:
    """Its state is laid out by the columns that it keeps."""
    total, n = hr.last("1h").sum("x"), hr.last("1m").count()
    reopen(written, lambda s: s.dedupe("id", within="1h").rolling("activity", total=total, n=n))


def test_steps_without_state_may_change_freely(written: Path) -> None:
    reopen(written, lambda s: default(s.where("y > 0").with_column("more", "y * 2")).select("k", "n").where("n > 5"))
    reopen(written, schema=SCHEMA.replace("z STRING", "z BIGINT") + ", new STRING")


def test_two_runs_on_one_checkpoint_are_refused(tmp_path: Path) -> None:
    running = open_(tmp_path)
    with pytest.raises(AlreadyRunningError, match="is running already") as caught:
        open_(tmp_path)
    assert str(running.folder) in str(caught.value.why)
    running.close()
    reopen(tmp_path)


def test_a_process_that_dies_lets_go(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys, time; sys.path[:0] = {sys.path!r}\n"
            f"from pathlib import Path; from tests.unit.test_checkpoint import open_\n"
            f"checkpoint = open_(Path({str(tmp_path)!r})); print('open', flush=True); time.sleep(600)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(AlreadyRunningError, match=f"process {holder.pid}"):
        open_(tmp_path)
    holder.kill()
    holder.communicate()
    reopen(tmp_path)


def test_what_it_notes_is_readable_and_a_crash_midway_leaves_the_old_note(written: Path) -> None:
    note = json.loads((written / "headrace.json").read_text())
    assert note["pipeline"] == "job"
    assert note["queries"]["job-activity"]["key"] == ["k"]
    (written / "headrace.json.new").write_text("{ half a no")
    reopen(written)


def test_a_pipeline_has_a_checkpoint_of_its_own_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    assert default_checkpoint("job") == tmp_path / "checkpoints" / "job"


def test_what_a_crash_in_the_first_commit_left_is_cleared(made: Path) -> None:
    query = made / "queries" / "job-activity"
    for file in ("commits/.0.1b42be6b.tmp", "state/0/0/1_7c5f.zip", "offsets/.0.77.tmp", "metadata"):
        (query / file).parent.mkdir(parents=True, exist_ok=True)
        (query / file).touch()
    reopen(made)
    assert [p.name for p in sorted(query.rglob("*")) if p.is_file()] == ["metadata"]


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_nothing_of_a_batch_that_was_begun_is_cleared(made: Path, log: str) -> None:
    query = made / "queries" / "job-activity"
    begin(made, log)
    files = [query / log / "0", query / "commits" / ".0.tmp", query / "state" / "0" / "1.zip"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    reopen(made)
    assert [file for file in files if not file.exists()] == []
