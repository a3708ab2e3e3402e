"""The Spark settings Headrace runs with, in one place, with the reason for each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How a pipeline runs. All four continue from the same checkpoint."""

    REPLAY = "replay"
    """At full speed over what is there, then stop."""
    MICROBATCH = "microbatch"
    """In small batches, for ever; exactly-once into Kafka."""
    REALTIME = "realtime"
    """Event by event, in milliseconds; at-least-once with deterministic ids."""
    AUTO = "auto"
    """Catch up in micro-batches, then switch to real time."""


@dataclass(frozen=True)
class RunSettings:
    """What a user may turn."""

    batch_interval_ms: int = 0
    """Micro-batch: at least so long from the start of a batch to that of the next; 0: each when the last one ends."""
    checkpoint_interval_ms: int = 60_000
    """Real time: a batch lasts this long. At each boundary events wait for some tenths of a second."""
    state_partitions: int = 2
    """Shuffle partitions = state stores. Fixed for the life of a checkpoint: Spark can't repartition state."""
    max_rows_per_batch: int = 2_000_000
    """Bounds the memory of a batch while catching up. Smaller batches pay the fixed cost of a batch more often."""
    switch_lag_rows: int = 5_000
    """Auto: below this lag real time takes over; a real-time query works off such a rest in well under a second."""
    switch_lag_ms: int = 5_000
    """Auto: real time takes over, too, when the last pass was shorter: what is left came in since it began."""
    max_rate: float | None = None
    """Rows a second that each query reads at most, in micro-batch and replay."""
    latency_target_ms: int | None = None
    """Micro-batch: keep batches so small that a record's results are there within this time, if the job keeps up."""
    retry_for_ms: int = 600_000
    """A query that fails for a reason that may pass, as a broker that is away, is started again for so long."""
    producer: tuple[tuple[str, str], ...] = ()
    """Settings of Kafka's producer, by Kafka's own names, over those below."""


_TASK_ATTEMPTS = 3


def master(slots: int) -> str:
    """Local threads. Real-time mode runs every task of a query at once and needs a slot for each; waiting is free.

    A task that failed is tried again, as on a cluster: a broker that was away for a moment does not end the batch.
    """
    return f"local[{max(slots, os.cpu_count() or 2)},{_TASK_ATTEMPTS}]"


SESSION: dict[str, str] = {
    # One clock for everybody: event times are instants, and JSON carries them in UTC.
    "spark.sql.session.timeZone": "UTC",
    # Columns may be called `cost${eur}`; Spark would put the value of a variable there, also inside of quotes.
    "spark.sql.variable.substitute": "false",
    # The platform has its own views; a second web server on a second port is a surprise.
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    # transformWithState needs RocksDB; real-time mode needs format v2, whose files survive a half-written batch.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # Commit only what changed in a batch instead of whole state files.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The pipelined shuffle of real-time mode holds a row back until its buffer is full or this time is over. The
    # default of 50 ms gave a bare stateful operator p50 30 ms, 2 ms gave 4.7 ms.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
    # A round-robin shuffle would wait for the end of its input, which in real-time mode never comes.
    "spark.sql.execution.sortBeforeRepartition": "false",
    # A stream's plan is fixed by its state; adaptive execution can't help it, and costs planning time in every batch.
    "spark.sql.adaptive.enabled": "false",
    # How long to wait before looking again at a topic in which there was nothing new. With Spark's 10 ms, four idle
    # pipelines took 1.2 cores, two thirds of a core of it the driver's.
    "spark.sql.streaming.pollingDelay": "100ms",
    # Hadoop's own local file system starts a process for every file that a checkpoint makes or renames.
    "spark.hadoop.fs.file.impl": "org.apache.spark.sql.headrace.ForklessLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.spark.sql.headrace.ForklessLocalFs",
    # Progress of this many batches is kept in memory.
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.ui.showConsoleProgress": "false",
}

REALTIME: dict[str, str] = {
    # At each checkpoint Spark plans the next batch and starts its tasks, and nothing is read meanwhile. Generating
    # code, for whole stages in the driver and for expressions in each task, is a third of that. Without it an event
    # costs more, which counts when millions are replayed, not here.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""What queries in real time have besides."""

NO_RESULTS_WAIT: dict[str, str] = {
    # When the last records have moved the watermark, Spark runs a batch with nothing in it. It closes windows; where
    # no results wait it would only clear away state, which the first batch of the next run does as well.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""What queries have besides that end with the log, and of which no results wait for the watermark."""

JAVA_OPTIONS = " ".join(
    (
        # Short pauses matter more than the last percent of throughput.
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        # Spark 4.3 on Java 24+ warns about native access and Unsafe otherwise.
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--enable-native-access=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow",
    )
)

OUTPUT_TOPIC: dict[str, str] = {
    # A dead letter is a record with some headers more: one that just fitted must still fit.
    "max.message.bytes": str(2 * 1024 * 1024),
}

KAFKA_PRODUCER: dict[str, str] = {
    "acks": "all",
    "enable.idempotence": "true",
    "compression.type": "lz4",
    # In batches, wait a little and send a lot: without these two the sink runs at about half the speed.
    "linger.ms": "20",
    "batch.size": "500000",
    # The producer measures before compression, the broker after it: what the broker took once, it takes again.
    "max.request.size": "16777216",
    # A transaction asks for coordinators, and waits so long before it goes on with those that it has found. After
    # failures the wait doubles, up to a second.
    "retry.backoff.ms": "10",
    # A task's transaction spans its whole batch; 15 minutes is the most that a broker allows by default.
    "transaction.timeout.ms": "900000",
}

KAFKA_PRODUCER_REALTIME: dict[str, str] = {
    "acks": "all",
    "enable.idempotence": "true",
    "max.request.size": "16777216",
    # A decision waits for nobody.
    "linger.ms": "0",
}
