"""What a write may ask for, and what `explain` says about it, before anything runs."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.engine.delivery import check_mode, deliveries
from headrace.engine.explain import explain_dict, explain_text
from headrace.engine.pacing import FEWEST, Pacer
from headrace.engine.plan import plan_queries
from headrace.engine.settings import Mode, RunSettings
from headrace.errors import InvalidPipelineError, UnsupportedModeError


def copying(**writes: str | None) -> hr.Pipeline:
    pipeline = hr.Pipeline("copying")
    clicks = pipeline.read("clicks", schema="user STRING")
    for topic, delivery in writes.items():
        clicks.write(topic, delivery=delivery)
    return pipeline


def test_an_unknown_delivery_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidPipelineError) as refused:
        copying(out="exactly-once").check()
    assert 'did you mean "exactly_once"?' in str(refused.value)


def test_one_topic_can_not_have_two_deliveries() -> None:
    pipeline = hr.Pipeline("twice")
    clicks = pipeline.read("clicks", schema="user STRING")
    clicks.where("user = 'a'").write("out", delivery="at_least_once")
    clicks.where("user = 'b'").write("out")
    with pytest.raises(InvalidPipelineError, match="topic `out` is written with two deliveries"):
        pipeline.check()


def test_a_side_output_nobody_asked_for_is_exactly_once_if_anything_is() -> None:
    (query,) = plan_queries(copying(a="at_least_once", b=None))
    assert deliveries(query)["copying.dead-letters"] == "exactly_once"
    (query,) = plan_queries(copying(a="at_least_once", b="at_most_once"))
    assert deliveries(query)["copying.dead-letters"] == "at_least_once"


def test_explain_says_what_holds_why_and_what_breaks_it() -> None:
    text = explain_text(copying(strict="exactly_once", plain=None, mostly="at_most_once"))
    assert "result -> strict: exactly once; not in real time" in text
    assert "result -> plain: exactly once; in real time at least once" in text
    assert "result -> mostly: at most once; not in real time" in text
    assert "modes: replay, microbatch; auto stays in microbatch" in text
    assert "consumer group `copying`" in text
    assert text.count("  breaks: ") == 3


def test_explain_for_programs_has_none_where_a_mode_is_refused() -> None:
    outputs = {o["topic"]: o for o in explain_dict(copying(strict="exactly_once", plain=None))["queries"][0]["outputs"]}
    assert outputs["strict"]["guarantees"]["realtime"] is None
    assert outputs["plain"]["guarantees"] == {
        "replay": "exactly once",
        "microbatch": "exactly once",
        "realtime": "at least once",
    }
    assert "transaction.timeout.ms" in outputs["strict"]["why"]["microbatch"]["breaks"]


def ending(*, state: bool = True) -> hr.Pipeline:
    pipeline = hr.Pipeline("ending")
    timed = pipeline.read("clicks", schema="user STRING, at TIMESTAMP").event_time("at", watermark=hr.perfect())
    (timed.key_by("user").window("per-minute", hr.tumbling("1m"), n="count(*)") if state else timed).write("out")
    return pipeline


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.MICROBATCH, Mode.REALTIME])
def test_a_watermark_for_input_that_ends_is_refused_where_it_does_not(mode: Mode) -> None:
    """A live run that has caught up is not at the end: all that came after it would be late."""
    with pytest.raises(
        UnsupportedModeError, match=rf"hr.perfect\(\) is for input that ends; in {mode.value}"
    ) as caught:
        check_mode("ending", plan_queries(ending()), mode, RunSettings())
    assert "--mode replay" in str(caught.value.fix)
    assert "test_deliveries.py" in str(caught.value.location)


def test_it_is_taken_where_there_is_an_end_or_nothing_waits_for_it() -> None:
    check_mode("ending", plan_queries(ending()), Mode.REPLAY, RunSettings())
    check_mode("ending", plan_queries(ending(state=False)), Mode.AUTO, RunSettings())


def settle(pacer: Pacer, fixed_ms: float, per_row_ms: float, batches: int = 40) -> float:
    """Batches of a job that costs so much, always with enough to read; how long the last one took."""
    took = 0.0
    for _ in range(batches):
        took = fixed_ms + per_row_ms * pacer.rows
        pacer.on_batch(pacer.rows, int(took))
    return took


@pytest.mark.parametrize(("fixed", "per_row"), [(200, 0.01), (50, 0.2), (500, 0.001), (10, 2.0)])
def test_batches_settle_at_half_of_the_latency_target(fixed: float, per_row: float) -> None:
    pacer = Pacer(RunSettings(latency_target_ms=2000, max_rows_per_batch=10_000_000))
    assert settle(pacer, fixed, per_row) == pytest.approx(1000, rel=0.1)


def test_a_sink_that_becomes_slow_makes_batches_smaller_and_a_quick_one_larger_again() -> None:
    pacer = Pacer(RunSettings(latency_target_ms=2000, max_rows_per_batch=100_000))
    settle(pacer, 100, 0.01)
    quick = pacer.rows
    settle(pacer, 100, 0.5)
    assert pacer.rows < quick / 10
    settle(pacer, 100, 0.01)
    assert pacer.rows == pytest.approx(quick, rel=0.1)


def test_a_quiet_stream_does_not_make_batches_small() -> None:
    pacer = Pacer(RunSettings(latency_target_ms=2000, max_rows_per_batch=100_000))
    before = pacer.rows
    for _ in range(50):
        assert not pacer.on_batch(rows=3, milliseconds=150)
    assert pacer.rows == before


def test_a_target_that_can_not_be_held_does_not_stop_the_stream() -> None:
    pacer = Pacer(RunSettings(latency_target_ms=100, max_rows_per_batch=100_000))
    settle(pacer, fixed_ms=400, per_row_ms=0.01)
    assert pacer.rows == FEWEST


def test_without_a_target_a_batch_has_the_most_that_it_may() -> None:
    pacer = Pacer(RunSettings(max_rows_per_batch=5000))
    assert not pacer.on_batch(5000, 100_000)
    assert pacer.rows == 5000
