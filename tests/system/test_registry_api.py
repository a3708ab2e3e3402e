"""Every endpoint of the registry and every error code, over HTTP, on a real broker."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headrace.contracts.embedded import EmbeddedRegistry
from tests.system.registry_calls import CONTENT_TYPE, Answer, avro, call, subject


class Api:
    """The REST API of one registry."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Answer:
        return call(self.url, "GET", path)

    def post(self, path: str, body: Any, **more: Any) -> Answer:
        return call(self.url, "POST", path, body, **more)

    def put(self, path: str, body: Any) -> Answer:
        return call(self.url, "PUT", path, body)

    def delete(self, path: str) -> Answer:
        return call(self.url, "DELETE", path)

    def register(self, name: str, text: str, **more: Any) -> int:
        answer = self.post(f"/subjects/{name}/versions", {"schema": text, **more})
        assert answer.status == 200, answer
        return int(answer.body["id"])


@pytest.fixture
def api(registry: EmbeddedRegistry) -> Api:
    return Api(registry.url)


def test_register_and_look_up_in_every_way(api: Api) -> None:
    name = subject()
    text = avro("id")
    answer = api.post(f"/subjects/{name}/versions", {"schema": json.dumps(json.loads(text), indent=2)})
    assert answer.kind == CONTENT_TYPE
    id = answer.body["id"]
    assert answer.body["version"] == 1
    assert api.get(f"/schemas/ids/{id}").body["schema"] == text
    assert "schemaType" not in api.get(f"/schemas/ids/{id}").body
    assert api.get(f"/schemas/ids/{id}?subject={name}&fetchMaxId=true").body["maxId"] >= id
    assert api.get(f"/schemas/ids/{id}/schema").body == json.loads(text)
    assert {"subject": name, "version": 1} in api.get(f"/schemas/ids/{id}/versions").body
    assert name in api.get(f"/schemas/ids/{id}/subjects").body
    guid = api.get(f"/schemas/ids/{id}").body["guid"]
    assert api.get(f"/schemas/guids/{guid}").body["schema"] == text
    for version in ("1", "latest", "-1"):
        found = api.get(f"/subjects/{name}/versions/{version}").body
        assert (found["subject"], found["version"], found["id"], found["schema"]) == (name, 1, id, text)
    assert api.get(f"/subjects/{name}/versions/1/schema").body == json.loads(text)
    assert api.get(f"/subjects/{name}/versions").body == [1]
    assert name in api.get("/subjects").body
    assert api.get(f"/subjects?subjectPrefix={name}").body == [name]
    assert [each["subject"] for each in api.get(f"/schemas?subjectPrefix={name}").body] == [name]
    assert api.post(f"/subjects/{name}", {"schema": text}).body["version"] == 1
    assert sorted(api.get("/schemas/types").body) == ["AVRO", "JSON", "PROTOBUF"]
    assert api.get("/contexts").body == ["."]
    assert api.get("/").body == {}


def test_the_same_schema_has_one_id_and_is_registered_once(api: Api) -> None:
    one, other = subject(), subject()
    first = api.register(one, avro("id"))
    assert api.register(one, avro("id")) == first
    assert api.register(other, avro("id")) == first
    assert api.get(f"/subjects/{one}/versions").body == [1]
    second = api.register(one, avro("id", "n=0"))
    assert second != first
    assert api.get(f"/subjects/{one}/versions").body == [1, 2]


