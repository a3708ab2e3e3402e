"""`headrace dead-letters`: look at them, send them back, or put them aside."""

from __future__ import annotations

import base64
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from headrace.cli.loading import function_of
from headrace.cli.output import Format, Output, OutputOption
from headrace.cli.topics import BootstrapOption
from headrace.errors import InvalidDurationError
from headrace.log.broker import default_bootstrap
from headrace.log.dead_letters import DeadLetter, DeadLetters, Filter, Outcome, dead_letter_topics
from headrace.log.handled_letters import State
from headrace.pipeline.durations import parse_duration

app = typer.Typer(no_args_is_help=True, help="Records that did not become rows, with the reason of each.")

_WIDEST = 60
TopicArgument = Annotated[str, typer.Argument(help="the dead-letter topic, or the name of its pipeline")]
PositionsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[PARTITION:OFFSET]...", help="only these letters", show_default=False)
]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="only letters with this text in their reason")]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="only letters since then: 2h, or 2026-01-31T10:00Z")
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="only letters before then")]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="so many letters at most")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="only count what would be done")]


@app.command("list")
def list_letters(
    topic: Annotated[
        str | None, typer.Argument(help="the dead-letter topic, or the name of its pipeline; none: all such topics")
    ] = None,
    by_reason: Annotated[bool, typer.Option("--by-reason", help="count them by reason instead")] = False,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    state: Annotated[State | None, typer.Option(help="open, replayed or dropped ones")] = State.OPEN,
    every: Annotated[bool, typer.Option("--all", help="in any state")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="letters a page")] = 20,
    after: Annotated[str | None, typer.Option(metavar="PARTITION:OFFSET", help="the page after this letter")] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """List open letters, a page at a time, or count them by reason. Without a topic, count those of every topic."""
    out = Output.of(output)
    server = bootstrap or default_bootstrap()
    wanted = _filter(reason, since, until, None, None if every else state)
    if topic is None:
        rows = [{"topic": name, **_totals(DeadLetters(server, name), wanted)} for name in dead_letter_topics(server)]
        out.rows(("topic", *State), rows, empty="there are no dead-letter topics")
        return
    letters = DeadLetters(server, topic)
    if by_reason:
        counted = [{"reason": k, "state": s.value, "letters": n} for (k, s), n in letters.counts(wanted).items()]
        out.rows(("letters", "state", "reason"), counted, empty=f"no such letters in {letters.topic}")
        return
    start = None if after is None else _position(after)
    found = list(islice(letters.letters(wanted, start), limit + 1))
    columns = ("position", "at", "state", "reason", "source", "payload")
    out.rows(columns, [_row(letter) for letter in found[:limit]], empty=f"no such letters in {letters.topic}")
    if len(found) > limit and output is Format.TEXT:
        typer.echo(f"more: --after {found[limit - 1].position}", err=True)


