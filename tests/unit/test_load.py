"""Finding the pipeline that the command line names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.load import load_pipeline
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


def test_what_the_users_module_itself_lacks_is_not_our_error(project: Path) -> None:
    write(project / "jobs_g.py", "import a_library_that_nobody_has\n")
    with pytest.raises(ModuleNotFoundError, match="a_library_that_nobody_has"):
        load_pipeline("jobs_g:fraud")


def test_an_error_in_the_users_module_is_shown_as_it_is(project: Path) -> None:
    write(project / "jobs_h.py", "1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_pipeline("jobs_h:fraud")
