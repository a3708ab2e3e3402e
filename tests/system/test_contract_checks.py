"""What breaks a contract, on a real broker with a real registry: refused before it reaches anybody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.contracts import RegistryClient
from headrace.engine.explain import explain_dict
from headrace.engine.run import Run
from headrace.engine.settings import Mode
from headrace.errors import (
    BrokenContractError,
    IncompatibleContractError,
    InvalidPipelineError,
    PipelineError,
    RegistryUnavailableError,
    UnknownColumnError,
)
from tests.system.payments import FIRST, first, payload
from tests.system.records import LogReader, Sent, produce
from tests.system.running import Engine, fresh

Topic = Callable[..., str]


def problems(refused: pytest.ExceptionInfo[InvalidPipelineError]) -> list[PipelineError]:
    return list(refused.value.problems)


def test_a_pipeline_under_contracts_is_checked_before_spark(
    engine: Engine, topic: Topic, client: RegistryClient
) -> None:
    source = topic("checked", partitions=1)
    client.register(f"{source}-value", json.dumps(FIRST))
    pipeline = hr.Pipeline("checked")
    pipeline.read(source, contract=f"{source}-value").event_time("when").write("checked-out")
    pipeline.read(source, contract=f"{source}-valeu").write("checked-out-2")
    pipeline.read(source, contract=hr.contract(f"{source}-value", version=7)).write("checked-out-3")
    with pytest.raises(InvalidPipelineError) as refused:
        Run(pipeline, bootstrap=engine.bootstrap)
    column, subject, version = problems(refused)
    assert isinstance(column, UnknownColumnError)
    assert column.what == ".event_time(...) uses column `when`, which is not there."
    assert isinstance(subject, BrokenContractError)
    assert subject.what == f"the registry has no contract `{source}-valeu`."
    assert subject.fix == f"did you mean `{source}-value`?"
    assert version.what == f"the registry has no version 7 of `{source}-value`."
    assert version.fix == "use one of its versions: 1"


def test_a_breaking_change_of_an_output_keeps_the_pipeline_from_starting(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    name, source = fresh("breaking"), topic("breaking", partitions=1)
    produce(engine.bootstrap, source, [Sent.row({"id": "a", "n": 1})])

    def pipeline(schema: str) -> hr.Pipeline:
        declared = hr.Pipeline(name)
        declared.read(source, schema=schema).write(f"{name}-out", contract=f"{name}-value")
        return declared

    engine.replay(pipeline("id STRING, n BIGINT"), tmp_path / "1")
    with pytest.raises(BrokenContractError) as refused:
        engine.replay(pipeline("id STRING, n BOOLEAN"), tmp_path / "2")
    assert f"breaks `{name}-value`, whose mode is BACKWARD" in refused.value.what
    assert refused.value.location is not None
    assert client.versions(f"{name}-value") == [1]
    assert len(engine.read(f"{name}-out")) == 1, "nothing was written"


def test_a_column_of_another_type_than_the_contract_has_is_refused_at_the_start(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    name, source = fresh("typed"), topic("typed", partitions=1)
    file = tmp_path / "out.avsc"
    file.write_text(json.dumps({"type": "record", "name": "Out", "fields": [{"name": "id", "type": "long"}]}))
    pipeline = hr.Pipeline(name)
    contract = hr.contract(f"{name}-value", schema=file)
    pipeline.read(source, schema="id STRING").write(f"{name}-out", contract=contract)
    with pytest.raises(BrokenContractError) as refused:
        engine.replay(pipeline, tmp_path / "checkpoint")
    assert refused.value.why == "column `id` is string, the contract's field is long"
    assert refused.value.location is not None


def test_a_schema_file_that_breaks_the_subject_is_refused_before_spark(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    source = topic("file", partitions=1)
    client.set_compatibility("FULL", f"{source}-value")
    client.register(f"{source}-value", json.dumps(FIRST))
    file = tmp_path / "payment.avsc"
    changed = [{**f, "type": "string"} if f["name"] == "amount" else f for f in FIRST["fields"]]
    file.write_text(json.dumps({**FIRST, "fields": changed}))
    pipeline = hr.Pipeline("file")
    pipeline.read(source, contract=hr.contract(f"{source}-value", schema=file)).write("file-out")
    with pytest.raises(InvalidPipelineError) as refused:
        Run(pipeline, bootstrap=engine.bootstrap)
    (problem,) = problems(refused)
    assert problem.what == f"contract `{source}-value` can't be used: {file} breaks its compatibility mode, FULL."
    assert "amount" in (problem.why or "")
    assert explain_dict(pipeline)["nodes"][0]["details"]["schema"]["amount"] == "string", (
        "to look at it needs no registry"
    )


def test_without_a_registry_a_pipeline_under_a_contract_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_REGISTRY", "http://ada:s3cret@127.0.0.1:9")
    pipeline = hr.Pipeline("nobody")
    pipeline.read("t", contract="t-value").write("out")
    with pytest.raises(RegistryUnavailableError) as refused:
        Run(pipeline, bootstrap="127.0.0.1:9")
    assert "127.0.0.1:9" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_producers_breaking_change_is_rejected_and_the_running_consumer_never_sees_it(
    engine: Engine, topic: Topic, client: RegistryClient, tmp_path: Path
) -> None:
    source = topic("produced", partitions=1)
    subject = f"{source}-value"
    id = client.register(subject, json.dumps(FIRST))
    broken = [{**f, "type": "boolean"} if f["name"] == "amount" else f for f in FIRST["fields"]]
    breaking = json.dumps({**FIRST, "fields": broken})
    pipeline = hr.Pipeline(fresh("produced"))
    pipeline.read(source, contract=subject).write(f"{source}-out")
    with engine.live(pipeline, Mode.MICROBATCH, tmp_path / "checkpoint") as told:
        reader = LogReader(engine.bootstrap, f"{source}-out")
        produce(engine.bootstrap, source, [Sent(payload(id, FIRST, first(1)))])
        reader.until(lambda records: len(records) == 1, "a payment of the first version")
        with (
            hr.contracts.producer(source, breaking, bootstrap=engine.bootstrap) as payments,
            pytest.raises(IncompatibleContractError, match="amount"),
        ):
            payments.send({**first(2), "amount": True})
        added = {**FIRST, "fields": [*FIRST["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}
        compatible = client.register(subject, json.dumps(added))
        produce(engine.bootstrap, source, [Sent(payload(compatible, added, {**first(3), "currency": "USD"}))])
        seen = reader.until(lambda records: len(records) == 2, "a payment of the next version")
        reader.close()
    assert [record.row["id"] for record in seen] == ["p1", "p3"]
    assert client.versions(subject) == [1, 2]
    assert sum(batch.dead_letters for batch in told.batches) == 0