def test_normalize_makes_one_of_two_that_mean_the_same(api: Api) -> None:
    name = subject()
    spaced = {"type": "record", "name": "shop.Card", "fields": []}
    apart = {"type": "record", "name": "Card", "namespace": "shop", "fields": []}
    first = api.post(f"/subjects/{name}/versions?normalize=true", {"schema": json.dumps(spaced)}).body["id"]
    assert api.post(f"/subjects/{name}?normalize=true", {"schema": json.dumps(apart)}).body["id"] == first
    assert api.post(f"/subjects/{name}", {"schema": json.dumps(spaced)}).code == 40403


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/schemas/ids/2000000000", 40403),
        ("GET", "/schemas/ids/x", 404),
        ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000", 40403),
        ("GET", "/subjects/nobody/versions", 40401),
        ("GET", "/subjects/nobody/versions/1", 40401),
        ("GET", "/subjects/nobody/versions/0", 42202),
        ("GET", "/subjects/nobody/versions/first", 42202),
        ("GET", "/subjects/nobody/versions/99999999999", 42202),
        ("DELETE", "/subjects/nobody", 40401),
        ("DELETE", "/subjects/nobody/versions/1", 40401),
        ("GET", "/subjects/nobody/versions/1/referencedby", 40401),
        ("GET", "/config/nobody", 40408),
        ("DELETE", "/config/nobody", 40401),
        ("GET", "/mode/nobody", 40409),
        ("DELETE", "/mode/nobody", 40401),
        ("GET", "/nothing", 404),
        ("DELETE", "/subjects", 405),
    ],
)
def test_what_is_not_there(api: Api, method: str, path: str, code: int) -> None:
    answer = call(api.url, method, path)
    assert answer.code == code
    assert answer.status == (code if code < 1000 else code // 100)
    assert answer.body["message"]
    assert answer.kind == CONTENT_TYPE


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"schema": "{"}, 42201),
        ({"schema": ""}, 42201),
        ({}, 42201),
        ({"schema": 5}, 42201),
        ({"schema": '"strin"'}, 42201),
        ({"schema": '"string"', "schemaType": "XML"}, 42201),
        ({"schema": '{"type": "strin"}', "schemaType": "JSON"}, 42201),
        ({"schema": "message A {", "schemaType": "PROTOBUF"}, 42201),
        ({"schema": '"string"', "references": [{"name": "a", "subject": "nobody", "version": 1}]}, 42201),
        ({"schema": '"string"', "references": [{"name": "a"}]}, 42201),
        ({"schema": '"string"', "version": 7}, 42201),
        ({"schema": '"string"', "id": 7}, 42205),
        ([], 422),
        (b"{", 400),
    ],
)
def test_what_can_not_be_registered(api: Api, body: Any, code: int) -> None:
    answer = api.post("/subjects/refused/versions", body)
    assert (answer.status, answer.code) == (code // 100 if code > 1000 else code, code)
    assert "refused" not in api.get("/subjects").body


def test_bodies_are_bounded_and_must_be_json(api: Api) -> None:
    assert api.post("/subjects/big/versions", b"[" + b" " * 9_000_000).status == 413
    large = json.dumps({"type": "enum", "name": "E", "symbols": ["A"], "doc": "x" * 2_000_000})
    assert api.post("/subjects/big/versions", {"schema": large}).code == 42209
    # A page in a browser can send text to any address, but not this type.
    assert api.post("/subjects/big/versions", b"{}", kind="text/plain").status == 415
    assert call(api.url, "GET", "/subjects", Host="evil.example").status == 400


def test_names_with_any_letters(api: Api) -> None:
    for name in ("a%2Fb", "a%20b%C3%A9", "a.b%3Ac%25"):
        api.register(f"odd-{name}", avro("id"))
        assert api.get(f"/subjects/odd-{name}/versions/1").status == 200
    assert {"odd-a/b", "odd-a bé", "odd-a.b:c%"} <= set(api.get("/subjects?subjectPrefix=odd").body)
    assert api.post("/subjects/a%00b/versions", {"schema": avro("id")}).code == 42208


def test_compatibility_is_kept_at_registration_and_can_be_asked_for(api: Api) -> None:
    name = subject()
    api.register(name, avro("id"))
    breaking = {"schema": avro("id", "amount")}
    refused = api.post(f"/subjects/{name}/versions", breaking)
    assert (refused.status, refused.code) == (409, 40901)
    assert "amount: the reader has no default for it" in refused.body["message"]
    path = f"/compatibility/subjects/{name}/versions"
    assert api.post(f"{path}/latest", breaking).body == {"is_compatible": False}
    told = api.post(f"{path}/1?verbose=true", breaking).body["messages"]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in told[0]
    assert told[1:] == ["{oldSchemaVersion: 1}", "{compatibility: 'BACKWARD'}"]
    assert api.post(f"{path}?verbose=true", {"schema": avro("id", "n=0")}).body == {
        "is_compatible": True,
        "messages": [],
    }
    assert api.post(f"{path}/7", breaking).code == 40402
    assert api.post(f"{path}/latest", {"schema": "{"}).code == 42201
    assert api.post(f"{path}/latest?verbose=true", {"schema": "{"}).body["is_compatible"] is False
    assert api.post("/compatibility/subjects/nobody/versions/latest", breaking).body == {"is_compatible": True}


@pytest.mark.parametrize(
    ("mode", "allowed"),
    [
        # old: id; new: one with a field without default, one with a default, one without id
        ("BACKWARD", {"default", "less"}),
        ("FORWARD", {"more", "default"}),
        ("FULL", {"default"}),
        ("NONE", {"more", "default", "less", "other"}),
    ],
)
def test_modes(api: Api, mode: str, allowed: set[str]) -> None:
    changes = {
        "more": avro("id", "amount"),
        "default": avro("id", "n=0"),
        "less": avro(),
        "other": json.dumps({"type": "enum", "name": "E", "symbols": ["A"]}),
    }
    for change, text in changes.items():
        name = subject(mode.lower())
        api.register(name, avro("id"))
        assert api.put(f"/config/{name}", {"compatibility": mode}).body == {"compatibility": mode}
        answer = api.post(f"/subjects/{name}/versions", {"schema": text})
        assert (answer.status == 200) == (change in allowed), (mode, change, answer)


def test_transitive_modes_look_at_all_versions(api: Api) -> None:
    # Each step is compatible with the one before; the third is not with the first.
    steps = [avro("id"), avro("id", "n=0"), avro("id").replace("]", ',{"name":"n","type":"int"}]')]
    name = subject()
    for step in steps[:2]:
        api.register(name, step)
    api.put(f"/config/{name}", {"compatibility": "BACKWARD_TRANSITIVE"})
    refused = api.post(f"/subjects/{name}/versions", {"schema": steps[2]})
    assert refused.code == 40901
    assert "{oldSchemaVersion: 1}" in refused.body["message"]
    api.put(f"/config/{name}", {"compatibility": "BACKWARD"})
    assert api.post(f"/subjects/{name}/versions", {"schema": steps[2]}).status == 200


def test_configuration(api: Api) -> None:
    name = subject()
    assert api.get("/config").body == {"compatibilityLevel": "BACKWARD"}
    assert api.get(f"/config/{name}?defaultToGlobal=true").body == {"compatibilityLevel": "BACKWARD"}
    assert api.put(f"/config/{name}", {"compatibility": "full"}).status == 200
    assert api.get(f"/config/{name}").body == {"compatibilityLevel": "FULL"}
    assert api.delete(f"/config/{name}").body == {"compatibilityLevel": "FULL"}
    assert api.get(f"/config/{name}").code == 40408
    assert api.put(f"/config/{name}", {"compatibility": "SIDEWAYS"}).code == 42203
    assert api.put(f"/config/{name}", {}).code == 42203
    assert api.put(f"/config/{name}", {"compatibility": "FULL", "alias": "x"}).code == 42203
    try:
        assert api.put("/config", {"compatibility": "NONE"}).status == 200
        assert api.get(f"/config/{name}?defaultToGlobal=true").body == {"compatibilityLevel": "NONE"}
    finally:
        assert api.delete("/config").body == {"compatibilityLevel": "NONE"}
    assert api.get("/config").body == {"compatibilityLevel": "BACKWARD"}


def test_a_subject_that_is_read_only(api: Api) -> None:
    name = subject()
    api.register(name, avro("id"))
    assert api.put(f"/mode/{name}", {"mode": "READONLY"}).body == {"mode": "READONLY"}
    assert api.get(f"/mode/{name}").body == {"mode": "READONLY"}
    assert api.post(f"/subjects/{name}/versions", {"schema": avro("id", "n=0")}).code == 42205
    assert api.delete(f"/subjects/{name}").code == 42205
    assert api.delete(f"/subjects/{name}/versions/1").code == 42205
    assert api.put(f"/config/{name}", {"compatibility": "NONE"}).code == 42205
    assert api.delete(f"/mode/{name}").body == {"mode": "READONLY"}
    assert api.post(f"/subjects/{name}/versions", {"schema": avro("id", "n=0")}).status == 200
    assert api.put(f"/mode/{name}", {"mode": "SIDEWAYS"}).code == 42204


def test_all_subjects_read_only(api: Api) -> None:
    name = subject()
    assert api.get("/mode").body == {"mode": "READWRITE"}
    try:
        api.put(f"/mode/{name}", {"mode": "READWRITE"})
        api.put("/mode", {"mode": "READONLY"})
        assert api.post(f"/subjects/{subject()}/versions", {"schema": avro("id")}).code == 42205
        assert api.post(f"/subjects/{name}/versions", {"schema": avro("id")}).status == 200
        api.put("/mode", {"mode": "READONLY_OVERRIDE"})
        assert api.post(f"/subjects/{name}/versions", {"schema": avro("id", "n=0")}).code == 42205
    finally:
        assert api.put("/mode", {"mode": "READWRITE"}).status == 200


def test_import_with_ids_and_versions_of_another_registry(api: Api) -> None:
    name = subject()
    assert api.put(f"/mode/{name}", {"mode": "IMPORT"}).status == 200
    assert api.post(f"/subjects/{name}/versions", {"schema": avro("id")}).code == 42205  # an import brings its id
    text = avro("id", "imported=1")
    highest = api.get("/schemas/ids/1?fetchMaxId=true").body.get("maxId", 0)
    assert api.register(name, text, id=highest + 500, version=3) == highest + 500
    assert api.get(f"/subjects/{name}/versions").body == [3]
    assert (
        api.post(f"/subjects/{name}/versions", {"schema": avro("x"), "id": highest + 500, "version": 4}).code == 42207
    )
    api.put(f"/mode/{name}", {"mode": "READWRITE"})
    assert api.register(subject(), avro("fresh", f"h{highest}=1")) == highest + 501
    # What is there would be lost.
    assert api.put(f"/mode/{name}", {"mode": "IMPORT"}).code == 42205
    assert api.put(f"/mode/{name}?force=true", {"mode": "IMPORT"}).status == 200


def test_deleting_a_version(api: Api) -> None:
    name = subject()
    api.register(name, avro("id"))
    second = api.register(name, avro("id", "second=2"))
    assert api.delete(f"/subjects/{name}/versions/2?permanent=true").code == 40407
    assert api.delete(f"/subjects/{name}/versions/latest").body == 2
    assert api.get(f"/subjects/{name}/versions/2").code == 40402
    assert api.get(f"/subjects/{name}/versions/2?deleted=true").status == 200
    assert api.get(f"/subjects/{name}/versions").body == [1]
    assert api.get(f"/subjects/{name}/versions?deleted=true").body == [1, 2]
    assert api.get(f"/subjects/{name}/versions?deletedOnly=true").body == [2]
    assert api.get(f"/schemas/ids/{second}").status == 200  # records with this id are still in the log
    assert api.delete(f"/subjects/{name}/versions/2").code == 40406
    assert api.delete(f"/subjects/{name}/versions/2?permanent=true").body == 2
    assert api.get(f"/subjects/{name}/versions/2?deleted=true").code == 40402
    assert api.get(f"/schemas/ids/{second}").code == 40403


def test_deleting_a_subject_and_registering_it_again(api: Api) -> None:
    name = subject()
    first, second = api.register(name, avro("id")), api.register(name, avro("id", "again=2"))
    assert api.delete(f"/subjects/{name}?permanent=true").code == 40405
    assert api.delete(f"/subjects/{name}").body == [1, 2]
    assert name not in api.get("/subjects").body
    assert name in api.get("/subjects?deleted=true").body
    assert api.get("/subjects?deletedOnly=true&subjectPrefix=" + name).body == [name]
    assert api.delete(f"/subjects/{name}").code == 40404
    assert api.post(f"/subjects/{name}", {"schema": avro("id")}).code == 40401
    assert api.post(f"/subjects/{name}?deleted=true", {"schema": avro("id")}).body["id"] == first
    # Taken back: the same id, a new version.
    assert api.register(name, avro("id", "again=2")) == second
    assert api.get(f"/subjects/{name}/versions").body == [3]
    assert api.delete(f"/subjects/{name}").body == [3]
    api.put(f"/config/{name}", {"compatibility": "NONE"})
    assert api.delete(f"/subjects/{name}?permanent=true").body == [1, 3]
    assert name not in api.get("/subjects?deleted=true").body
    assert api.get(f"/config/{name}").code == 40408


def test_an_id_is_never_given_twice(api: Api) -> None:
    name = subject()
    last = api.register(name, avro("id", "gone=1"))
    api.delete(f"/subjects/{name}")
    api.delete(f"/subjects/{name}?permanent=true")
    assert api.register(subject(), avro("id", "after=1")) == last + 1


def test_references(api: Api) -> None:
    money, order = subject("money"), subject("order")
    cents = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    api.register(money, json.dumps(cents))
    text = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "price", "type": "shop.Money"}]})
    assert api.post(f"/subjects/{order}/versions", {"schema": text}).code == 42201
    reference = {"name": "shop.Money", "subject": money, "version": 1}
    id = api.register(order, text, references=[reference])
    assert api.get(f"/schemas/ids/{id}").body["references"] == [reference]
    assert api.get(f"/subjects/{money}/versions/1/referencedby").body == [id]
    assert api.delete(f"/subjects/{money}/versions/1").code == 42206
    assert api.delete(f"/subjects/{money}").code == 42206
    api.delete(f"/subjects/{order}")
    assert api.get(f"/subjects/{money}/versions/1/referencedby").body == []
    assert api.get(f"/subjects/{money}/versions/1/referencedby?deleted=true").body == [id]
    assert api.delete(f"/subjects/{money}").body == [1]
    assert api.delete(f"/subjects/{money}?permanent=true").code == 42206  # the order may be taken back
    assert api.post(f"/subjects/{order}", {"schema": text, "references": [reference]}).code == 40401


