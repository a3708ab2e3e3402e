"""Contracts as they are declared: no registry is asked, and what a schema file says is checked at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import BrokenContractError, InvalidPipelineError, PipelineError
from headrace.pipeline.draw import describe, draw


def avsc(folder: Path, *fields: dict[str, Any]) -> Path:
    file = folder / "transaction.avsc"
    file.write_text(json.dumps({"type": "record", "name": "Transaction", "fields": list(fields)}))
    return file


def problems(pipeline: hr.Pipeline) -> list[PipelineError]:
    with pytest.raises(InvalidPipelineError) as refused:
        pipeline.check()
    return list(refused.value.problems)


def test_columns_of_a_contract_are_not_known_until_the_registry_is_asked() -> None:
    pipeline = hr.Pipeline("p")
    stream = pipeline.read("t", contract="t-value")
    assert stream.schema is None
    stream.event_time("at").key_by("card").rolling("r", n=hr.last("1m").count()).write("out", contract="out-value")
    pipeline.check()
    assert draw(pipeline).splitlines()[1] == "read t under contract t-value"
    assert draw(pipeline).splitlines()[-1] == "write out under contract out-value"


def test_a_schema_file_makes_them_known(tmp_path: Path) -> None:
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    file = avsc(tmp_path, {"name": "card", "type": "string"}, at)
    pipeline = hr.Pipeline("p")
    stream = pipeline.read("t", contract=hr.contract("t-value", schema=file))
    assert dict(stream.schema or {}) == {"card": "string", "at": "timestamp"}
    stream.event_time("when").key_by("crad").rolling("r", n=hr.last("1m").count()).write("out")
    assert [p.what for p in problems(pipeline)] == [
        ".event_time(...) uses column `when`, which is not there.",
        ".key_by(...) uses column `crad`, which is not there.",
    ]
    details = describe(pipeline)["nodes"][0]["details"]
    assert details["contract"] == {"subject": "t-value", "version": None, "file": str(file), "type": "avro"}


def test_a_file_beside_the_module_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "jobs" / "job.py"
    (tmp_path / "jobs" / "schemas").mkdir(parents=True)
    avsc(tmp_path / "jobs" / "schemas", {"name": "card", "type": "string"})
    source = 'import headrace as hr\nagreed = hr.contract("t-value", schema="schemas/transaction.avsc")'
    names: dict[str, Any] = {}
    monkeypatch.chdir("/")
    exec(compile(source, str(module), "exec"), names)
    assert names["agreed"].problems == ()
    assert dict(names["agreed"].columns()) == {"card": "string"}


def test_what_is_wrong_with_a_contract_is_said_with_everything_else(tmp_path: Path) -> None:
    (tmp_path / "broken.avsc").write_text("{")
    pipeline = hr.Pipeline("p")
    pipeline.read("a", contract=hr.contract("a-value", schema=tmp_path / "missing.avsc")).write("1")
    pipeline.read("b", contract=hr.contract("b-value", schema=tmp_path / "broken.avsc")).write("2")
    pipeline.read("c", contract=hr.contract("c-value", schema="c.txt")).write("3")
    pipeline.read("d", contract=hr.contract("d-value", version=0)).write("4")
    (tmp_path / "plain.json").write_text('{"properties": {"x": {"type": "string"}}}')
    pipeline.read("m", contract=hr.contract("m-value", schema=tmp_path / "plain.json", message="M")).write("8")
    pipeline.read("e", schema="x STRING", contract="e-value").write("5")
    pipeline.read("f", contract=7).write("6")  # type: ignore[arg-type]
    pipeline.read("g", schema="x STRING").dead_letters.write("7", contract="g-value")
    found = [p.what for p in problems(pipeline)]
    assert found == [
        f'contract("a-value", schema=...): {tmp_path}/missing.avsc can\'t be read.',
        f'contract("b-value", schema=...): {tmp_path}/broken.avsc: the schema is no Avro schema: it is no JSON.',
        'contract("c-value", schema=...): c.txt is no schema file by its name.',
        "contract(..., version=0) is no version.",
        f"contract(..., message='M') names a message, but {tmp_path}/plain.json is no Protobuf schema.",
        '.read("e") has both a schema and a contract.',
        ".read(..., contract=...) takes a contract, not 7.",
        "dead letters can't have a contract.",
    ]


def test_the_columns_of_an_output_must_be_those_of_its_schema_file(tmp_path: Path) -> None:
    file = avsc(
        tmp_path,
        {"name": "card", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    )
    pipeline = hr.Pipeline("p")
    pipeline.read("t", schema="card STRING, amuont DOUBLE").write("out", contract=hr.contract("o-value", schema=file))
    found = problems(pipeline)
    assert all(isinstance(problem, BrokenContractError) for problem in found)
    assert [problem.what for problem in found] == [
        ".write(...) writes column `amuont`, which contract `o-value` does not have.",
        ".write(...) lacks column `amount`, which contract `o-value` requires.",
    ]
    assert "did you mean `amount`?" in (found[0].fix or "")
