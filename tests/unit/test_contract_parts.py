"""The parts of contracts that need neither a registry nor a broker."""

from __future__ import annotations

import base64
import doctest
import importlib
import json
import pkgutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

import headrace.contracts
from headrace.contracts import Reference, RegistryClient, RegistryLogin, Schema, SchemaType, resolve_references
from headrace.contracts.breaks import Compatibility
from headrace.contracts.files import parse_reference, read_schema_file
from headrace.contracts.proto_schemas import canonical_proto, parse_proto, serialized_proto
from headrace.contracts.proto_text import proto_text, without_layout
from headrace.contracts.records import (
    Version,
    clear_subject_record,
    config_record,
    delete_subject_record,
    highest_id_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from headrace.contracts.serializers import confluent_client
from headrace.contracts.state import RegistryState
from headrace.errors import InvalidContractError, RegistryRefusedError, RegistryUnavailableError

MODULES = [f"headrace.contracts.{found.name}" for found in pkgutil.iter_modules(headrace.contracts.__path__)]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("service")])
def test_the_examples_in_the_docstrings_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_REGISTRY", "")  # the examples set it, and it must not stay
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# -- state


def version(subject: str, number: int, id: int, text: str = '"int"', *references: Reference) -> Version:
    return Version(subject, number, Schema(id, SchemaType.AVRO, text, references))


def test_the_state_is_what_the_log_says() -> None:
    state = RegistryState()
    for record in (
        schema_record(version("a", 1, 1)),
        schema_record(version("a", 2, 2, '"long"')),
        schema_record(version("b", 1, 1)),
        schema_record(version("c", 1, 3, '"A"', Reference("A", "a", 1))),
        config_record("a", {"compatibilityLevel": "FULL"}),
        mode_record(None, "READONLY"),
    ):
        state.apply(*record)
    assert state.subjects() == ["a", "b", "c"]
    assert [each.version for each in state.versions("a")] == [1, 2]
    assert [each.subject for each in state.versions_of_id(1)] == ["a", "b"]
    assert [each.subject for each in state.referrers("a", 1)] == ["c"]
    assert state.config("a") == {"subject": "a", "compatibilityLevel": "FULL"}
    assert state.mode(None) == "READONLY"
    assert state.highest_id == 3
    state.apply(*delete_subject_record("a", 1))
    assert [each.version for each in state.versions("a")] == [2]
    assert [each.version for each in state.versions("a", deleted=True)] == [1, 2]
    assert state.schema(1) is not None
    state.apply(*schema_tombstone("a", 1))
    state.apply(*schema_tombstone("b", 1))
    assert state.schema(1) is None
    state.apply(*schema_record(version("c", 1, 3).marked_deleted()))
    assert state.subjects() == ["a"]
    assert state.referrers("a", 1, deleted=True) == []
    state.apply(*clear_subject_record(None))
    assert state.subjects(deleted=True) == ["a"]
    state.apply(*config_record("a", None))
    state.apply(*mode_record(None, None))
    assert (state.config("a"), state.mode(None)) == (None, None)


def test_the_highest_id_survives_its_schema() -> None:
    state = RegistryState()
    state.apply(*schema_record(version("a", 1, 9)))
    state.apply(*schema_tombstone("a", 1))
    assert state.highest_id == 9
    compacted = RegistryState()  # the schema and its tombstone are gone from the log
    compacted.apply(*highest_id_record(9))
    assert compacted.highest_id == 9


def test_references_that_go_round_in_a_circle_or_mean_two_things_are_refused() -> None:
    known = {
        "a": Schema(1, SchemaType.AVRO, "", (Reference("B", "b", 1),)),
        "b": Schema(2, SchemaType.AVRO, "", (Reference("A", "a", 1),)),
    }
    with pytest.raises(InvalidContractError, match="A -> B -> A"):
        resolve_references([Reference("A", "a", 1)], lambda subject, _: known[subject])
    plain = Schema(3, SchemaType.AVRO, "")
    with pytest.raises(InvalidContractError, match="two schemas"):
        resolve_references([Reference("A", "a", 1), Reference("A", "a", 2)], lambda *_: plain)


def test_modes_say_what_is_compared() -> None:
    assert [each.value for each in Compatibility if each.backward and each.forward] == ["FULL", "FULL_TRANSITIVE"]
    none = Compatibility.NONE
    assert (none.backward, none.forward, none.transitive) == (False, False, False)


# -- protobuf

PROTO = """
syntax = "proto3";
package shop.v1; // the first
import "google/protobuf/timestamp.proto";
import "money.proto";
option java_package = "com.shop";
/* A card */
message Card {
  string id = 1 [deprecated = true, json_name = "cardId"];
  google.protobuf.Timestamp at = 2;
  map<string, Line> lines = 3;
  oneof how { int32 a = 4; string b = 5; }
  optional int32 o = 6;
  repeated Status st = 7;
  shop.Money limit = 8;
  reserved 10 to 12, 15, 100 to max;
  reserved "x", "y";
  message Line { int64 n = 1; }
  enum Status { option allow_alias = true; UNKNOWN = 0; OK = 1; FINE = 1; reserved 5; }
}
service Cards { rpc Get (Card) returns (stream Card); }
"""
MONEY = ("money.proto", 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }')
PROTO2 = """
syntax = "proto2";
message A {
  required int32 a = 1 [default = 5];
  optional string s = 2 [default = "x\\"y\\n"];
  optional bytes b = 3 [default = "\\001a"];
  repeated group G = 4 { optional int32 z = 1; }
  optional E e = 5 [default = Y];
  extensions 100 to max;
  enum E { X = 0; Y = 1; }
}
extend A { optional int32 more = 100; }
"""


