"""What the command prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


MODULE = """import headrace as hr
import json

def settings(text):
    return json.loads(text)

job = hr.Pipeline("job")
settings("{")
"""

UDF = """import headrace as hr
from pyspark.sql import functions as F

double = F.udf(lambda n: 2 * n, "bigint")
job = hr.Pipeline("job")
job.read("in", schema="n BIGINT").with_column("twice", double("n")).write("out")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_an_error_in_the_users_module_is_told_with_its_line_and_its_own_trace(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "broken.py").write_text(MODULE)
    assert exit_code("explain", "broken.py:job") == 1
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0].startswith("PipelineError: `broken.py` can't be loaded: JSONDecodeError: Expecting property name")
    assert lines[1:4] == [
        "  at broken.py:5",
        f'    File "{project / "broken.py"}", line 8, in <module>',
        '      settings("{")',
    ]
    assert f'    File "{project / "broken.py"}", line 5, in settings' in lines
    assert lines[-1] == "  Fix: mend the module at that place; --verbose shows the whole trace."
    for chatter in ("Traceback", "importlib", "typer", "headrace/cli"):
        assert chatter not in err
    assert exit_code("explain", "broken.py:job", "--verbose") == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        (MODULE, "JSONDecodeError", 5),
        ("x = = 1\n", "SyntaxError", 1),
        ("\nimport a_library_that_nobody_has\n", "ModuleNotFoundError", 2),
        ("open('/nowhere/at/all')\n", "FileNotFoundError", 1),
        ("def f():\n    f()\nf()\n", "RecursionError", 2),
        ("import headrace as hr\nhr.Pipeline()\n", "TypeError", 2),
        ("raise ValueError\n", "ValueError", 1),
    ],
    ids=lambda value: value if str(value).endswith("Error") else "",
)
def test_for_programs_it_is_an_object_with_its_place(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, error: str, line: int
) -> None:
    (project / "broken.py").write_text(text)
    for words in (["explain"], ["run", "--bootstrap", "127.0.0.1:1"]):
        assert exit_code(*words, "broken.py:job", "--output", "json") == 1
        found = json.loads(capsys.readouterr().err)
        assert (found["error"], found["where"]) == ("PipelineError", f"broken.py:{line}")
        assert found["what"].startswith(f"`broken.py` can't be loaded: {error}")
        assert found["why"].count("\n") < 40
        assert found["fix"]


def test_so_is_one_in_the_module_of_a_repair(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "broken.py").write_text(MODULE)
    words = ("dead-letters", "replay", "clicks.dead-letters", "--fix", "broken.py:repair", "--output", "json")
    assert exit_code(*words, "--bootstrap", "127.0.0.1:1") == 1
    assert json.loads(capsys.readouterr().err)["where"] == "broken.py:5"


def test_a_udf_at_module_level_is_sent_into_apply(project: Path) -> None:
    # In a process of its own: another test may have a Spark session in this one.
    (project / "scoring.py").write_text(UDF)
    command = [sys.executable, "-m", "headrace", "explain", "scoring:job", "--output", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    found = json.loads(ended.stderr)
    assert (found["error"], found["where"]) == ("PipelineError", "scoring.py:4")
    assert ".apply(...)" in found["fix"]


@pytest.mark.parametrize(
    "words",
    [
        ["run", "job:job", "--batch-interval", "nope"],
        ["run", "job:job", "--retry-for", "5"],
        ["run", "job:job", "--latency-target", "0s"],
        ["tables", "vacuum", "lake/clicks", "--older-than", "soon"],
    ],
    ids=lambda words: words[-2],
)
def test_a_span_that_can_not_be_read_is_told_with_its_option(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*words) == 2
    assert words[-2] in capsys.readouterr().err


def test_importing_the_command_loads_no_spark() -> None:
    code = "import sys, headrace.cli.main; print(sorted({'pyspark', 'pandas', 'py4j', 'numpy'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
