"""Lines that strangers can cause are few, and say how many they stand for."""

from srtm.host.seldom import Seldom


def test_one_line_in_a_period_stands_for_all_since_the_last() -> None:
    now = 100.0
    lines = Seldom(60.0, lambda: now)
    assert [lines.count() for _ in range(4)] == [1, 0, 0, 0]
    now += 59.9
    assert lines.count() == 0
    now += 0.1
    assert lines.count() == 5
    assert lines.count() == 0


def test_the_first_is_written_whatever_the_clock_says() -> None:
    assert Seldom(60.0, lambda: 0.0).count() == 1
