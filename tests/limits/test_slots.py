"""Slots that several programs sample alike."""

from hypothesis import example, given
from hypothesis import strategies as st

from srtm.limits.slots import HIGHEST_LEVEL, SLOT_NS, level_for, level_of, slot_of

START = 1_790_000_000_000_000_000  # ns, in 2026


def test_each_level_has_half_the_slots_of_the_one_before() -> None:
    levels = [level_of(slot_of(START) + number) for number in range(1 << 14)]
    for level in range(6):
        share = sum(each >= level for each in levels) / len(levels)
        assert abs(share * 2**level - 1) < 0.1


@given(st.integers(1, 500), st.integers(0, 4))
@example(351, 4)
def test_no_period_falls_in_with_them(period: int, level: int) -> None:
    levels = [level_of(slot_of(START) + number * period) for number in range(1 << 11)]
    share = sum(each >= level for each in levels) / len(levels)
    assert 0.5 < share * 2**level < 1.5


@given(st.floats(0, 1e9), st.floats(1, 1e6))
def test_the_level_leaves_no_more_than_asked_for(messages: float, most: float) -> None:
    level = level_for(messages, most)
    assert 0 <= level <= HIGHEST_LEVEL
    assert messages / 2**level <= most or level == HIGHEST_LEVEL
    assert level == 0 or messages / 2 ** (level - 1) > most


def test_a_slot_is_twenty_milliseconds() -> None:
    assert slot_of(START + SLOT_NS) == slot_of(START) + 1
