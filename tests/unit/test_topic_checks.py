"""No record is read twice by one pipeline, and none comes round through the topics that it writes by itself."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.contracts import records as schemas
from headrace.engine import publishing as progress
from headrace.errors import InvalidPipelineError, PipelineError
from headrace.ops import alarming as alarms
from headrace.pipeline.topic_checks import TAKEN
from tests.unit.declared import Declared, count, here

OWN = ["card-fraud.dead-letters", "card-fraud.late", "card-fraud.quarantined"]


def test_a_topic_is_read_once() -> None:
    declared = Declared()
    line = here() + 1
    again = declared.pipeline.read("transactions", schema="card_id STRING").where("card_id <> ''")
    problem = declared.problem(declared.read, again)
    assert problem.what == "topic `transactions` is read 2 times."
    assert problem.location is not None
    assert problem.location.line == line
    assert str(problem.why).count("tests/unit/") == 2
    assert "use the stream more than once" in str(problem.fix)


def test_two_topics_may_be_read_and_a_stream_used_twice() -> None:
    declared = Declared()
    other = declared.pipeline.read("other", schema="card_id STRING")
    declared.passes(declared.read, declared.read.where("amount > 5"), other)


@pytest.mark.parametrize("topic", OWN)
def test_a_pipeline_does_not_read_what_went_astray_in_it(topic: str) -> None:
    declared = Declared()
    problem = declared.problem(declared.pipeline.read(topic, schema="card_id STRING"))
    assert type(problem) is PipelineError
    assert problem.what == f'.read("{topic}") reads a topic that the pipeline itself writes.'
    assert "for ever" in str(problem.why)
    assert problem.fix == "read it in a second pipeline."


@pytest.mark.parametrize("topic", OWN)
def test_results_do_not_go_where_the_pipeline_writes_what_went_astray(topic: str) -> None:
    declared = Declared()
    declared.read.where("amount > 5").write(topic)
    problem = declared.problem()
    assert problem.what.startswith(f'.write("{topic}") mixes other rows with the ')
    assert "`card-fraud`" in str(problem.why)
    assert problem.fix == "write to another topic."


def test_nor_does_another_side() -> None:
    declared = Declared()
    activity = declared.keyed.rolling("activity", n=count())
    activity.late.write("card-fraud.dead-letters")
    assert declared.problem(activity).what == (
        '.write("card-fraud.dead-letters") mixes other rows with the dead letters.'
    )


def test_a_side_may_be_written_where_it_goes_by_default() -> None:
    declared = Declared()
    activity = declared.keyed.rolling("activity", n=count())
    activity.late.select("card_id").write("card-fraud.late")
    activity.dead_letters.write("card-fraud.dead-letters")
    activity.quarantined.write("card-fraud.quarantined")
    declared.passes(activity)


def test_what_goes_astray_in_one_pipeline_is_read_in_another() -> None:
    pipeline = hr.Pipeline("letters")
    pipeline.read("card-fraud.dead-letters", schema="card_id STRING").write("letters-read")
    pipeline.check()


@pytest.mark.parametrize("topic", [*TAKEN, progress.TOPIC, alarms.TOPIC, schemas.TOPIC])
def test_no_results_go_where_other_programs_keep_what_they_know(topic: str) -> None:
    declared = Declared()
    declared.read.write(topic)
    problem = declared.problem()
    assert problem.what.startswith(f'.write("{topic}") writes to a topic of ')
    assert problem.fix == "write to another topic."


def test_but_what_a_run_tells_of_itself_may_be_read() -> None:
    declared = Declared()
    declared.passes(declared.pipeline.read(progress.TOPIC, schema="pipeline STRING"))


def test_all_of_it_is_said_at_once() -> None:
    pipeline = hr.Pipeline("p")
    for _ in range(2):
        pipeline.read("p.dead-letters", schema="k STRING").write("p.dead-letters")
    with pytest.raises(InvalidPipelineError) as caught:
        pipeline.check()
    text = str(caught.value)
    for words in ("is read 2 times", "that the pipeline itself writes", "mixes other rows", "closes a loop"):
        assert words in text
