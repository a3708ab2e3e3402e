"""The demo's screen and its plain lines, drawn for real at the sizes of real terminals."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from examples.fraud.truth import Episode, EpisodeKind, Truth
from headrace.demo.accounting import Accounting, Alert, Outcome, Receipt, Sent
from headrace.demo.steps import Steps
from headrace.demo.summary import Summary
from headrace.demo.view import Frame, LineView, ScreenView, line, render, screenshot, sparkline, view_for

NOW_MS = 1_760_000_060_000
PROGRESS = {
    "batch": 3,
    "state_rows": 12_345,
    "state_bytes": 4_200_000,
    "watermark": "2025-10-09T08:53:30Z",
    "commit_ms": 310,
}


def books() -> Accounting:
    kept = Accounting()
    kept.measure_from(0)
    kept.produced(Sent(0, n, NOW_MS - 60_000 + n * 5) for n in range(12_000))
    kept.received(
        Receipt(Outcome.DECIDED, 0, n, NOW_MS - 60_000 + n * 5, NOW_MS - 60_000 + n * 5 + 4.7, n % 1000 == 0)
        for n in range(11_900)
    )
    kept.received(Receipt(Outcome.LATE, 0, 11_900 + n, NOW_MS, NOW_MS + 5.0) for n in range(33))
    kept.received([Receipt(Outcome.DEAD_LETTER, 0, 11_950, NOW_MS, NOW_MS + 5.0)])
    reasons = (("impossible_travel",), ("card_testing",), ("card_testing", "spending_spree", "impossible_travel"))
    kept.alerted(
        Alert(0, n * 1000, NOW_MS, NOW_MS + 6.0, f"t{n}", f"card-{n:08d}", 1234.5, reasons[n % 3]) for n in range(12)
    )
    return kept


def frame(progress: dict[str, Any] | None = None) -> Frame:
    kept = books()
    return Frame(
        phase="running",
        elapsed_seconds=31.4,
        seconds=45.0,
        bootstrap="127.0.0.1:45678",
        figures=kept.figures(),
        history=kept.history(NOW_MS),
        alerts=kept.recent_alerts(),
        progress=progress or {},
    )


def drawn(width: int, height: int, shown: Frame, *, ascii_only: bool = False) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), record=True, force_terminal=True)
    console.print(render(shown, ascii_only=ascii_only), height=height)
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (100, 30)])
def test_the_screen_fits_the_terminal_and_shows_every_figure(width: int, height: int) -> None:
    lines = drawn(width, height, frame(PROGRESS))
    assert len(lines) == height
    assert all(len(text) <= width for text in lines)
    text = "\n".join(lines)
    for expected in (
        "Headrace",
        "127.0.0.1:45678",
        "running 31 s of 45 s",
        "batch 3",
        "state 12,345 rows",
        "12,000",  # produced
        "200",  # per second
        "4.7 ms",
        "11,900",  # decided
        "dead letters",
        "quarantined",
        "duplicates",
        "card-00000011",
        "impossible travel",
        "card testing",
        "1,234.50",
        "6.0 ms",
    ):
        assert expected in text, expected


def test_a_screen_with_nothing_to_show_yet_is_drawn_too() -> None:
    empty = Accounting()
    nothing = Frame("warming up", 0.2, 8.0, "127.0.0.1:1", empty.figures(), empty.history(NOW_MS), [])
    text = "\n".join(drawn(80, 24, nothing))
    assert "warming up" in text
    assert nothing.rate == 0


def test_the_newest_alert_is_on_top() -> None:
    text = "\n".join(drawn(80, 24, frame()))
    assert text.index("card-00000011") < text.index("card-00000010") < text.index("card-00000009")


def test_an_alert_on_what_waited_for_the_job_does_not_read_as_a_latency_of_milliseconds() -> None:
    alerts = [
        Alert(0, n, NOW_MS, NOW_MS + taken, f"t{n}", f"card-{n}", 9.5, ("card_testing",))
        for n, taken in enumerate((24_658.2, 1_449.9, 998.7))
    ]
    shown = [text for text in drawn(80, 24, replace(frame(), alerts=alerts)) if "card testing" in text]
    assert [text.rstrip("│ ").rpartition("  ")[2] for text in shown] == ["waited 25 s", "waited 1.4 s", "998.7 ms"]


def test_sparklines_take_the_room_there_is() -> None:
    assert sparkline([0, 1, 2, 4, 8]) == "▁▂▃▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
    narrow = next(text for text in drawn(80, 24, frame()) if "█" in text)
    wide = next(text for text in drawn(160, 50, frame()) if "█" in text)
    assert narrow.count("█") < wide.count("█")


def test_a_terminal_without_unicode_gets_plain_characters() -> None:
    text = "\n".join(drawn(80, 24, frame(), ascii_only=True))
    assert not set("▁▂▃▄▅▆▇█●·") & set(text)


def test_a_line_says_the_same() -> None:
    text = line(frame())
    assert "\n" not in text
    assert "running 31 s of 45 s: 200/s, 12,000 transactions, 12 alerts, p50 4.7 ms, p99 4.7 ms, 33 late" in text
    assert "1 dead letters, 66 in flight" in text


def test_a_pipe_gets_lines_and_not_a_screen() -> None:
    pipe = Console(file=io.StringIO())
    view = view_for(pipe)
    assert isinstance(view, LineView)
    with view:
        view.show(frame())
        view.show(frame())  # at once: too soon for another
    assert isinstance(pipe.file, io.StringIO)
    assert pipe.file.getvalue().count("transactions") == 1
    assert "\x1b" not in pipe.file.getvalue()


def test_a_terminal_gets_the_screen_and_its_own_screen_back() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    view = view_for(terminal)
    assert isinstance(view, ScreenView)
    with view:
        view.show(frame())
    assert isinstance(terminal.file, io.StringIO)
    text = terminal.file.getvalue()
    assert text.index("\x1b[?1049h") < text.index("fraud alerts") < text.index("\x1b[?1049l")


def test_a_screenshot_is_a_picture() -> None:
    picture = screenshot(frame(PROGRESS))
    assert picture.startswith("<svg")
    assert "card-00000011" in picture


def test_steps_tell_what_was_done_and_a_step_that_fails_is_not_ticked() -> None:
    console = Console(file=io.StringIO(), width=80)
    steps = Steps(console)
    with steps.step("broker") as progress:
        progress("Kafka at 127.0.0.1:1")
    with pytest.raises(ValueError, match="no room"), steps.step("topics"):
        raise ValueError("no room")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "broker" in text
    assert "Kafka at 127.0.0.1:1" in text
    assert "topics" not in text


def test_the_summary_reads_well_when_all_is_well_and_when_it_is_not() -> None:
    truth = Truth()
    truth.produced("t1", Episode(1, EpisodeKind.CARD_TESTING, "card-1", 1))
    truth.flagged("t1")
    truth.flagged("honest")
    console = Console(file=io.StringIO(), width=100)
    kept = books()
    console.print(Summary(kept.figures(), truth.score(), {"malformed": 1}, 2, 8.0).render())
    kept.received(Receipt(Outcome.DECIDED, 0, n, NOW_MS, NOW_MS + 4.0) for n in range(11_900, 12_000))
    console.print(Summary(kept.figures(), truth.score(), {}, 0, 8.0).render())
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "68 of 12,002 transactions are lost." in text
    assert "12,002, of which the log did not take 2" in text
    assert "precision 50.0%, recall 100.0%" in " ".join(text.split())
    assert "Every transaction is accounted for." in text
