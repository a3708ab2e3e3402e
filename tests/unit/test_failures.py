"""Spark's exceptions in Headrace's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.engine.failures import explain_failure, may_pass
from headrace.errors import QueryFailedError

LOG = Path("somewhere/spark.log")

DATA_LOSS = (
    "Job aborted due to stage failure: Task 0 in stage 5.0 failed 1 times\n"
    "Caused by: java.lang.IllegalStateException: Partition txns-0's offset was changed from 100 to 5, some data may "
    "have been missed."
)
GONE = (
    "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition."
)
SILENT = (
    "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: describeTopics"
)
FENCED = (
    "org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer with the same transactionalId"
)
REGISTRY = (
    "Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (executor driver): "
    "org.apache.spark.sql.headrace.RegistryUnavailable: the schema registry at http://r:8081 could not be asked "
    "for /schemas/ids/7: java.net.http.HttpTimeoutException: request timed out\n\tat org.apache.spark..."
)
OTHER = (
    "Query card-fraud terminated with exception: Job aborted\n"
    "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)\n"
    "Caused by: org.apache.spark.SparkException: outer\n"
    "\tat somewhere\n"
    "Caused by: java.lang.ArithmeticException: inner\n"
    "\tat elsewhere"
)


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        (DATA_LOSS, "gone from the log", "--checkpoint DIR"),
        (GONE, "a topic disappeared", "headrace topics list"),
        (SILENT, "the broker no longer answers", "headrace broker status"),
        (REGISTRY, "the schema registry can't be asked", "continues where it stopped"),
        (FENCED, "another process writes for this pipeline", "stop the other run"),
    ],
    ids=["data loss", "topic", "broker", "registry", "fenced"],
)
def test_a_known_failure_says_what_and_how_to_fix_it(text: str, what: str, fix: str) -> None:
    error = explain_failure(RuntimeError(text), "card-fraud", LOG)
    assert type(error) is QueryFailedError
    assert what in error.what
    assert fix in str(error.fix)
    assert error.pipeline == "card-fraud"
    assert "\tat " not in error.render()


@pytest.mark.parametrize(
    ("text", "passes"),
    [(SILENT, True), (FENCED, True), (DATA_LOSS, False), (GONE, False), (OTHER, False)],
    ids=["broker", "fenced", "data loss", "topic", "other"],
)
def test_only_what_may_pass_is_worth_another_attempt(text: str, passes: bool) -> None:
    assert may_pass(RuntimeError(text)) is passes


def test_any_other_failure_gives_its_innermost_cause_and_the_log() -> None:
    error = explain_failure(RuntimeError(OTHER), "card-fraud", LOG)
    assert type(error) is QueryFailedError
    assert error.why == "java.lang.ArithmeticException: inner"
    assert str(LOG) in str(error.fix)
    assert "--verbose" in str(error.fix)
    assert "\tat " not in error.render()


def test_a_failure_without_a_word_is_still_an_error() -> None:
    assert explain_failure(RuntimeError(""), "card-fraud", LOG).why == "no reason given"


def test_a_very_long_cause_is_cut() -> None:
    assert len(explain_failure(RuntimeError("x" * 100_000), "card-fraud", LOG).render()) < 1_000
