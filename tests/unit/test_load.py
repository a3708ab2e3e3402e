"""Finding the pipeline that the command line names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from headrace.engine.load import load_function, load_pipeline
from headrace.errors import PipelineNotFoundError

ONE = 'import headrace as hr\nfraud = hr.Pipeline("card-fraud")\nfraud.read("a", schema="k STRING").write("b")\n'
TWO = ONE + 'clicks = hr.Pipeline("clicks")\nnumber = 5\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to run from; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_module_of_the_folder(project: Path) -> None:
    write(project / "jobs_a" / "fraud.py", ONE)
    assert load_pipeline("jobs_a.fraud:fraud").name == "card-fraud"


def test_the_only_pipeline_needs_no_name(project: Path) -> None:
    write(project / "jobs_b.py", ONE)
    assert load_pipeline("jobs_b").name == "card-fraud"


def test_a_file_by_its_path(project: Path) -> None:
    write(project / "deep" / "er" / "job-file.py", TWO)
    assert load_pipeline("deep/er/job-file.py:clicks").name == "clicks"


def test_a_name_that_is_not_there_gets_the_nearest(project: Path) -> None:
    write(project / "jobs_c.py", TWO)
    with pytest.raises(PipelineNotFoundError, match="no pipeline `fruad`") as caught:
        load_pipeline("jobs_c:fruad")
    assert caught.value.fix == "jobs_c:fraud"
    assert caught.value.why == "Pipelines there: fraud, clicks"


def test_several_pipelines_need_a_name(project: Path) -> None:
    write(project / "jobs_d.py", TWO)
    with pytest.raises(PipelineNotFoundError, match="several pipelines") as caught:
        load_pipeline("jobs_d")
    assert "fraud, clicks" in str(caught.value.why)


def test_something_that_is_no_pipeline(project: Path) -> None:
    write(project / "jobs_e.py", TWO)
    with pytest.raises(PipelineNotFoundError, match="no pipeline `number`"):
        load_pipeline("jobs_e:number")


def test_a_module_without_pipelines(project: Path) -> None:
    write(project / "jobs_f.py", "x = 1\n")
    with pytest.raises(PipelineNotFoundError, match="module `jobs_f` has no pipeline") as caught:
        load_pipeline("jobs_f:fraud")
    assert 'fraud = hr.Pipeline("fraud")' in str(caught.value.fix)


def test_a_module_that_is_not_there(project: Path) -> None:
    with pytest.raises(PipelineNotFoundError, match="no module `nowhere`") as caught:
        load_pipeline("nowhere.fraud:fraud")
    assert "package.module:pipeline" in str(caught.value.fix)


def test_a_file_that_is_not_there(project: Path) -> None:
    with pytest.raises(PipelineNotFoundError, match=r"no file jobs/fraud\.py"):
        load_pipeline("jobs/fraud.py:fraud")


@pytest.mark.parametrize("target", ["", ":", ":fraud", ".jobs:fraud", "..jobs:fraud", "."])
def test_a_target_without_a_module(project: Path, target: str) -> None:
    with pytest.raises(PipelineNotFoundError, match="names no module") as caught:
        load_pipeline(target)
    assert "package.module:pipeline" in str(caught.value.fix)


def test_a_folder_that_is_called_like_a_file(project: Path) -> None:
    (project / "jobs.py").mkdir()
    with pytest.raises(PipelineNotFoundError, match=r"no file jobs\.py"):
        load_pipeline("jobs.py:fraud")


def test_a_file_finds_what_lies_beside_it(project: Path) -> None:
    write(project / "deep" / "schemas_of_the_job.py", 'S = "k STRING"\n')
    write(project / "deep" / "job.py", "from schemas_of_the_job import S\n" + ONE.replace('"k STRING"', "S"))
    assert load_pipeline("deep/job.py:fraud").name == "card-fraud"


def test_what_lies_beside_a_file_hides_nothing(project: Path) -> None:
    write(project / "deep" / "colorsys.py", "raise AssertionError('the wrong one')\n")
    write(project / "deep" / "job.py", "import colorsys\nassert colorsys.rgb_to_hsv\n" + ONE)
    assert load_pipeline("deep/job.py").name == "card-fraud"


def test_a_file_takes_the_name_of_no_module(project: Path) -> None:
    write(project / "deep" / "json.py", ONE)
    write(project / "other" / "json.py", TWO)
    first, second = load_pipeline("deep/json.py"), load_pipeline("other/json.py:clicks")
    assert (first.name, second.name) == ("card-fraud", "clicks")
    assert sys.modules["json"] is json


def test_a_file_that_fails_leaves_nothing_behind(project: Path) -> None:
    before = set(sys.modules)
    write(project / "deep" / "job.py", "1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_pipeline("deep/job.py")
    assert not [name for name in set(sys.modules) - before if "job" in name]


def test_functions_of_a_file_and_of_what_lies_beside_it_travel_whole(project: Path) -> None:
    """As to a worker, which finds neither of the two."""
    write(project / "deep" / "helpers_of_the_job.py", "def twice(n):\n    return 2 * n\n")
    write(
        project / "deep" / "job.py",
        "from helpers_of_the_job import twice\n\ndef quadruple(n):\n    return twice(twice(n))\n",
    )
    sent = cloudpickle.dumps(load_function("deep/job.py:quadruple"))  # type: ignore[no-untyped-call]
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(3))"
    worker = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=False)
    assert worker.stdout.strip() == b"12", worker.stderr.decode()


def test_what_the_users_module_itself_lacks_is_not_our_error(project: Path) -> None:
    write(project / "jobs_g.py", "import a_library_that_nobody_has\n")
    with pytest.raises(ModuleNotFoundError, match="a_library_that_nobody_has"):
        load_pipeline("jobs_g:fraud")


def test_an_error_in_the_users_module_is_shown_as_it_is(project: Path) -> None:
    write(project / "jobs_h.py", "1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_pipeline("jobs_h:fraud")