@app.command()
def show(
    topic: TopicArgument,
    position: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Show one letter: reason, stack, where it came from, and its bytes."""
    letters = DeadLetters(bootstrap or default_bootstrap(), topic)
    letter = letters.find(*_position(position))
    source = None if letter.source is None else dict(zip(("topic", "partition", "offset"), letter.source, strict=True))
    fields = {
        "topic": letters.topic,
        "position": letter.position,
        "at": letter.at.isoformat(),
        "state": letter.state.value,
        "reason": letter.reason,
        "stack": letter.stack,
        "source": source,
        "id": letter.id,
        **_payload("key", letter.key),
        **_payload("value", letter.value),
    }
    lines = [
        f"letter   {letter.position} of {letters.topic}, {letter.state}",
        f"at       {letter.at.isoformat()}",
        f"reason   {letter.reason}",
        f"source   {'none: a result of many records' if source is None else _place(letter)}",
        f"id       {letter.id}",
        f"key      {_printable(letter.key)}",
        f"value    {_printable(letter.value)}",
    ]
    Output.of(output).record(fields, "\n".join(lines + ([] if letter.stack is None else ["stack", letter.stack])))


@app.command()
def replay(
    topic: TopicArgument,
    positions: PositionsArgument = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    to: Annotated[str | None, typer.Option(help="another topic than the one that the record came from")] = None,
    fix: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="repairs a letter: gives its payload, or None to leave it"),
    ] = None,
    limit: LimitOption = None,
    again: Annotated[bool, typer.Option("--again", help="also those that were replayed or dropped before")] = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Send letters back to the topic that they came from. Each is sent once, whatever happens on the way."""
    repair = None if fix is None else function_of(fix)
    letters = DeadLetters(bootstrap or default_bootstrap(), topic)
    wanted = _filter(reason, since, until, positions, None if again else State.OPEN)
    if dry_run:
        _would(output, letters, wanted, limit, "replay")
        return
    _tell(output, letters, letters.replay(wanted, to, repair, limit, again=again), "replayed")


@app.command()
def drop(
    topic: TopicArgument,
    positions: PositionsArgument = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    every: Annotated[bool, typer.Option("--all", help="all open letters, if nothing else says which")] = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Format.TEXT,
) -> None:
    """Put letters aside: they are no longer listed or replayed. Their bytes stay in the topic."""
    if not (positions or reason or since or until or every or limit):
        raise typer.BadParameter("say which letters: positions, --reason, --since, --until, --limit or --all")
    letters = DeadLetters(bootstrap or default_bootstrap(), topic)
    wanted = _filter(reason, since, until, positions, State.OPEN)
    if dry_run:
        _would(output, letters, wanted, limit, "drop")
        return
    _tell(output, letters, letters.drop(wanted, limit), "dropped")


def _tell(output: Format, letters: DeadLetters, outcome: Outcome, done: str) -> None:
    fields = asdict(outcome)
    fields[done] = fields.pop("done")
    parts = [f"{done} {outcome.done:,} of {letters.topic}"]
    if outcome.repeated:
        parts.append(f"{outcome.repeated:,} were letters of records replayed before")
    if outcome.skipped:
        parts.append(f"{outcome.skipped:,} left: nothing to send")
    if outcome.failed:
        parts.append(f"{outcome.failed:,} left: the fix failed, first with {outcome.first_failure}")
    Output.of(output).record({"topic": letters.topic, **fields}, "; ".join(parts))
    if outcome.failed:
        raise typer.Exit(1)


def _would(output: Format, letters: DeadLetters, wanted: Filter, limit: int | None, what: str) -> None:
    count = sum(1 for _ in islice(letters.letters(wanted), limit))
    Output.of(output).record({"topic": letters.topic, f"would_{what}": count}, f"would {what} {count:,} letters")


def _totals(letters: DeadLetters, wanted: Filter) -> dict[str, int]:
    totals = {state.value: 0 for state in State}
    for letter in letters.letters(replace(wanted, state=None)):
        totals[letter.state] += 1
    return totals


def _filter(
    reason: str | None, since: str | None, until: str | None, positions: list[str] | None, state: State | None
) -> Filter:
    chosen = frozenset(_position(p) for p in positions) if positions else None
    return Filter(reason, _time(since, "--since"), _time(until, "--until"), chosen, state)


def _time(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.now(UTC) - timedelta(milliseconds=parse_duration(text))
    except InvalidDurationError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"`{text}` is neither a span like 2h nor a time", param_hint=option) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _position(text: str) -> tuple[int, int]:
    partition, colon, offset = text.partition(":")
    if not colon or not partition.isdecimal() or not offset.isdecimal():
        raise typer.BadParameter(f"`{text}` is not PARTITION:OFFSET, like 0:17")
    return int(partition), int(offset)


def _row(letter: DeadLetter) -> dict[str, object]:
    text = _printable(letter.value)
    return {
        "position": letter.position,
        "at": letter.at.isoformat(timespec="seconds"),
        "state": letter.state.value,
        "reason": letter.reason,
        "source": "" if letter.source is None else _place(letter),
        "payload": text if len(text) <= _WIDEST else f"{text[:_WIDEST]}... ({len(letter.value or b''):,} bytes)",
    }


def _place(letter: DeadLetter) -> str:
    assert letter.source is not None
    return "/".join(str(part) for part in letter.source)


def _payload(name: str, data: bytes | None) -> dict[str, object]:
    """For programs: text as it is, anything else in base 64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _printable(data: bytes | None) -> str:
    """For people: what a terminal would take for a command is shown, not sent."""
    if data is None:
        return "null"
    text = data.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
