"""The policy's fluid queues against events that are served one after the other.

Events of a slot come together at its start, so fluid and events find the same work; the fluid
counts parts of an event, so that it differs by less than one event for each slot and consumer.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.fluid import late_by_stop, late_events

_COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=12)


def column(values: list[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Slots of one consumer."""
    return np.array(values, dtype=np.float64)[:, None]


def served_singly(
    joins: list[tuple[float, float]], mu: float, target: float, waiting: float = 0.0
) -> int:
    """Late events of (join, arrival) served in this order; `waiting` events are there at 0."""
    free, late = waiting / mu, 0
    for join, arrival in joins:
        free = max(free, join) + 1 / mu
        late += free - arrival > target + 1e-9
    return late


@pytest.mark.parametrize(
    ("arrivals", "waiting", "late", "after"),
    [
        pytest.param([10, 10], 0, [0, 0], [0, 0], id="what-is-served-at-once-is-in-time"),
        pytest.param([60, 0, 0], 0, [10, 0, 0], [50, 40, 30], id="of-sixty-fifty-are-in-time"),
        pytest.param([5, 5], 50, [5, 0], [45, 40], id="what-waits-comes-first"),
        pytest.param([0, 10], 1000, [0, 10], [990, 990], id="what-waits-is-not-late-itself"),
        pytest.param([0, 0, 20], 5, [0, 0, 0], [0, 0, 10], id="idle-time-is-not-saved"),
    ],
)
def test_late_events_by_hand(
    arrivals: list[float], waiting: float, late: list[float], after: list[float]
) -> None:
    # 100/s in slots of 0.1 s: ten events a slot, and fifty within half a second.
    found = late_events(column(arrivals), np.array([100.0]), 0.1, 0.5, waiting)
    assert found[0][:, 0].tolist() == pytest.approx(late)
    assert found[1][:, 0].tolist() == pytest.approx(after)


def test_each_consumer_has_its_own_queue() -> None:
    late, after = late_events(np.array([[60.0, 60.0]]), np.array([100.0, 200.0]), 0.1, 0.5)
    assert late.tolist() == [[10, 0]]
    assert after.tolist() == [[50, 40]]


def test_what_joins_goes_before_the_slot_s_arrivals_and_is_not_counted() -> None:
    late, after = late_events(
        column([10, 10]), np.array([100.0]), 0.1, 0.5, joining=column([0, 48])
    )
    assert late[:, 0].tolist() == [0, 8]
    assert after[:, 0].tolist() == [0, 48]


@given(
    counts=_COUNTS,
    waiting=st.integers(0, 80),
    mu=st.sampled_from([50.0, 73.0, 200.0]),
    target=st.sampled_from([0.05, 0.3, 1.0]),
)
def test_late_events_are_those_of_a_loop_over_events(
    counts: list[int], waiting: int, mu: float, target: float
) -> None:
    slot = 0.1
    joins = [(at * slot, at * slot) for at, count in enumerate(counts) for _ in range(count)]
    late, _ = late_events(column([*counts]), np.array([mu]), slot, target, float(waiting))
    assert late.sum() == pytest.approx(served_singly(joins, mu, target, waiting), abs=len(counts))


@given(counts=_COUNTS, more=st.integers(1, 40), at=st.integers(0, 11))
def test_one_event_more_is_never_fewer_late(counts: list[int], more: int, at: int) -> None:
    fuller = list(counts)
    fuller[at % len(counts)] += more
    few, _ = late_events(column([*counts]), np.array([100.0]), 0.1, 0.2)
    many, _ = late_events(column([*fuller]), np.array([100.0]), 0.1, 0.2)
    assert many.sum() >= few.sum() - 1e-9


@pytest.mark.parametrize(
    ("stop", "late"),
    [
        pytest.param(0.0, 0, id="no-stop"),
        pytest.param(0.3, 0, id="held-for-less-than-the-target"),
        # Four slots are held: 4 x 5 = 20 events join at 0.4 s. Those of slot 0 may take 0.1 s more,
        # ten events; so all of them are in time. The slots' own arrivals find 20 + 5 at most.
        pytest.param(0.4, 0, id="held-and-served-just-in-time"),
        # Six slots: the 5 of slot 0 have waited 0.6 s and those of slot 1 0.5 s; those of slot 2,
        # 11th to 15th, have 0.1 s left, ten events; of slot 3, 16th to 20th, twenty events.
        pytest.param(0.6, 15, id="held-for-too-long"),
    ],
)
def test_late_by_stop_by_hand(stop: float, late: float) -> None:
    arrivals = column([5] * 10)
    found = late_by_stop(arrivals, arrivals, np.array([100.0]), 0.1, 0.5, stop)
    assert found == pytest.approx(late)


@given(
    counts=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=12),
    still=st.integers(0, 12),
    mu=st.sampled_from([50.0, 110.0, 400.0]),
    target=st.sampled_from([0.05, 0.3, 1.0]),
)
def test_late_by_stop_is_that_of_a_loop_over_events(
    counts: list[tuple[int, int]], still: int, mu: float, target: float
) -> None:
    """counts: (events of partitions that stay, of those that move) by slot."""
    slot = 0.1
    still = min(still, len(counts) - 1)
    joins: list[tuple[float, float]] = []
    held: list[tuple[float, float]] = []
    for at, (stays, moves) in enumerate(counts):
        if at == still:
            joins += held
        joins += [(at * slot, at * slot)] * stays
        if at < still:
            held += [(still * slot, at * slot)] * moves
        else:
            joins += [(at * slot, at * slot)] * moves
    found = late_by_stop(
        column([stays + moves for stays, moves in counts]),
        column([moves for _, moves in counts]),
        np.array([mu]),
        slot,
        target,
        still * slot,
    )
    assert found == pytest.approx(served_singly(joins, mu, target), abs=len(counts) + still)


def test_a_stop_past_the_horizon_ends_in_its_last_slot() -> None:
    arrivals = column([5] * 4)
    args = (np.array([100.0]), 0.1, 0.05)
    longest = late_by_stop(arrivals, arrivals, *args, 0.3)
    assert late_by_stop(arrivals, arrivals, *args, 60.0) == longest == pytest.approx(20)
