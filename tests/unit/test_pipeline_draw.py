"""What `headrace explain` shows."""

from __future__ import annotations

import json

from pyspark.sql import functions as F

import headrace as hr
from headrace.pipeline.draw import describe, draw

LARGE = F.col("spend_10m") > 5000


def fraud() -> hr.Pipeline:
    pipeline = hr.Pipeline("card-fraud")
    txns = pipeline.read(
        "transactions", schema="txn_id STRING, card_id STRING, amount DOUBLE, lat DOUBLE, at TIMESTAMP"
    ).event_time("at", out_of_order="30s", max_skew="5m")
    activity = (
        txns.dedupe("txn_id", within="24h")
        .key_by("card_id")
        .rolling(
            "card-activity", spend_10m=hr.last("10m").sum("amount"), n=hr.last("1m").count(), here=hr.latest("lat")
        )
    )
    alerts = activity.where(LARGE)
    alerts.select("card_id", reason="'spend'").write("fraud-alerts", key="card_id")
    alerts.with_column("copy", "true").write("alerts-copy")
    activity.late.write("transactions-late")
    txns.dead_letters.write("transactions-dead")
    other = pipeline.read("clicks", schema="user STRING")
    other.apply(lambda df: df).write("clicks-copy")
    return pipeline


def test_a_chain_stays_in_line_and_branches_are_set_in() -> None:
    assert draw(fraud()) == "\n".join(
        [
            "pipeline card-fraud",
            "read transactions",
            "event_time at, out of order by 30s, max skew 5m",
            "+- dedupe `dedupe-txn_id`: txn_id within 1d",
            "|  key_by card_id",
            "|  rolling `card-activity`: spend_10m=last(10m).sum(amount), n=last(1m).count(), here=latest(lat, back=1)",
            "|  +- where >(spend_10m, 5000)",
            "|  |  +- select card_id, reason='spend'",
            "|  |  |  write fraud-alerts, key card_id",
            "|  |  +- with_column copy=true",
            "|  |     write alerts-copy",
            "|  +- late",
            "|     write transactions-late",
            "+- dead_letters",
            "   write transactions-dead",
            "read clicks",
            "apply fraud.<locals>.<lambda>",
            "write clicks-copy",
        ]
    )


def test_the_description_is_json_with_ids_inputs_and_details() -> None:
    described = json.loads(json.dumps(describe(fraud())))
    assert described["pipeline"] == "card-fraud"
    nodes = {node["id"]: node for node in described["nodes"]}
    rolling = next(node for node in nodes.values() if node["kind"] == "rolling")
    assert rolling["name"] == "card-activity"
    assert "test_pipeline_draw.py:" in rolling["location"]
    assert rolling["details"] == {
        "aggregates": {"spend_10m": "last(10m).sum(amount)", "n": "last(1m).count()", "here": "latest(lat, back=1)"}
    }
    assert nodes[rolling["inputs"][0]]["kind"] == "key_by"
    read = nodes["1"]
    assert (read["kind"], read["name"], read["inputs"]) == ("read", None, [])
    assert read["details"]["topic"] == "transactions"
    assert read["details"]["schema"]["at"] == "timestamp"
    kinds = [node["kind"] for node in described["nodes"]]
    assert {"event_time", "dedupe", "where", "select", "with_column", "apply", "late", "dead_letters", "write"} <= set(
        kinds
    )


def test_the_same_declaration_is_described_the_same() -> None:
    assert json.dumps(describe(fraud())) == json.dumps(describe(fraud()))
    assert draw(fraud()) == draw(fraud())


def test_an_empty_pipeline_can_be_drawn() -> None:
    assert draw(hr.Pipeline("empty")) == "pipeline empty"
    assert describe(hr.Pipeline("empty"))["nodes"] == []


def test_a_long_expression_is_cut_in_the_drawing_and_whole_in_the_description() -> None:
    pipeline = hr.Pipeline("long")
    condition = " or ".join(f"a = {number}" for number in range(100))
    pipeline.read("in", schema="a INT").where(condition).write("out")
    assert draw(pipeline).splitlines()[2] == f"where {condition[:77]}..."
    assert describe(pipeline)["nodes"][1]["details"] == {"condition": condition}
