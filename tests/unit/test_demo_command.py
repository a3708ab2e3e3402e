"""`headrace demo` as its caller sees it: what goes to which stream, and the exit code."""

from __future__ import annotations

import json

import pytest

from examples.fraud.truth import Truth
from headrace.cli.main import main
from headrace.demo import orchestration
from headrace.demo.accounting import Accounting
from headrace.demo.summary import Summary
from headrace.errors import HeadraceError, QueryFailedError

DIED = QueryFailedError("the fraud job ended by itself.", why="The last that it said: no room", fix="see job.log")


def demo(
    monkeypatch: pytest.MonkeyPatch, *words: str, undelivered: int = 0, failure: HeadraceError | None = None
) -> object:
    """The exit code of the command, after a run that came to this."""
    came_to = Summary(Accounting().figures(), Truth().score(), {}, undelivered, 8.0, failure)
    monkeypatch.setattr(orchestration, "run", lambda options, console: came_to)
    with pytest.raises(SystemExit) as ended:
        main(["demo", *words])
    return ended.value.code


def test_a_run_that_broke_off_is_an_error_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(monkeypatch, "--output", "json", failure=DIED) == 1
    said = capsys.readouterr()
    (line,) = said.out.splitlines()
    assert json.loads(line)["lost"] == 0
    (error,) = said.err.splitlines()
    assert json.loads(error) == DIED.to_dict()


def test_a_run_that_broke_off_is_an_error_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(monkeypatch, failure=DIED) == 1
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["lost"] == 0
    assert "QueryFailedError: the fraud job ended by itself." in said.err
    assert "no room" in said.err


def test_the_exit_code_tells_whether_something_was_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(monkeypatch) == 0
    assert "Every transaction is accounted for." in capsys.readouterr().out
    assert demo(monkeypatch, undelivered=2) == 1
    said = capsys.readouterr()
    assert "2 of 2 transactions are lost." in said.out
    assert json.loads(said.out.splitlines()[-1])["lost"] == 2
