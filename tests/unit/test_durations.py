from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import InvalidDurationError
from headrace.pipeline.durations import format_duration, parse_duration

# The same examples every time, and no verdict on how fast a busy machine is.
unhurried = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

HUNDRED_YEARS_MS = 36_500 * 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        (" 1H 30 m ", 5_400_000),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


def test_a_timedelta_is_a_duration() -> None:
    assert parse_duration(timedelta(minutes=1, milliseconds=2)) == 60_002


@pytest.mark.parametrize(
    "value",
    [
        "30 parsecs",
        "",
        "s",
        "30",
        "-",
        "1.5h",
        "30m1h",
        "1s1s",
        "5 m 3",
        "٣s",
        30,
        1.5,
        True,
        None,
        timedelta(microseconds=1),
    ],
)
def test_what_is_not_a_duration_is_refused_with_a_fix(value: object) -> None:
    with pytest.raises(InvalidDurationError) as caught:
        parse_duration(value)  # type: ignore[arg-type]
    assert '"30s"' in str(caught.value.fix)


def test_a_bare_number_is_told_that_it_lacks_a_unit() -> None:
    with pytest.raises(InvalidDurationError, match="bare number"):
        parse_duration(30)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["-30s", timedelta(seconds=-1)])
def test_negative_is_refused(value: str | timedelta) -> None:
    with pytest.raises(InvalidDurationError, match="negative"):
        parse_duration(value, zero=True)


@pytest.mark.parametrize("value", ["-1h", " - 1h ", "-60m", timedelta(hours=-1)])
def test_negative_is_read_where_a_sign_is_allowed(value: str | timedelta) -> None:
    assert parse_duration(value, signed=True) == -3_600_000
    assert parse_duration("0s", signed=True) == 0


def test_zero_is_refused_unless_allowed() -> None:
    with pytest.raises(InvalidDurationError, match="zero"):
        parse_duration("0s")
    assert parse_duration("0s", zero=True) == 0


@pytest.mark.parametrize("value", ["36501d", "999999999999999999d", "9" * 5000 + "d", timedelta.max])
def test_what_no_state_could_live_for_is_refused(value: str | timedelta) -> None:
    with pytest.raises(InvalidDurationError):
        parse_duration(value)


def test_nor_further_back() -> None:
    with pytest.raises(InvalidDurationError, match="longer than a hundred years"):
        parse_duration("-36501d", signed=True)


@unhurried
@given(st.integers(min_value=0, max_value=HUNDRED_YEARS_MS))
def test_formatting_and_parsing_round_trip(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds), zero=True) == milliseconds
    assert parse_duration(format_duration(-milliseconds), signed=True) == -milliseconds


@unhurried
@given(st.integers(min_value=1, max_value=HUNDRED_YEARS_MS))
def test_text_and_timedelta_agree(milliseconds: int) -> None:
    assert parse_duration(timedelta(milliseconds=milliseconds)) == parse_duration(f"{milliseconds}ms")
