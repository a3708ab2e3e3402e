"""What commands print, behind one interface: text for people, JSON lines for programs.

Results go to standard output; progress and errors go to standard error, so that a pipe carries results only.
"""

from __future__ import annotations

import enum
import json
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.errors import HeadraceError

# Nothing folds or cuts a line that goes into a pipe: the next program reads whole lines.
_PIPE_WIDTH = 10_000


class Format(enum.StrEnum):
    """How a command prints."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[
    Format, typer.Option("--output", help="text for people, json (one object a line) for programs")
]
"""The `--output` of every command: `def status(output: OutputOption = Format.TEXT) -> None`."""


class Output(ABC):
    """Where a command's results go.

    >>> Output.of(Format.JSON).record({"running": False}, "the broker does not run")
    {"running": false}
    """

    @staticmethod
    def of(format: Format) -> Output:
        """The output for a format."""
        return JsonOutput() if format is Format.JSON else TextOutput()

    @abstractmethod
    def record(self, fields: Mapping[str, object], text: str) -> None:
        """One result: its fields for programs, a sentence for people."""

    @abstractmethod
    def rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, empty: str) -> None:
        """Results of one kind, with the same columns; `empty` is said to people if there are none."""

    @abstractmethod
    def sheet(self, fields: Mapping[str, object], text: str, *, columns: Sequence[str], rows: str) -> None:
        """One result with a list in the field `rows`: whole for programs; a sentence and a table for people."""

    @abstractmethod
    def progress(self) -> AbstractContextManager[Callable[[str], None]]:
        """A context that gives a function to tell what long work is doing. Programs are not told."""

    @abstractmethod
    def error(self, error: HeadraceError, *, verbose: bool = False) -> None:
        """An error; with its trace if `verbose`."""


class TextOutput(Output):
    """For people."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = _console(out or sys.stdout)
        self._err = _console(err or sys.stderr)

    def record(self, fields: Mapping[str, object], text: str) -> None:
        """Prints the sentence."""
        self._out.print(text, markup=False, highlight=False)

    def rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, empty: str) -> None:
        """Prints a table; numbers are aligned to the right."""
        listed = list(rows)
        if not listed:
            self._out.print(empty, markup=False, highlight=False)
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            numeric = all(isinstance(row[column], int | float) for row in listed)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in listed:
            table.add_row(*(Text(_cell(row[column])) for column in columns))
        self._out.print(table)

    def sheet(self, fields: Mapping[str, object], text: str, *, columns: Sequence[str], rows: str) -> None:
        """Prints the sentence, then the table."""
        self.record(fields, text)
        listed = fields[rows]
        assert isinstance(listed, list | tuple)
        self.rows(columns, listed, empty="")

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None]]:
        """One line that changes in a terminal; a line for each message elsewhere."""
        if not self._err.is_terminal:
            yield lambda message: self._err.print(message, markup=False, highlight=False)
            return
        with self._err.status("") as status:
            yield lambda message: status.update(Text(message, style="dim"))

    def error(self, error: HeadraceError, *, verbose: bool = False) -> None:
        """Prints the class of the error in red, and its message."""
        if verbose:
            self._err.print("".join(traceback.format_exception(error)), markup=False, highlight=False)
        self._err.print(Text.assemble((type(error).__name__, "bold red"), ": ", error.render()), soft_wrap=True)


class JsonOutput(Output):
    """For programs: one JSON object a line."""

    def record(self, fields: Mapping[str, object], text: str) -> None:
        """Writes the fields."""
        _write(sys.stdout, fields)

    def rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, empty: str) -> None:
        """Writes one object for each row."""
        for row in rows:
            _write(sys.stdout, row)

    def sheet(self, fields: Mapping[str, object], text: str, *, columns: Sequence[str], rows: str) -> None:
        """Writes the fields, the list among them."""
        _write(sys.stdout, fields)

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None]]:
        """Says nothing: standard error is for errors."""
        yield lambda message: None

    def error(self, error: HeadraceError, *, verbose: bool = False) -> None:
        """Writes the error as an object, with the trace under `trace` if `verbose`."""
        trace = {"trace": "".join(traceback.format_exception(error))} if verbose else {}
        _write(sys.stderr, {**error.to_dict(), **trace})


def _console(stream: TextIO) -> Console:
    return Console(file=stream, width=None if stream.isatty() else _PIPE_WIDTH)


def _write(stream: TextIO, fields: Mapping[str, object]) -> None:
    stream.write(json.dumps(fields, ensure_ascii=False, default=str) + "\n")
    stream.flush()


def _cell(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return "" if value is None else str(value)
