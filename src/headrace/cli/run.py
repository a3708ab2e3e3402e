"""`headrace run MODULE:PIPELINE`."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.durations import milliseconds
from headrace.cli.loading import pipeline_of
from headrace.cli.output import Format, Output, OutputOption
from headrace.engine.settings import Mode, RunSettings
from headrace.errors import BrokerUnavailableError
from headrace.log.broker import default_bootstrap
from headrace.pipeline.durations import format_duration

if TYPE_CHECKING:
    from headrace.engine.progress import Progress, Record
    from headrace.engine.run import Run
    from headrace.pipeline.pipeline import Pipeline

Target = Annotated[str, typer.Argument(help="module:pipeline, as in examples.fraud:fraud", metavar="MODULE:PIPELINE")]
Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", help="address of a Kafka broker; default: this project's embedded one")
]

RegistryOption = Annotated[
    str | None,
    typer.Option("--registry", help="URL of a schema registry, for contracts; default: this project's embedded one"),
]


def run(
    target: Target,
    mode: Annotated[
        Mode, typer.Option(help="auto catches up in micro-batches, then switches to real time")
    ] = Mode.AUTO,
    bootstrap: Bootstrap = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="folder to continue from; default: one per pipeline in the state directory")
    ] = None,
    checkpoint_interval: Annotated[
        int, typer.Option(min=5, help="real time: seconds between checkpoints; each costs a moment of tail latency")
    ] = RunSettings.checkpoint_interval_ms // 1000,
    state_partitions: Annotated[
        int, typer.Option(min=1, help="state stores; fixed once a checkpoint exists")
    ] = RunSettings.state_partitions,
    batch_interval: Annotated[
        str,
        typer.Option(metavar="TIME", help="micro-batch: from the start of a batch to the next, at least; 0s: at once"),
    ] = "0s",
    max_rows: Annotated[int, typer.Option(min=1, help="bound of a micro-batch")] = RunSettings.max_rows_per_batch,
    registry: RegistryOption = None,
    max_rate: Annotated[
        float | None, typer.Option(min=0.1, help="rows a second that each query reads at most; not in real time")
    ] = None,
    latency_target: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="micro-batch: keep batches so small that results come within this, like 2s"),
    ] = None,
    retry_for: Annotated[
        str, typer.Option(metavar="TIME", help="go on trying for so long when the broker does not answer; 0s: never")
    ] = format_duration(RunSettings.retry_for_ms),
    progress_file: Annotated[Path | None, typer.Option(help="append progress records here, as JSON lines")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="show what Spark logs")] = False,
    output: OutputOption = Format.TEXT,
) -> None:
    """Run a pipeline until Ctrl-C (or, with --mode replay, to the end of what is in the log)."""
    from headrace.engine.progress import to_file
    from headrace.engine.run import Run

    settings = RunSettings(
        batch_interval_ms=milliseconds(batch_interval, "--batch-interval", zero=True),
        checkpoint_interval_ms=checkpoint_interval * 1000,
        state_partitions=state_partitions,
        max_rows_per_batch=max_rows,
        max_rate=max_rate,
        latency_target_ms=None if latency_target is None else milliseconds(latency_target, "--latency-target"),
        retry_for_ms=milliseconds(retry_for, "--retry-for", zero=True),
    )
    out = Output.of(output)
    save = to_file(progress_file) if progress_file is not None else None

    def on_record(record: Record) -> None:
        if save is not None:
            save(record)
        out.record(asdict(record), _line(record))

    pipeline = pipeline_of(target)
    job = Run(
        pipeline,
        bootstrap=bootstrap or _embedded(pipeline),
        mode=mode,
        checkpoint=checkpoint,
        settings=settings,
        on_progress=on_record,
        # Programs read the records; what is said on the way is for people.
        report=None if output is Format.JSON else lambda message: print(message, file=sys.stderr, flush=True),
        verbose=verbose or "--verbose" in sys.argv,
        registry=registry,
    )
    _run(job)


def _embedded(pipeline: Pipeline) -> str:
    """The address of this project's broker; if it does not run, what is wrong with the pipeline is said first."""
    try:
        return default_bootstrap()
    except BrokerUnavailableError:
        pipeline.check()
        raise


def _run(job: Run) -> None:
    """Until it ends or a signal asks for the end; a second signal does not wait.

    A replay that was stopped is not done: whoever started it can tell by the exit code.
    """

    def ask(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        job.stop()
        if job.preparing:
            raise KeyboardInterrupt

    handlers = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        job.start()
        # PySpark installs its own handler for Ctrl-C when a session starts.
        for number in handlers:
            signal.signal(number, ask)
        job.wait()
    finally:
        job.close()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if job.mode is Mode.REPLAY and not job.has_ended:
        raise typer.Exit(130)


def _line(record: Record) -> str:
    from headrace.engine.progress import Progress

    if not isinstance(record, Progress):
        return f"{record.query}: {record.event} ({record.mode})" + (f", {record.message}" if record.message else "")
    return _progress_line(record)


def _progress_line(p: Progress) -> str:
    lag = "" if p.lag is None else f", lag {p.lag:,}"
    sides = ", ".join(
        f"{name.replace('_', ' ')} {count:,}"
        for name, count in (
            ("late", p.late),
            ("duplicates", p.duplicates),
            ("quarantined", p.quarantined),
            ("dead_letters", p.dead_letters),
        )
        if count
    )
    return (
        f"{p.query}: batch {p.batch}, {p.input_rows:,} rows in {p.batch_ms / 1000:.1f} s"
        f" ({p.rows_per_second:,.0f}/s){lag}, "
        f"state {p.state_rows:,} rows {p.state_bytes / 1e6:.1f} MB" + (f", {sides}" if sides else "")
    )
