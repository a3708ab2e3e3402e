"""The demo's books: nothing is forgiven, nothing is counted twice, whatever the order in which things are heard of."""

from __future__ import annotations

import json
import random
import threading

import pytest

from examples.fraud.truth import Episode, EpisodeKind, Truth
from headrace.demo.accounting import Accounting, Alert, Figures, Outcome, Receipt, Sent
from headrace.demo.collector import origin
from headrace.demo.latency import Latencies
from headrace.demo.summary import Summary
from headrace.errors import HeadraceError, QueryFailedError, RunError


def sent(offset: int, partition: int = 0, at: int = 1_000) -> Sent:
    return Sent(partition, offset, at)


def receipt(
    offset: int, outcome: Outcome = Outcome.DECIDED, *, partition: int = 0, latency: float = 5.0, flagged: bool = False
) -> Receipt:
    return Receipt(outcome, partition, offset, 1_000, 1_000 + latency, flagged)


def alert(offset: int) -> Alert:
    return Alert(0, offset, 1_000, 1_006.5, f"t{offset}", "card-1", 9.5, ("card_testing",))


def test_each_transaction_that_came_out_once_is_accounted_for() -> None:
    books = Accounting()
    books.produced(sent(offset, partition) for partition in (0, 1) for offset in range(5))
    for offset, outcome in enumerate(Outcome):
        books.received([receipt(offset, outcome), receipt(offset, outcome, partition=1)])
    figures = books.figures()
    assert figures.settled
    assert figures.produced == 10
    assert figures.outcomes == dict.fromkeys(Outcome, 2)
    assert figures.duplicated == 0


def test_what_does_not_come_out_is_lost() -> None:
    books = Accounting()
    books.produced(sent(offset) for offset in range(100))
    books.received(receipt(offset) for offset in range(100) if offset not in (17, 99))
    assert books.figures().lost == 2
    assert not books.figures().settled


def test_the_order_of_the_news_does_not_matter() -> None:
    news = [("sent", offset) for offset in range(200)] + [("received", offset) for offset in range(190)]
    for seed in range(5):
        books = Accounting()
        random.Random(seed).shuffle(news)
        for what, offset in news:
            books.produced([sent(offset)]) if what == "sent" else books.received([receipt(offset)])
        assert (books.figures().produced, books.figures().lost, books.figures().duplicated) == (200, 10, 0)


def test_a_second_record_of_a_transaction_is_duplicated_in_whichever_topic() -> None:
    books = Accounting()
    books.produced([sent(0), sent(1)])
    books.received([receipt(0), receipt(0), receipt(0), receipt(1), receipt(1, Outcome.LATE)])
    figures = books.figures()
    assert figures.duplicated == 3
    assert figures.outcomes[Outcome.DECIDED] == 2
    assert figures.outcomes[Outcome.LATE] == 0
    assert figures.lost == 0


def test_a_flagged_decision_without_its_alert_is_not_settled() -> None:
    books = Accounting()
    books.produced([sent(0), sent(1), sent(2)])
    assert [a.txn_id for a in books.alerted([alert(2)])] == ["t2"]  # the alert may be read before the decision
    books.received([receipt(0), receipt(1, flagged=True), receipt(2, flagged=True)])
    assert books.figures().missing_alerts == 1
    assert not books.figures().settled
    assert books.alerted([alert(1), alert(1)]) == [alert(1)]
    figures = books.figures()
    assert figures.settled
    assert figures.alerts == 2
    assert [a.txn_id for a in books.recent_alerts()] == ["t1", "t2"]


def test_latency_counts_from_the_end_of_the_warm_up_and_only_for_decisions() -> None:
    books = Accounting()
    books.measure_from(2_000)
    books.received(Receipt(Outcome.DECIDED, 0, offset, 1_999, 2_999.0) for offset in range(5))
    books.received(Receipt(Outcome.DECIDED, 1, offset, 2_000, 2_000.0 + offset) for offset in range(1, 101))
    books.received(Receipt(Outcome.LATE, 1, offset, 2_000, 9_000.0) for offset in range(200, 300))
    figures = books.figures()
    assert (figures.measured, figures.p50_ms, figures.p95_ms, figures.p99_ms) == (100, 50.0, 95.0, 99.0)


def test_history_is_by_second_and_the_current_one_is_not_over() -> None:
    books = Accounting(history_seconds=3)
    books.produced([sent(0, at=10_100), sent(1, at=10_900), sent(2, at=12_500), sent(3, at=13_100)])
    books.received([Receipt(Outcome.DECIDED, 0, 1, 10_900, 12_000.0)])
    seconds = books.history(13_500.0)
    assert [second.produced for second in seconds] == [2, 0, 1]
    assert [second.latency_ms for second in seconds] == [None, None, 1100.0]


