"""What the command prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headrace.cli import topics
from headrace.cli.main import main
from headrace.cli.output import Format, Output
from headrace.errors import TopicNotFoundError

NOWHERE = ["topics", "list", "--bootstrap", "127.0.0.1:1"]


@pytest.fixture
def missing_topic(monkeypatch: pytest.MonkeyPatch) -> TopicNotFoundError:
    """Every command on topics fails with this error."""
    error = TopicNotFoundError("topic `clicks` does not exist.", why="There are none.", fix="create it")

    def fail(bootstrap: str | None) -> None:
        raise error

    monkeypatch.setattr(topics, "_topics", fail)
    return error


def exit_code(*words: str) -> object:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def test_rows_are_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "clicks [/red]", "isr": (1, 2), "end": 5}, {"name": "orders", "isr": (1,), "end": 1200}]
    Output.of(Format.TEXT).rows(("name", "isr", "end"), rows, empty="none")
    printed = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in printed] == [
        "name           isr   end",
        "clicks [/red]  1,2     5",
        "orders         1    1200",
    ]


def test_rows_are_one_object_a_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "clicks", "end": 5}, {"name": "orders", "end": 1200}]
    Output.of(Format.JSON).rows(("name", "end"), rows, empty="none")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


def test_no_rows_are_said_to_people_and_are_nothing_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    for format in Format:
        Output.of(format).rows(("name",), [], empty="there are no topics yet")
    assert capsys.readouterr().out == "there are no topics yet\n"


def test_a_long_line_into_a_pipe_is_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    Output.of(Format.TEXT).rows(("name",), [{"name": "x" * 249}], empty="none")
    assert "x" * 249 in capsys.readouterr().out.splitlines()


def test_progress_goes_to_standard_error_and_programs_are_spared(capsys: pytest.CaptureFixture[str]) -> None:
    for format in Format:
        with Output.of(format).progress() as progress:
            progress("broker: starting")
    assert capsys.readouterr() == ("", "broker: starting\n")


@pytest.mark.usefixtures("missing_topic")
def test_an_error_is_one_message_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("topics", "list") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "TopicNotFoundError: topic `clicks` does not exist.\n  There are none.\n  Fix: create it\n"


@pytest.mark.parametrize("words", [["--output", "json"], ["--output=json"]])
def test_an_error_is_an_object_for_programs(
    words: list[str], capsys: pytest.CaptureFixture[str], missing_topic: TopicNotFoundError
) -> None:
    assert exit_code("topics", "list", *words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err) == missing_topic.to_dict()


@pytest.mark.usefixtures("missing_topic")
@pytest.mark.parametrize("words", [["--verbose", "topics", "list"], ["topics", "list", "--verbose"]])
def test_verbose_may_stand_anywhere_and_shows_the_trace(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*words) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_quietly_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(bootstrap: str | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(topics, "_topics", interrupt)
    assert exit_code("topics", "list") == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_broker_that_is_down_is_one_clear_error_with_nothing_of_the_client_library_around_it() -> None:
    # In a process of its own: the client library writes to the terminal behind Python's back.
    command = [sys.executable, "-m", "headrace", *NOWHERE]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("BrokerUnavailableError: no broker answers at 127.0.0.1:1.\n")
    assert "headrace broker start" in ended.stderr
    assert "rdkafka" not in ended.stderr


def test_a_command_that_can_not_be_read_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("topics", "list", "--nonsense") == 2
    assert "--nonsense" in capsys.readouterr().err


def test_importing_the_command_loads_no_spark() -> None:
    code = "import sys, headrace.cli.main; print(sorted({'pyspark', 'pandas', 'py4j', 'numpy'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
