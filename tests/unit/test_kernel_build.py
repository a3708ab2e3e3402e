"""The kernel is compiled by PySpark's own Scala compiler, and only when something changed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.errors import KernelBuildError
from headrace.jvm.jars import resolve
from headrace.kernel.build import kernel_jar

SCALA = """
package headrace.trial
import org.apache.spark.sql.SparkSession
object Answer { def version(spark: SparkSession): String = spark.version }
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small kernel, and a cache that has the connector's jars but no kernel."""
    connector = resolve("spark-kafka")[0].parent
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "jars").mkdir(parents=True)
    (tmp_path / "cache" / "jars" / connector.name).symlink_to(connector)
    (tmp_path / "scala" / "trial").mkdir(parents=True)
    (tmp_path / "scala" / "trial" / "Answer.scala").write_text(SCALA)
    service = tmp_path / "resources" / "META-INF" / "services" / "headrace.Trial"
    service.parent.mkdir(parents=True)
    service.write_text("headrace.trial.Answer\n")
    return tmp_path


def test_sources_and_resources_become_one_jar_once(kernel: Path) -> None:
    messages: list[str] = []
    jar = kernel_jar(messages.append, kernel / "scala", kernel / "resources")
    names = zipfile.ZipFile(jar).namelist()
    assert "headrace/trial/Answer.class" in names
    assert "META-INF/services/headrace.Trial" in names
    assert messages == ["kernel: compiling 1 Scala file", "kernel: compiled"]

    assert kernel_jar(messages.append, kernel / "scala", kernel / "resources") == jar
    assert len(messages) == 2, "it was compiled again"

    (kernel / "resources" / "META-INF" / "services" / "headrace.Trial").write_text("another\n")
    assert kernel_jar(messages.append, kernel / "scala", kernel / "resources") != jar


def test_a_compile_error_carries_what_the_compiler_says(kernel: Path) -> None:
    (kernel / "scala" / "trial" / "Answer.scala").write_text("object Answer { val x: Int = missing }")
    with pytest.raises(KernelBuildError) as caught:
        kernel_jar(None, kernel / "scala", kernel / "resources")
    assert caught.value.what == "the kernel does not compile: 1 error."
    assert "trial/Answer.scala:1: error: not found: value missing" in str(caught.value.why)
    assert not list((kernel / "cache" / "kernel").glob("*.jar"))


def test_two_processes_at_once_both_get_the_kernel(kernel: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headrace.kernel.build import kernel_jar\n"
        "print(kernel_jar(None, Path(sys.argv[1]) / 'scala', Path(sys.argv[1]) / 'resources'))"
    )
    command = [sys.executable, "-c", code, str(kernel)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {process.communicate()[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(paths) == 1
    assert zipfile.is_zipfile(paths.pop())


def test_no_sources_is_an_error(kernel: Path) -> None:
    with pytest.raises(KernelBuildError, match="no Scala sources"):
        kernel_jar(None, kernel / "nowhere", kernel / "resources")
