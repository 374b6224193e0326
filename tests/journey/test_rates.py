"""Arrivals by the second, from answers of gateways."""

from typing import Any

import pytest

from srtm.journey.rates import KEPT_SECONDS, Rates

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
NOW = START + 20 * SECOND


def told(begun: float, ended: float, count: int) -> dict[str, Any]:
    """An answer about a span, in seconds from START."""
    span = [START + int(begun * SECOND), START + int(ended * SECOND)]
    return {"span": span, "count": count}


def test_messages_are_spread_over_their_span() -> None:
    rates = Rates()
    rates.add(told(0.5, 2.5, 40))
    rates.add(told(1.0, 2.0, 5))
    assert rates.last(NOW)[:4] == [10, 25, 10, 0]


def test_a_span_within_a_moment_counts_in_its_second() -> None:
    rates = Rates()
    rates.add(told(1.25, 1.25, 3))
    assert rates.last(NOW)[0] == 3


def test_seconds_that_gateways_may_still_tell_of_are_left_out() -> None:
    rates = Rates()
    rates.add(told(0, 20, 20))
    assert rates.last(NOW) == [1] * 15


def test_what_is_too_old_is_forgotten() -> None:
    rates = Rates()
    for number in range(3 * KEPT_SECONDS):
        rates.add(told(number, number + 0.5, 1))
    assert len(rates._seconds) <= 2 * KEPT_SECONDS + 1
    assert len(rates.last(START + 3 * KEPT_SECONDS * SECOND)) <= KEPT_SECONDS
    assert Rates().last(NOW) == []


def test_a_clock_that_was_ahead_for_a_while_costs_only_what_it_told() -> None:
    rates = Rates()
    for number in range(60):
        rates.add(told(3600 + number, 3600 + number + 0.5, 1))
    for number in range(3 * KEPT_SECONDS):
        rates.add(told(number, number + 0.5, 1))
    assert len(rates.last(START + 3 * KEPT_SECONDS * SECOND)) > KEPT_SECONDS - 10


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"count": -1, "span": [0, 1]},
        {"count": 1, "span": [5, 1]},
        {"count": 1, "span": [-5, 1]},
        {"count": 1, "span": [0, 1 << 62]},
        {"count": 1, "span": [0]},
        {"count": float("nan"), "span": [0, 1]},
        [],
    ],
)
def test_what_is_no_answer_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="/arrivals"):
        Rates().add(document)
