"""What is remembered of dead letters that were handled."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.handled_letters import HandledLetters, OffsetSet, State, page, ranges

OFFSETS = st.sets(st.integers(0, 20_000) | st.integers(10**12, 10**12 + 5000), max_size=60)


@given(OFFSETS, OFFSETS)
def test_a_set_of_offsets_has_what_was_added_and_nothing_else(added: set[int], asked: set[int]) -> None:
    offsets = OffsetSet()
    for first, last in ranges(sorted(added)):
        offsets.add(first, last)
    assert len(offsets) == len(added)
    assert {offset for offset in asked | added if offset in offsets} == added


@given(OFFSETS)
def test_ranges_are_whole_apart_and_in_order(added: set[int]) -> None:
    found = ranges(sorted(added))
    assert {offset for first, last in found for offset in range(first, last + 1)} == added
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))


def test_notes_tell_letters_of_one_partition_and_state_from_others() -> None:
    handled = HandledLetters()
    handled.note(page(State.REPLAYED, 0, [3, 4], [("clicks", 1, 30)], "2026-01-01T10:00:00+00:00", "replay"))
    handled.note(page(State.DROPPED, 1, [3], [], "2026-01-01T10:00:00+00:00", "drop"))
    assert handled.state(0, 3) is State.REPLAYED
    assert handled.state(1, 3) is State.DROPPED
    assert handled.state(0, 5) is handled.state(2, 3) is State.OPEN
    assert handled.replayed_source(("clicks", 1, 30))
    assert not handled.replayed_source(("clicks", 0, 30))
    assert not handled.replayed_source(("others", 1, 30))
