"""Which step may follow which, and what a pipeline as a whole must have."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import (
    DuplicateStepError,
    InvalidPipelineError,
    MissingEventTimeError,
    MissingKeyError,
    PipelineError,
    UnboundedStateError,
    UnknownColumnError,
    UnsupportedStepError,
)
from headrace.pipeline.draw import draw
from tests.unit.declared import Declared, count, here

SECOND_PIPELINE = "write to a topic and read it back in a second pipeline."


@pytest.fixture
def declared() -> Declared:
    return Declared()


# Event time, key and state


def test_dedupe_and_rolling_need_event_time(declared: Declared) -> None:
    found = declared.problems(declared.read.dedupe("txn_id").key_by("card_id").rolling("r", n=count()))
    assert [type(each) for each in found] == [MissingEventTimeError] * 2
    assert [each.what for each in found] == ["step `dedupe-txn_id` needs event time.", "step `r` needs event time."]
    assert all("Timestamp columns here: occurred_at" in str(each.fix) for each in found)


def test_where_no_column_could_be_event_time_it_says_so(declared: Declared) -> None:
    bare = declared.pipeline.read("bare", schema="a INT")
    assert str(declared.problem(bare.dedupe("a")).fix).endswith("Timestamp columns here: none")


def test_after_an_apply_without_schema_it_says_what_event_time_is(declared: Declared) -> None:
    problem = declared.problem(declared.read.apply(lambda df: df).dedupe("a"))
    assert str(problem.fix).endswith("It is a TIMESTAMP, or a BIGINT of epoch milliseconds.")


def test_rolling_needs_a_key_and_dedupe_does_not(declared: Declared) -> None:
    problem = declared.problem(declared.timed.dedupe("txn_id"), declared.timed.rolling("r", n=count()))
    assert isinstance(problem, MissingKeyError)
    assert problem.what == "step `r` needs a key."


def test_key_and_event_time_may_come_in_any_order(declared: Declared) -> None:
    stream = declared.read.key_by("card_id").where("amount > 0").event_time("occurred_at")
    declared.passes(stream.rolling("r", n=count()))


def test_event_time_is_declared_once(declared: Declared) -> None:
    problem = declared.problem(declared.timed.where("amount > 0").event_time("sent"))
    assert isinstance(problem, UnsupportedStepError)
    assert problem.what.startswith("event time is declared twice: `sent` here, `occurred_at` at ")


def test_event_time_comes_before_state(declared: Declared) -> None:
    found = declared.problems(declared.read.dedupe("txn_id").event_time("occurred_at"))
    assert [type(each) for each in found] == [MissingEventTimeError, UnsupportedStepError]
    assert found[1].what == "event time is declared after step `dedupe-txn_id`."


def test_latest_alone_and_without_a_span_would_be_kept_for_ever(declared: Declared) -> None:
    problem = declared.problem(declared.keyed.rolling("r", a=hr.latest("lat"), b=hr.latest("lon", back=2)))
    assert isinstance(problem, UnboundedStateError)
    assert 'within="24h"' in str(problem.fix)


@pytest.mark.parametrize("bound", [hr.last("1m").count(), hr.latest("lon", within="1h")])
def test_one_span_in_a_step_bounds_its_state(declared: Declared, bound: Any) -> None:
    declared.passes(declared.keyed.rolling("r", a=hr.latest("lat"), b=bound))


def test_a_name_of_a_step_is_given_once(declared: Declared) -> None:
    start = here()
    first = declared.keyed.rolling("activity", n=count())
    second = declared.keyed.rolling("activity", n=count())
    third = declared.keyed.rolling("other", n=count())
    problem = declared.problem(first, second, third)
    assert isinstance(problem, DuplicateStepError)
    assert problem.what == "2 steps are called `activity`."
    assert problem.location is not None
    file = problem.location.file
    assert str(problem.why).endswith(f"They are at {file}:{start + 1}, {file}:{start + 2}.")


def test_two_dedupes_of_one_column_need_names(declared: Declared) -> None:
    other = declared.pipeline.read("other", schema="txn_id STRING, at TIMESTAMP").event_time("at")
    problem = declared.problem(declared.timed.dedupe("txn_id"), other.dedupe("txn_id"))
    assert "pass name=" in str(problem.fix)
    named = Declared()
    other = named.pipeline.read("other", schema="txn_id STRING, at TIMESTAMP").event_time("at")
    named.passes(named.timed.dedupe("txn_id"), other.dedupe("txn_id", name="others-once"))


# One key


def test_steps_on_one_key_can_follow_each_other(declared: Declared) -> None:
    stream = declared.timed.dedupe("txn_id").key_by("card_id").rolling("a", n=count())
    declared.passes(stream.key_by("Card_ID").rolling("b", m=count()).dedupe("lat"))


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d.keyed.rolling("a", n=count()).key_by("txn_id"),
        lambda d: d.keyed.dedupe("txn_id").where("amount > 0").key_by("card_id", "lat"),
        lambda d: (
            d.timed.dedupe("txn_id").key_by("card_id").rolling("a", n=count()).key_by("lat").rolling("b", m=count())
        ),
    ],
)
def test_another_key_after_state_needs_a_second_pipeline(declared: Declared, use: Any) -> None:
    problem = declared.problem(use(declared))
    assert isinstance(problem, UnsupportedStepError)
    assert "changes the key after step" in problem.what
    assert problem.fix == SECOND_PIPELINE


def test_branches_may_have_different_keys(declared: Declared) -> None:
    once = declared.timed.dedupe("txn_id")
    declared.passes(once.key_by("card_id").rolling("a", n=count()), once.key_by("lat").rolling("b", n=count()))


def test_apply_after_state_needs_a_second_pipeline(declared: Declared) -> None:
    problem = declared.problem(declared.timed.dedupe("txn_id").where("amount > 0").apply(lambda df: df))
    assert isinstance(problem, UnsupportedStepError)
    assert problem.what == ".apply(...) can't follow step `dedupe-txn_id`."
    assert str(problem.fix).endswith(SECOND_PIPELINE)


@pytest.mark.parametrize(
    ("use", "kind", "what"),
    [
        (lambda s: s.select("card_id", "amount"), UnknownColumnError, ".select(...) drops column `occurred_at`"),
        (lambda s: s.select("amount", "occurred_at"), UnknownColumnError, ".select(...) drops column `card_id`"),
        (
            lambda s: s.with_column("Card_ID", "upper(card_id)"),
            PipelineError,
            ".with_column(...) replaces column `card_id`",
        ),
        (
            lambda s: s.select("card_id", occurred_at="now()"),
            PipelineError,
            ".select(...) replaces column `occurred_at`",
        ),
    ],
)
def test_event_time_and_key_must_reach_the_step_as_declared(
    declared: Declared, use: Any, kind: type[PipelineError], what: str
) -> None:
    changed = use(declared.keyed)
    problem = declared.problem(changed.rolling("r", n=count()))
    assert type(problem) is kind
    assert problem.what.startswith(f"{what}, which step `r` needs.")
    assert problem.location == changed.node.location


def test_after_the_step_they_may_be_dropped_and_changed(declared: Declared) -> None:
    activity = declared.keyed.rolling("r", n=count())
    declared.passes(activity.select("n"), activity.with_column("occurred_at", "cast(occurred_at as string)"))


# Side outputs


@pytest.mark.parametrize(
    ("use", "kind", "fix"),
    [
        (lambda d: d.read.late, MissingEventTimeError, "Timestamp columns here: occurred_at"),
        (lambda d: d.timed.late, UnsupportedStepError, "after .dedupe(...), .rolling(...) or .window(...)"),
        (lambda d: d.keyed.rolling("r", n=count()).duplicates, UnsupportedStepError, ".dedupe("),
        (lambda d: d.read.quarantined, UnsupportedStepError, "max_skew="),
        (lambda d: d.read.event_time("occurred_at").quarantined, UnsupportedStepError, "max_skew="),
    ],
)
def test_a_side_output_that_can_have_no_rows(declared: Declared, use: Any, kind: type[PipelineError], fix: str) -> None:
    problem = declared.problem(use(declared))
    assert type(problem) is kind
    assert fix in str(problem.fix)


def test_side_outputs_can_be_shaped_without_state(declared: Declared) -> None:
    late = declared.timed.dedupe("txn_id").late
    declared.passes(late.where("amount > 5").with_column("why", "'late'").select("txn_id", "why"))


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.event_time("occurred_at"),
        lambda s: s.key_by("card_id"),
        lambda s: s.where("amount > 0").dedupe("lat", name="again"),
        lambda s: s.rolling("r", n=count()),
        lambda s: s.apply(lambda df: df),
        lambda s: s.dead_letters,
    ],
)
def test_side_outputs_can_not_go_through_state(declared: Declared, use: Any) -> None:
    problem = declared.problem(use(declared.timed.dedupe("txn_id").late))
    assert isinstance(problem, UnsupportedStepError)
    assert problem.fix == SECOND_PIPELINE


@pytest.mark.parametrize(
    "use", [lambda s: s.where("true"), lambda s: s.select("card_id"), lambda s: s.key_by("card_id")]
)
def test_dead_letters_can_only_be_written(declared: Declared, use: Any) -> None:
    problem = declared.problem(use(declared.read.dead_letters))
    assert isinstance(problem, UnsupportedStepError)
    assert problem.why == "Dead letters are payloads that did not parse: they have no columns."


def test_dead_letters_keep_their_key(declared: Declared) -> None:
    declared.read.dead_letters.write("bad", key="card_id")
    assert declared.problem().fix == "leave out key=..."


# Topics


@pytest.mark.parametrize("use", [lambda p: None, lambda p: p.read("in", schema="a INT").where("a > 1")])
def test_a_pipeline_that_writes_nothing(use: Any) -> None:
    line = here() + 1
    pipeline = hr.Pipeline("p")
    use(pipeline)
    with pytest.raises(InvalidPipelineError) as caught:
        pipeline.check()
    (problem,) = caught.value.problems
    assert problem.what == "the pipeline writes nothing."
    assert problem.location is not None
    assert problem.location.line == line


def test_a_write_to_the_topic_that_is_read_is_a_loop(declared: Declared) -> None:
    declared.read.where("amount > 5").write("transactions")
    problem = declared.problem()
    assert "closes a loop: it writes to `transactions`, the topic that it is read from." in problem.what


def test_a_loop_over_several_topics_is_one_too() -> None:
    pipeline = hr.Pipeline("p")
    pipeline.read("a", schema="x INT").write("b")
    pipeline.read("b", schema="x INT").write("a")
    with pytest.raises(InvalidPipelineError) as caught:
        pipeline.check()
    assert [each.what for each in caught.value.problems] == [
        '.write("b") closes a loop: it writes to `b`, from which `a` is fed again.',
        '.write("a") closes a loop: it writes to `a`, from which `b` is fed again.',
    ]


def test_topics_may_be_chained_and_shared_by_streams() -> None:
    pipeline = hr.Pipeline("p")
    first = pipeline.read("a", schema="x INT")
    first.where("x > 1").write("b")
    first.where("x < 1").write("b")
    pipeline.read("b", schema="x INT").write("c")
    pipeline.check()


# Names


@pytest.mark.parametrize("name", ["", "card fraud", "a/b", "é", ".", "..", "x" * 101, 5, None, ["a"], {}])
def test_names_that_can_be_neither_topic_nor_folder(name: Any) -> None:
    declared = Declared(name)
    found = declared.problems(declared.keyed.rolling(name, n=count()))
    assert [each.what for each in found] == [
        f"pipeline name {name!r} can't be used.",
        f"step name {name!r} can't be used.",
    ]


@pytest.mark.parametrize("topic", ["", "a b", "a/b", ".", "..", "x" * 250, None, ["a", "b"], {}])
def test_topic_names_that_kafka_refuses(topic: Any) -> None:
    pipeline = hr.Pipeline("p")
    pipeline.read(topic, schema="a INT").write("out")
    pipeline.read("in", schema="a INT").write(topic)
    with pytest.raises(InvalidPipelineError) as caught:
        pipeline.check()
    assert [each.what for each in caught.value.problems] == [f"topic name {topic!r} can't be used."] * 2


# Size


def test_a_long_pipeline_is_checked_and_drawn_all_the_same(declared: Declared) -> None:
    stream = declared.read
    for number in range(1200):
        stream = stream.with_column(f"c{number % 50}", "1")
    declared.passes(stream)
    assert stream.schema is not None
    assert len(stream.schema) == 59
    assert len(draw(declared.pipeline).splitlines()) == 1205
