"""Spark's exceptions in Headrace's words: what, why, fix. The whole trace stays in the log file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import PipelineError, QueryFailedError

_HANGING = "HangingTransaction:"
_RULES: tuple[tuple[str, Callable[[re.Match[str]], tuple[str, str, str]]], ...] = (
    (
        r"(?:offset was changed from \d+ to \d+|Some data may have been lost|failOnDataLoss|OffsetOutOfRange)",
        lambda m: (
            "records that this run has not read yet are gone from the log.",
            "The topic was deleted and created anew, or retention removed records before they were read.",
            "start anew from what the log has now with another --checkpoint DIR.",
        ),
    ),
    (
        r"RegistryUnavailable: (?P<said>[^\n]*)",
        lambda m: (
            "the schema registry can't be asked.",
            m["said"][:1].upper() + m["said"][1:] + ".",
            "bring it back (`headrace registry status`) and run again: it continues where it stopped, nothing is lost.",
        ),
    ),
    (
        r"(?:UnknownTopicOrPartition|This server does not host this topic)",
        lambda m: (
            "a topic disappeared while the pipeline was running.",
            "Somebody deleted it, or the broker lost it.",
            "`headrace topics list` shows what is there; create it and run again: nothing is lost.",
        ),
    ),
    (
        r"RecordTooLarge|MessageSizeTooLarge|larger than the max message size",
        lambda m: (
            "a result is larger than its topic takes.",
            "Kafka refuses it, and would refuse it again.",
            "raise max.message.bytes of the topic, write fewer columns, or bound the input: read(..., max_bytes=...).",
        ),
    ),
    (
        _HANGING + r" (?P<said>[^\n]*)",
        lambda m: (
            "a transaction hangs in the broker, and this pipeline can't know whether its last batch was written.",
            f"{m['said'][:1].upper()}{m['said'][1:]}. Brokers of Kafka 4.1 to 4.3 leave such if they die in a commit.",
            "find it and end it: kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --broker-id N, then "
            "abort on every partition that it names; and run again: it continues where it stopped.",
        ),
    ),
    (
        r"StaleCheckpoint: batch (?P<batch>\d+) .* up to batch (?P<last>\d+)",
        lambda m: (
            "the checkpoint is older than what this pipeline has written with it.",
            f"It goes on at batch {m['batch']}, and batches up to {m['last']} are in the output topics already.\n"
            "They need not have had the same input: it would be wrong to skip them, and to write them again.",
            "bring back the newest state of the checkpoint; or start anew from the log with another --checkpoint DIR,\n"
            "which writes all results again.",
        ),
    ),
    (
        r"TimeoutException|Connection to node .* could not be|DisconnectException|Failed to construct kafka",
        lambda m: (
            "the broker no longer answers.",
            "Kafka did not answer in time.",
            "bring the broker back (`headrace broker status`) and run again: it continues where it stopped.",
        ),
    ),
    (
        r"ProducerFenced|InvalidProducerEpoch",
        lambda m: (
            "another process writes for this pipeline.",
            "A newer run with the same checkpoint took over, and Kafka shut this one out.",
            "stop the other run.",
        ),
    ),
)


_PASSING = (
    r"TimeoutException|DisconnectException|NetworkException|Connection to node|could not be established"
    r"|NotLeaderOrFollower|LeaderNotAvailable|NotEnoughReplicas|CoordinatorNotAvailable|CoordinatorLoadInProgress"
    r"|NotCoordinator|KafkaStorageException"
    # A transaction that timed out, or a task that was given up for dead, leaves these behind once. A second process
    # that writes for the same checkpoint does so again and again: nothing is committed, and the time for retries ends.
    r"|ProducerFenced|InvalidProducerEpoch|InvalidTxnState|TransactionAborted"
)


def may_pass(problem: BaseException) -> bool:
    """Whether what Spark threw may be gone at the next attempt: a broker that is away, a transaction that timed out."""
    return _HANGING not in str(problem) and re.search(_PASSING, str(problem)) is not None


@contextmanager
def explained(pipeline: str, log_file: Path, tell: Callable[[str], None], ends: Callable[[], bool]) -> Iterator[None]:
    """Inside, what Spark throws becomes an error in Headrace's words, and whoever watches is told of it.

    Nothing is wrong where Spark's JVM ends because it was asked to.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except PipelineError as problem:
        tell(problem.what)
        raise problem.in_pipeline(pipeline) from problem.__cause__
    except (PySparkException, Py4JError) as problem:
        if ends():
            return
        tell(str(problem))
        raise explain_failure(problem, pipeline, log_file) from problem


def explain_failure(problem: BaseException, pipeline: str, log_file: Path) -> QueryFailedError:
    """The error to show for what Spark threw."""
    text = str(problem)
    for pattern, words in _RULES:
        found = re.search(pattern, text, re.DOTALL)
        if found:
            what, why, fix = words(found)
            return QueryFailedError(what, why=why, fix=fix, pipeline=pipeline)
    return QueryFailedError(
        "Spark stopped the query.",
        why=_first_cause(text),
        fix=f"the whole trace is in {log_file}; --verbose shows it here.",
        pipeline=pipeline,
    )


def _first_cause(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1].removeprefix("Caused by:").strip() if causes else lines[0] if lines else "no reason given")[:500]