def test_the_recent_p99_is_of_the_last_whole_seconds_together() -> None:
    books = Accounting()
    books.received(Receipt(Outcome.DECIDED, 0, n, 9_999 - 900, 9_999.0) for n in range(100))  # a second too old
    books.received(Receipt(Outcome.DECIDED, 1, n, 10_000, 10_000.0 + n) for n in range(1, 51))
    books.received(Receipt(Outcome.DECIDED, 2, n, 14_000, 14_000.0 + n) for n in range(51, 101))
    books.received([Receipt(Outcome.DECIDED, 3, 0, 14_600, 15_100.0)])  # in the second that is not over
    assert books.recent_p99_ms(15_200.0, 5) == 99.0
    assert books.recent_p99_ms(14_999.0, 5) == 900.0
    assert books.recent_p99_ms(90_000.0, 5) is None


def test_threads_may_share_the_books() -> None:
    books = Accounting()
    count = 5_000

    def produce(partition: int) -> None:
        for offset in range(count):
            books.produced([sent(offset, partition)])

    def receive(partition: int) -> None:
        for offset in range(count):
            books.received([receipt(offset, partition=partition)])

    threads = [threading.Thread(target=work, args=(p,)) for p in (0, 1) for work in (produce, receive)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = books.figures()
    assert (figures.produced, figures.outcomes[Outcome.DECIDED], figures.lost) == (2 * count, 2 * count, 0)


def test_quantiles_are_those_of_the_sorted_list() -> None:
    generator = random.Random(3)
    values = [round(generator.lognormvariate(2, 1), 1) for _ in range(1_000)]
    taken = Latencies(values)
    ordered = sorted(values)
    assert taken.quantile(0.5) == ordered[499]
    assert taken.quantile(0.99) == ordered[989]
    assert taken.quantile(1.0) == ordered[-1]
    assert Latencies().quantile(0.5) is None
    halves = Latencies(values[:500])
    halves.update(Latencies(values[500:]))
    assert (halves.count, halves.quantile(0.99)) == (1_000, ordered[989])


def test_the_origin_of_a_record_is_in_its_headers() -> None:
    headers = {"headrace-id": b"transactions/1/42/card-activity", "headrace-source-timestamp": b"1700000000123"}
    assert origin("decisions", headers) == (1, 42, 1_700_000_000_123)
    with pytest.raises(RunError, match="does not say where it comes from"):
        origin("decisions", {"headrace-id": b"42"})
    with pytest.raises(RunError, match="topic `decisions`"):
        origin("decisions", {})


def summary(figures: Figures, *, undelivered: int = 0, failure: HeadraceError | None = None) -> Summary:
    truth = Truth()
    truth.produced("t1", Episode(1, EpisodeKind.CARD_TESTING, "card-1", 1))
    truth.flagged("t1")
    return Summary(figures, truth.score(), {"straggler": 3}, undelivered, 8.0, failure)


def test_the_summary_is_one_json_object_and_success_means_that_nothing_is_lost() -> None:
    books = Accounting()
    books.measure_from(0)
    books.produced([sent(0), sent(1), sent(2)])
    books.received([receipt(0), receipt(1, flagged=True)])
    lossy = summary(books.figures())
    assert not lossy.succeeded
    assert json.loads(lossy.to_json())["lost"] == 2  # one that never came out, one flagged without its alert
    books.received([receipt(2, Outcome.DEAD_LETTER)])
    books.alerted([alert(1)])
    complete = summary(books.figures())
    assert complete.succeeded
    assert "\n" not in complete.to_json()
    assert json.loads(complete.to_json()) == {
        "transactions": 3,
        "alerts": 1,
        "p50_ms": 5.0,
        "p95_ms": 5.0,
        "p99_ms": 5.0,
        "precision": 1.0,
        "recall": 1.0,
        "late": 0,
        "dead_letters": 1,
        "lost": 0,
        "duplicated": 0,
        "duplicates": 0,
        "quarantined": 0,
    }
    assert not summary(books.figures(), failure=QueryFailedError("the fraud job ended by itself.")).succeeded


def test_what_the_log_did_not_take_is_lost() -> None:
    books = Accounting()
    books.produced([sent(0), sent(1)])
    books.received([receipt(0), receipt(1)])
    assert summary(books.figures()).succeeded
    refused = summary(books.figures(), undelivered=3)
    assert not refused.succeeded
    told = json.loads(refused.to_json())
    assert (told["transactions"], told["lost"]) == (5, 3)
