"""`headrace registry` and `headrace contracts` as a user runs them, each in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts.embedded import EmbeddedRegistry, running_registry
from headrace.jvm.process import command_line
from tests.system.processes import Headrace, headrace
from tests.system.registry_calls import avro


class Project:
    """A project with its own state, and the commands in it; without a URL they find the project's own registry."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.url = url
        self.state = folder / "state"
        self._count = 0

    def run(self, *words: str, **environment: str) -> Headrace:
        self._count += 1
        place = self.folder / f"run-{self._count}"
        return headrace(place, *words, HEADRACE_STATE=str(self.state), HEADRACE_REGISTRY=self.url, **environment)

    def told(self, *words: str) -> list[Any]:
        """What a command says as JSON, if it succeeds."""
        done = self.run(*words, "--output", "json")
        assert done.process.returncode == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)


@pytest.fixture
def project(registry: EmbeddedRegistry, tmp_path: Path) -> Project:
    return Project(tmp_path, registry.url)


def test_the_registry_comes_and_goes_with_the_broker(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert project.run("registry", "status").process.returncode == 3
    no_broker = project.run("registry", "start")
    assert no_broker.process.returncode == 1
    assert "headrace broker start" in no_broker.err
    missing = project.run("contracts", "list")
    assert "headrace registry start" in missing.err
    (started,) = project.told("broker", "start")
    running = running_registry(project.state / "registry")
    assert running is not None
    assert started["registry"] == running.url
    assert project.told("registry", "status")[0]["url"] == running.url
    assert project.told("registry", "start")[0]["pid"] == running.pid  # it runs already
    project.told("registry", "stop")
    assert command_line(running.pid) == ""
    assert project.run("registry", "status").process.returncode == 3
    (again,) = project.told("registry", "start")
    project.told("broker", "stop")
    assert command_line(again["pid"]) == ""


def test_register_list_show_and_diff(project: Project) -> None:
    file = project.file("cards-value.avsc", avro("id"))
    (first,) = project.told("contracts", "register", "cards-value", file)
    assert project.told("contracts", "register", "cards-value", file) == [first]
    newer = project.file("newer.avsc", avro("id", "n=0"))
    (second,) = project.told("contracts", "register", "cards-value", newer)
    assert (first["version"], second["version"]) == (1, 2)
    listed = project.told("contracts", "list")
    assert {
        "subject": "cards-value",
        "version": 2,
        "id": second["id"],
        "type": "AVRO",
        "compatibility": "BACKWARD",
    } in listed
    (shown,) = project.told("contracts", "show", "cards-value", "--version", "1")
    assert json.loads(shown["schema"]) == json.loads(avro("id"))
    assert '"name": "id"' in project.run("contracts", "show", "cards-value").out
    (diff,) = project.told("contracts", "diff", "cards-value", "1", "2")
    assert diff["changed"]
    assert (diff["breaks_backward"], diff["breaks_forward"]) == ([], [])
    other = project.file("other.avsc", avro("id", "amount"))
    text = project.run("contracts", "diff", "cards-value", "latest", other).out
    assert "BACKWARD, new readers on old records: breaks\n  amount: the reader has no default" in text
    assert "FORWARD, old readers on new records: nothing breaks" in text


def test_check_tells_the_field_and_the_rule_and_fails(project: Project) -> None:
    project.told("contracts", "register", "orders-value", project.file("orders-value.avsc", avro("id")))
    good = project.file("orders-value.avsc", avro("id", "n=0"))
    assert project.told("contracts", "check", good)[0]["compatible"] is True
    breaking = project.file("breaking.avsc", avro("id", "amount"))
    done = project.run("contracts", "check", good, f"orders-value={breaking}", f"brand-new={good}")
    assert done.process.returncode == 4
    assert done.out.splitlines() == [
        "ok      orders-value: compatible (BACKWARD)",
        f"BREAKS  orders-value: {breaking} is not compatible (BACKWARD)",
        "        amount: the reader has no default for it, and the writer does not write it "
        "(READER_FIELD_MISSING_DEFAULT_VALUE)",
        "        compared with version 1",
        "ok      brand-new: a new subject",
    ]
    project.told("contracts", "set-compatibility", "forward", "orders-value")
    assert project.told("contracts", "check", f"orders-value={breaking}")[0]["mode"] == "FORWARD"
    broken = project.file("broken.avsc", "{")
    for subject in ("orders-value", "unheard-of"):
        done = project.run("contracts", "check", f"{subject}={broken}")
        assert done.process.returncode == 4
        assert "no valid Avro" in done.out
    absent = project.run("contracts", "check", "nothing.avsc", "--output", "json")
    assert absent.process.returncode == 1
    assert json.loads(absent.err)["error"] == "InvalidContractError"


def test_protobuf_and_json_files_with_references(project: Project) -> None:
    money = project.file("money.proto", 'syntax = "proto3"; message Money { int64 cents = 1; }')
    order = project.file("order.proto", 'syntax = "proto3"; import "money.proto"; message Order { Money price = 1; }')
    project.told("contracts", "register", "money", money)
    words = ("register", "order-proto", order, "--reference", "money.proto=money:1")
    assert project.told("contracts", *words)[0]["version"] == 1
    changed = project.file("order.proto", 'syntax = "proto3"; message Order { string price = 1; }')
    done = project.run("contracts", "check", f"order-proto={changed}")
    assert done.process.returncode == 4
    assert "Order.price: the reader expects a scalar, the writer writes a message (FIELD_KIND_CHANGED)" in done.out
    clicks = project.file("clicks.json", '{"type": "object", "properties": {"user": {"type": "string"}}}')
    assert project.told("contracts", "register", "clicks-value", clicks)[0]["version"] == 1
    assert project.told("contracts", "show", "clicks-value")[0]["type"] == "JSON"


def test_errors_say_what_to_do(project: Project) -> None:
    done = project.run("contracts", "show", "nothing-value")
    assert done.process.returncode == 1
    assert "ContractNotFoundError" in done.err
    assert "there is no subject `nothing-value`" in done.err
    done = project.run("contracts", "set-compatibility", "sideways")
    assert "FULL_TRANSITIVE" in done.err
    done = project.run("contracts", "list", "--registry", "http://ada:s3cret@127.0.0.1:1")
    assert done.process.returncode == 1
    assert "no schema registry answers at http://127.0.0.1:1" in done.err
    assert "s3cret" not in done.err