def test_a_change_behind_a_reference_is_a_change(api: Api) -> None:
    money, order = subject("money"), subject("order")
    for kind in ("long", "string"):
        cents = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": kind}]}
        api.put(f"/config/{money}", {"compatibility": "NONE"})
        api.register(money, json.dumps(cents))
    text = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "price", "type": "shop.Money"}]})
    reference = {"name": "shop.Money", "subject": money, "version": 1}
    api.register(order, text, references=[reference])
    refused = api.post(f"/subjects/{order}/versions", {"schema": text, "references": [{**reference, "version": 2}]})
    assert refused.code == 40901
    assert "price.cents" in refused.body["message"]


def test_protobuf_as_text_and_as_descriptor(api: Api) -> None:
    name = subject()
    text = '// what is bought\nsyntax = "proto3";\nmessage Order { string id = 1; }\n'
    id = api.register(name, text, schemaType="PROTOBUF")
    assert api.get(f"/schemas/ids/{id}").body["schema"] == text
    assert api.get(f"/schemas/ids/{id}").body["schemaType"] == "PROTOBUF"
    # Layout and comments do not make another schema.
    assert api.register(name, 'syntax="proto3"; message Order {string id=1;}', schemaType="PROTOBUF") == id
    descriptor = api.get(f"/schemas/ids/{id}?format=serialized").body["schema"]
    assert b"Order" in base64.b64decode(descriptor)
    other = subject()
    again = api.register(other, descriptor, schemaType="PROTOBUF")
    assert "message Order {" in api.get(f"/schemas/ids/{again}").body["schema"]
    assert api.register(other, descriptor, schemaType="PROTOBUF") == again


def test_pages(api: Api) -> None:
    names = sorted(subject("page") for _ in range(3))
    for name in names:
        api.register(name, avro("id"))
    listed = api.get("/subjects?subjectPrefix=page-").body
    assert api.get("/subjects?subjectPrefix=page-&offset=1&limit=1").body == listed[1:2]
    assert api.get("/subjects?offset=x").status == 404
