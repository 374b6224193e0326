"""Consumers that tell a journey, and what they could not tell it."""

import pytest

from srtm.journey.consumers import Consumers

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("told", "lost"),
    [
        pytest.param([0, 0], 0, id="nothing"),
        pytest.param([7], 7, id="before-the-journey-began"),
        pytest.param([7, 7, 9], 9, id="each-once"),
        pytest.param([7, 0, 2], 9, id="of-a-consumer-that-began-anew"),
    ],
)
def test_lost_messages_are_counted_once(told: list[int], lost: int) -> None:
    consumers = Consumers()
    for at, count in enumerate(told):
        consumers.told("a", count, 1, at * SECOND)
    consumers.told("b", 100, 0, 0)
    assert (consumers.lost, consumers.unknown) == (lost + 100, len(told))


def test_who_is_silent_is_gone_and_comes_back() -> None:
    consumers = Consumers()
    consumers.told("b", 5, 0, 0)
    consumers.told("a", 0, 0, SECOND)
    assert consumers.present(9 * SECOND) == ["a", "b"]
    assert consumers.present(10 * SECOND) == ["a"]
    assert consumers.present(11 * SECOND) == []
    consumers.told("b", 6, 0, 60 * SECOND)
    assert consumers.present(60 * SECOND) == ["b"]
    assert consumers.lost == 6


def test_made_up_names_take_no_more_room() -> None:
    consumers = Consumers()
    for number in range(5_000):
        consumers.told(f"made-up-{number}", 0, 0, number)
        consumers.told("honest", 3, 0, number)
    assert len(consumers.present(5_000)) == 1_000
    assert consumers.lost == 3
