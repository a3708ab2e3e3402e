"""Names of class archives: another Java or another jar is another archive."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.jvm.class_archive import archive_of, forget_old, using
from headrace.jvm.java import Java


@pytest.fixture
def java(tmp_path: Path) -> Java:
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"')
    return Java(tmp_path / "jdk" / "bin" / "java", tmp_path / "jdk", 17)


def test_the_name_changes_with_java_and_with_every_jar(java: Java, tmp_path: Path) -> None:
    jar = tmp_path / "kernel.jar"
    jar.write_bytes(b"one")
    os.utime(jar, (1, 1))
    names = [archive_of("session", java, [jar]), archive_of("broker", java, [jar]), archive_of("session", java, [])]
    os.utime(jar, (2, 2))
    names.append(archive_of("session", java, [jar]))
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    names.append(archive_of("session", java, [jar]))
    names.append(archive_of("session", replace(java, executable=tmp_path / "other"), [jar]))
    assert len(set(names)) == len(names)
    assert archive_of("session", java, [jar]) == names[4]


def test_only_an_archive_that_is_there_is_used(tmp_path: Path) -> None:
    archive = tmp_path / "session.jsa"
    assert using(archive) == []
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in using(archive)


def test_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    (tmp_path / "classes").mkdir()
    broker = tmp_path / "classes" / "broker-1.jsa"
    broker.touch()
    os.utime(broker, (1, 1))
    for age in range(9):
        (tmp_path / "classes" / f"session-{age}.jsa").touch()
        os.utime(tmp_path / "classes" / f"session-{age}.jsa", (100 - age, 100 - age))
    forget_old()
    kept = ["broker-1.jsa", *(f"session-{age}.jsa" for age in range(3))]
    assert sorted(path.name for path in (tmp_path / "classes").iterdir()) == kept, "one that is old may be in use"
