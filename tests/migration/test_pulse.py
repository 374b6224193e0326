"""A broker's reports: when is it in trouble?"""

from random import Random

import pytest

from distributor.migration import Pulse
from distributor.migration.pulse import Slot

ALLOWED = {"t": 0.01}
ALL = {"t": 1.0}


def told(
    rates: list[float], late: list[float] | None = None, since: float = 0.0, seconds: float = 1.0
) -> Pulse:
    """A report a second: messages that came, and how many of as many were late."""
    pulse = Pulse(since)
    for number, rate in enumerate(rates):
        slot = Slot(
            since + number * seconds,
            since + (number + 1) * seconds,
            {"t": rate * seconds},
            {"t": (rate * seconds, late[number] if late else 0.0)},
        )
        pulse.receive(slot, ALLOWED)
    return pulse


@pytest.mark.parametrize(
    ("rates", "is_in_trouble"),
    [
        pytest.param([250.0] * 10, True, id="a-whole-window"),
        pytest.param([190.0] * 5 + [400.0] * 5, False, id="half-a-window-is-not-enough"),
        pytest.param([900.0] * 5 + [190.0] * 5, False, id="it-is-over"),
        pytest.param([190.0] * 30, False, id="within-its-capacity"),
        pytest.param([190.0] * 30 + [230.0] * 10, True, id="only-the-last-window-counts"),
    ],
)
def test_overload(rates: list[float], is_in_trouble: bool) -> None:
    pulse = told(rates)
    assert pulse.is_fresh(float(len(rates)))
    found = pulse.trouble(200.0, ALL, ALLOWED)
    assert (found is not None) == is_in_trouble
    if found:
        assert (found.holds, found.load) == (200.0, rates[-1])
        assert "come to it, and it holds 200 messages/s within its SLO" in found.reason


def test_what_the_contract_holds_back_is_no_load() -> None:
    """300/s come to a topic of 150/s: the broker gets half."""
    assert told([300.0] * 10).trouble(200.0, {"t": 0.5}, ALLOWED) is None
    assert told([300.0] * 10).trouble(0.0, ALL, ALLOWED) is None, "its capacity is not known"


@pytest.mark.parametrize(
    ("count", "now", "is_fresh"),
    [(10, 10.0, True), (9, 9.0, True), (8, 8.0, False), (10, 12.0, True), (10, 13.0, False)],
)
def test_fresh_is_a_whole_window_up_to_now(count: int, now: float, is_fresh: bool) -> None:
    assert told([1.0] * count).is_fresh(now) == is_fresh


def test_what_came_before_a_move_is_forgotten() -> None:
    pulse = told([250.0] * 10, [50.0] * 10)
    pulse.restart(10.0)
    assert not pulse.is_fresh(10.0)
    pulse.receive(Slot(9.5, 10.5, {"t": 900.0}), ALLOWED)  # it began before
    assert pulse.loads() == {}
    pulse.receive(Slot(10.0, 11.0, {"t": 90.0}), ALLOWED)
    assert pulse.loads() == {"t": 90.0}


@pytest.mark.parametrize(
    ("late", "is_in_trouble"),
    [
        pytest.param([0.0] * 30, False, id="never"),
        pytest.param([100.0] * 30, True, id="a-fifth-all-the-time"),
        pytest.param([0.0] * 30 + [100.0] * 12, True, id="since-a-window"),
        pytest.param([100.0] * 30 + [0.0] * 5, False, id="it-is-over"),
        pytest.param([0.0] * 20 + [500.0] + [0.0] * 9, False, id="one-stall"),
        pytest.param([0.0] * 25 + [100.0] * 5, False, id="for-less-than-a-window"),
        pytest.param([1.0] * 90, False, id="less-than-allowed"),
    ],
)
def test_lateness(late: list[float], is_in_trouble: bool) -> None:
    found = told([500.0] * len(late), late).trouble(10_000.0, ALL, ALLOWED)
    assert (found is not None) == is_in_trouble
    if found:
        assert found.load == 500.0
        assert found.holds == pytest.approx(450.0)
        assert "late there even without their token wait (allowed 1.00%)" in found.reason


def test_a_broker_at_half_of_what_is_allowed_is_never_in_trouble() -> None:
    """Late messages in clumps of 20, an hour."""
    random = Random(5)
    late = [sum(20.0 for _ in range(25) if random.random() < 0.005) for _ in range(3600)]
    assert 0.004 < sum(late) / 1_800_000 < 0.006
    pulse = Pulse(0.0)
    for number, each in enumerate(late):
        pulse.receive(Slot(number, number + 1, {"t": 500.0}, {"t": (500.0, each)}), ALLOWED)
        if number >= 10:
            assert pulse.trouble(10_000.0, ALL, ALLOWED) is None


def test_publishers_are_counted_once_they_were_asked_for_long_enough() -> None:
    pulse = told([100.0] * 10)
    assert pulse.senders() is None
    for number in range(10, 15):
        pulse.receive(
            Slot(number, number + 1, {"t": 100.0}, {}, {"t": {"p1": 60.0, "": 40.0}}), ALLOWED
        )
    assert pulse.senders() == {"t": {"p1": 60.0, "": 40.0}}
