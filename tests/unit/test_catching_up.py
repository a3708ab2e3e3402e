"""When auto mode goes over to real time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.engine.catching_up import CatchingUp
from headrace.engine.settings import RunSettings

FEW = RunSettings(switch_lag_rows=100, switch_lag_ms=0)


@pytest.mark.parametrize(("lag", "done"), [(0, True), (100, True), (101, False)])
def test_when_few_records_are_left(lag: int, done: bool) -> None:
    assert CatchingUp("unused", FEW).is_done(lag) is done


def test_when_the_pass_was_short_for_then_what_is_left_came_in_within_seconds() -> None:
    """However many they are: on a busy topic no pass leaves few."""
    assert CatchingUp("unused", replace(FEW, switch_lag_ms=60_000)).is_done(1_000_000)
