"""The verdicts on pairs of schemas in tests/data/compat: each line of each file is a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts.formats import SchemaSource, breaks
from headrace.contracts.schemas import SchemaType

FOLDER = Path(__file__).parents[1] / "data" / "compat"
TYPES = {"avro": SchemaType.AVRO, "jsonschema": SchemaType.JSON, "protobuf": SchemaType.PROTOBUF}


def cases() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*.jsonl")):
        (kind,) = [each for name, each in TYPES.items() if file.name.startswith(name)]
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            yield pytest.param(kind, json.loads(line), id=f"{file.stem}:{number}")


def source(kind: SchemaType, schema: Any) -> SchemaSource:
    return SchemaSource(kind, schema if kind is SchemaType.PROTOBUF else json.dumps(schema))


@pytest.mark.parametrize(("kind", "case"), list(cases()))
def test_verdict(kind: SchemaType, case: dict[str, Any]) -> None:
    found = breaks(source(kind, case["reader"]), source(kind, case["writer"]))
    assert (not found) == case["compatible"], [str(each) for each in found]
    if "rule" in case:
        assert [each.rule for each in found] == [case["rule"]]


def test_all_the_cases_are_there() -> None:
    counts = {file.stem: len(file.read_text(encoding="utf-8").splitlines()) for file in FOLDER.glob("*.jsonl")}
    assert counts["avro"] == 41
    assert counts["jsonschema"] == 60
    assert counts["protobuf"] >= 20