@pytest.mark.parametrize(("text", "references"), [(PROTO, (MONEY,)), (PROTO2, ())])
def test_the_text_of_a_descriptor_means_the_same(text: str, references: tuple[tuple[str, str], ...]) -> None:
    parsed = parse_proto(text, references)
    written = proto_text(parsed.file)
    assert parse_proto(written, references).file == parsed.file
    # As a descriptor in base64, which is how some clients send it.
    serialized = serialized_proto(text, references)
    assert canonical_proto(serialized, references, normalize=False) == written
    assert canonical_proto(text, references, normalize=True) == written
    assert canonical_proto(text, references, normalize=False) == text.strip() + "\n"


def test_layout_and_comments_do_not_count() -> None:
    assert without_layout(PROTO) == without_layout(PROTO.replace("/* A card */", "// no card").replace("  ", "\t\n"))
    assert without_layout('message A { string a = 1 [default = "// no comment"]; }').count("no comment") == 1


@pytest.mark.parametrize(
    ("text", "references", "reason"),
    [
        ('syntax = "proto3"; message A { B b = 1; }', (), '"B" is not defined'),
        ("hello", (), "Expected top-level statement"),
        ('syntax = "proto3"; message A { string a = 1; string b = 1; }', (), "already been used"),
        ('syntax = "proto3"; import "nothing.proto";', (), "nothing.proto"),
        ('syntax = "proto3";', (("../outside.proto", ""),), "path of an import"),
        ('syntax = "proto3";', (("/etc/outside.proto", ""),), "path of an import"),
        (base64.b64encode(b"\x0a\x05").decode(), (), "Expected top-level statement"),
    ],
)
def test_what_is_no_protobuf_is_refused(text: str, references: tuple[tuple[str, str], ...], reason: str) -> None:
    with pytest.raises(InvalidContractError) as refused:
        parse_proto(text, references)
    assert reason in str(refused.value)
    assert "headrace-proto" not in str(refused.value)


def test_a_reference_that_is_called_like_a_module_is_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    code = f"open({str(trap)!r}, 'w')"
    for name in ("grpc_tools/__init__.py", "grpc_tools/protoc.py", "sitecustomize.py"):
        parse_proto('syntax = "proto3"; message A {}', ((name, code),))
    assert not trap.exists()


# -- files and clients


def test_files_say_their_type_by_their_name(tmp_path: Path) -> None:
    for name, kind in (("a.avsc", "AVRO"), ("a.json", "JSON"), ("a.proto", "PROTOBUF")):
        (tmp_path / name).write_text("{}", encoding="utf-8")
        assert read_schema_file(tmp_path / name).type == kind
    (tmp_path / "a.txt").write_text("{}", encoding="utf-8")
    assert read_schema_file(tmp_path / "a.txt", "json").type is SchemaType.JSON
    with pytest.raises(InvalidContractError, match="--type"):
        read_schema_file(tmp_path / "a.txt")
    with pytest.raises(InvalidContractError, match="can't be read"):
        read_schema_file(tmp_path / "missing.avsc")
    with pytest.raises(InvalidContractError, match="not a type of schema"):
        read_schema_file(tmp_path / "a.txt", "xml")


@pytest.mark.parametrize("text", ["money", "=a:1", "money=a", "money=a:x", "money=:1"])
def test_a_reference_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidContractError, match="NAME=SUBJECT:VERSION"):
        parse_reference(text)


def test_secrets_are_never_shown() -> None:
    url = "https://ada:s3cret@registry.invalid:1"
    client = RegistryClient(url, RegistryLogin(password="s3cret"), timeout=1)
    with pytest.raises(RegistryUnavailableError) as refused:
        client.subjects()
    assert "s3cret" not in repr(client) + str(refused.value) + repr(RegistryLogin("ada", "s3cret")) + client.url
    assert "s3cret" not in str(confluent_client(url)._conf["url"])
    with pytest.raises(RegistryUnavailableError) as refused:
        RegistryClient("ftp://ada:s3cret@host")
    assert "s3cret" not in str(refused.value)


class _Moody(BaseHTTPRequestHandler):
    """Answers with what it was given to answer, and remembers what it was asked."""

    answers: ClassVar[list[tuple[int, bytes]]] = []
    asked: ClassVar[list[tuple[str, str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.command, self.path, self.headers.get("Authorization")))
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def moody() -> Iterator[str]:
    """The other end of the wire, where it is the wire that is tested: the client's retries and its login."""
    _Moody.answers, _Moody.asked = [], []
    with HTTPServer(("127.0.0.1", 0), _Moody) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_client_asks_again_when_the_registry_is_busy_and_once_for_an_id(moody: str) -> None:
    schema = json.dumps({"schema": '"int"'}).encode()
    _Moody.answers += [(503, b""), (503, b"{}"), (200, schema)]
    client = RegistryClient(moody.replace("//", "//ada:p%40ss@") + "/base/")
    assert client.schema_by_id(7).text == client.schema_by_id(7).text == '"int"'
    login = "Basic " + base64.b64encode(b"ada:p@ss").decode()
    assert _Moody.asked == [("GET", "/base/schemas/ids/7", login)] * 3


def test_the_client_tries_the_next_url(moody: str) -> None:
    _Moody.answers += [(200, b'["a"]')]
    assert RegistryClient(f"http://127.0.0.1:1,{moody}").subjects() == ["a"]


def test_what_is_no_registry_is_said_to_be_none(moody: str) -> None:
    _Moody.answers += [(200, b"<html>")]
    with pytest.raises(RegistryRefusedError, match="no schema registry"):
        RegistryClient(moody).subjects()
