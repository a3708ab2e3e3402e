"""Jars are fetched once, by the real Ivy, from a repository in a folder: no network is needed here."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.errors import JarsNotFoundError
from headrace.jvm import jars
from headrace.jvm.ivy import Transcript
from headrace.jvm.jars import coordinates, resolve, spark_jars_dir


@pytest.fixture
def coordinates_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set `demo` whose artifact `app` depends on `library`, both in a local Ivy repository."""
    home = tmp_path / "ivy home"
    publish(home, "library", "1.0")
    publish(home, "app", "2.0", depends_on=("library", "1.0"))
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache (of a user)"))
    # A port where nobody answers stands for a machine without network.
    options = f'"-Divy.default.ivy.user.dir={home}" -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1'
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    file = tmp_path / "coordinates.toml"
    file.write_text(
        '[demo]\ntransitive = ["org.example:app:2.0"]\nexact = []\n'
        '[alone]\ntransitive = []\nexact = ["org.example:app:2.0"]\n'
        '[absent]\ntransitive = []\nexact = ["org.example:app:2.0", "org.example:nothing:9.9"]\n'
    )
    return file


def publish(home: Path, name: str, version: str, depends_on: tuple[str, str] | None = None) -> None:
    folder = home / "local" / "org.example" / name / version
    (folder / "ivys").mkdir(parents=True)
    (folder / "jars").mkdir()
    needed = ""
    if depends_on:
        needed = f'<dependency org="org.example" name="{depends_on[0]}" rev="{depends_on[1]}" conf="default->default"/>'
    (folder / "ivys" / "ivy.xml").write_text(
        f'<ivy-module version="2.0"><info organisation="org.example" module="{name}" revision="{version}"/>'
        f'<configurations><conf name="default"/></configurations><publications><artifact name="{name}"/></publications>'
        f"<dependencies>{needed}</dependencies></ivy-module>"
    )
    with zipfile.ZipFile(folder / "jars" / f"{name}.jar", "w") as jar:
        jar.writestr("name.txt", name)


def test_a_set_is_fetched_with_what_it_depends_on(coordinates_file: Path) -> None:
    messages: list[str] = []
    found = resolve("demo", messages.append, coordinates_file)
    assert [jar.name for jar in found] == ["app-2.0.jar", "library-1.0.jar"]
    assert all(zipfile.is_zipfile(jar) for jar in found)
    assert "demo: found 2 jars" in messages
    assert messages[-1] == "demo: 2 jars ready"


def test_exact_coordinates_come_alone(coordinates_file: Path) -> None:
    assert [jar.name for jar in resolve("alone", None, coordinates_file)] == ["app-2.0.jar"]


def test_the_second_time_nothing_is_started(coordinates_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve("demo", None, coordinates_file)

    def unexpected() -> None:
        raise AssertionError("Java was looked for")

    monkeypatch.setattr(jars, "find_java", unexpected)
    messages: list[str] = []
    assert resolve("demo", messages.append, coordinates_file) == first
    assert messages == []


def test_a_cache_that_lost_a_jar_is_made_whole(coordinates_file: Path) -> None:
    found = resolve("demo", None, coordinates_file)
    found[1].unlink()
    assert resolve("demo", None, coordinates_file) == found
    assert found[1].is_file()


def test_two_processes_at_once_both_get_the_jars(coordinates_file: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headrace.jvm.jars import resolve\n"
        "print(*(jar.name for jar in resolve('demo', None, Path(sys.argv[1])) if jar.is_file()))"
    )
    command = [sys.executable, "-c", code, str(coordinates_file)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in both] == ["app-2.0.jar library-1.0.jar"] * 2
    assert [process.returncode for process in both] == [0, 0]


def test_what_can_not_be_fetched_is_named_with_the_way_out(coordinates_file: Path) -> None:
    with pytest.raises(JarsNotFoundError) as caught:
        resolve("absent", None, coordinates_file)
    error = caught.value
    assert "org.example:nothing:9.9" in error.what
    assert "org.example:app:2.0" not in error.what
    assert "ConnectException" in str(error.why)
    assert "HEADRACE_CACHE" in str(error.fix)
    log = Path(str(error.why).rsplit("said: ", 1)[1])
    assert "UNRESOLVED DEPENDENCIES" in log.read_text()
    # Nothing half done is left to be taken for a result.
    assert not [path for path in log.parent.iterdir() if path.is_dir() and path.name != "ivy"]


def test_an_unknown_set_lists_the_known_ones(coordinates_file: Path) -> None:
    with pytest.raises(JarsNotFoundError, match="absent, alone, demo"):
        resolve("kafka", None, coordinates_file)


def test_downloads_are_told_to_people() -> None:
    transcript = Transcript("demo")
    transcript.read("\tfound org.slf4j#slf4j-api;1.7.36 in public")
    said = transcript.read("downloading https://repository/org/slf4j/slf4j-api-1.7.36.jar ...")
    assert said == "demo: downloading 1 of 1, slf4j-api-1.7.36.jar"
    assert transcript.read("\t:: org.slf4j#slf4j-api;1.7.36!slf4j-api.jar") is None
    assert transcript.unresolved == ["org.slf4j:slf4j-api:1.7.36"]


def test_the_binding_of_the_brokers_log_is_fetched_alone() -> None:
    alone = [str(c) for c in coordinates("kafka-broker") if not c.transitive]
    assert [text.split(":")[1] for text in alone] == ["log4j-slf4j-impl", "log4j-api", "log4j-core"]
    assert len({text.split(":")[2] for text in alone}) == 1, "of one version"


def test_pyspark_is_found_without_being_imported() -> None:
    code = (
        "import sys; from headrace.jvm.jars import spark_jars_dir; print(spark_jars_dir());"
        "sys.exit(any(name.split('.')[0] == 'pyspark' for name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(spark_jars_dir())
    assert list(spark_jars_dir().glob("ivy-*.jar"))
