"""The longest delay against closed forms, and against arrivals that are tried one by one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.policies.contract.curves import Flow, Supply, longest_delay

BOUNDED = Flow.full(100.0, 50.0)


@pytest.mark.parametrize(
    ("supply", "delay"),
    [
        pytest.param(((0.0, 200.0),), 50 / 200, id="a-burst-is-served-at-full-speed"),
        pytest.param(((0.0, 100.0),), 50 / 100, id="as-fast-as-it-comes"),
        pytest.param(((0.0, 99.0),), math.inf, id="too-slow-for-ever"),
        # It is served from 2 s on: later arrivals wait less, as they are served faster than they
        # come. Less than the closed form d + (b + r d) / (n mu), 2 + 250 / 200.
        pytest.param(((0.0, 0.0), (2.0, 200.0)), 2 + 50 / 200, id="rate-and-latency"),
        # At 2 s, 100 are served, of which the last came at 0.5 s: the next has waited longest.
        pytest.param(((0.0, 50.0), (2.0, 200.0)), 1.5, id="slow-at-first"),
    ],
)
def test_closed_forms(supply: tuple[tuple[float, float], ...], delay: float) -> None:
    assert longest_delay(BOUNDED, Supply(supply)) == pytest.approx(delay)


def test_what_waits_is_served_first() -> None:
    waiting = [(3.0, 40.0), (1.0, 60.0)]
    supply = Supply(((0.0, 100.0),))
    assert longest_delay(Flow(50.0, 20.0, 0.0, 50.0), supply, waiting) == pytest.approx(3.4)
    assert longest_delay(Flow(50.0, 20.0, 20.0, 50.0), supply, [(0.0, 100.0)]) == pytest.approx(1.2)


def test_only_what_comes_until_then_counts() -> None:
    slow = Supply(((0.0, 50.0),))
    assert longest_delay(BOUNDED, slow, until=0.0) == pytest.approx(1.0)
    assert longest_delay(BOUNDED, slow, until=3.0) == pytest.approx(1.0 + 3.0)


def test_an_empty_bucket_fills_up_before_its_burst() -> None:
    """It is whole at 0.5 s, but its burst is met worst at 0.2 s: those 20 take until 0.6 s, when
    more consumers come."""
    flow = Flow(100.0, 50.0, 0.0, 100.0)
    supply = Supply(((0.0, 50.0), (0.6, 1000.0)))
    assert longest_delay(flow, supply) == pytest.approx(0.4)


def delays(
    flow: Flow, supply: Supply, waiting: list[tuple[float, float]], start: float, ends: list[float]
) -> list[float]:
    """Of the last event by each of `ends`, if the most comes from `start` on."""
    ahead = sum(events for _, events in waiting) if start == 0 else 0.0
    served = supply.served(start)
    return [
        supply.when(served + ahead + flow.burst_at(start) + flow.rate * (end - start)) - end
        for end in ends
    ]


@given(
    rate=st.floats(1, 100),
    burst=st.floats(1, 100),
    filled=st.floats(0, 1),
    speeds=st.lists(st.tuples(st.floats(0.1, 3), st.floats(0, 60)), min_size=1, max_size=4),
    queue=st.lists(st.tuples(st.floats(0, 2), st.floats(1, 50)), max_size=3),
)
def test_no_arrivals_are_delayed_longer_and_some_are_delayed_so_long(
    rate: float,
    burst: float,
    filled: float,
    speeds: list[tuple[float, float]],
    queue: list[tuple[float, float]],
) -> None:
    at, speed, steps = 0.0, 5.0, []
    for lasts, more in speeds:
        steps.append((at, speed))
        at, speed = at + lasts, speed + more
    steps.append((at, max(speed, 1.01 * rate)))
    flow, supply = Flow(rate, burst, filled * burst, rate), Supply(tuple(steps))
    waiting = sorted(queue, reverse=True)
    found = longest_delay(flow, supply, waiting)
    tried = [0.0]
    last = at + flow.full_at
    starts, until = np.linspace(0, last, 100), last + 40
    for start in starts:
        ends = np.linspace(start, until, 200).tolist()
        tried += delays(flow, supply, waiting, float(start), ends)
    ahead = np.cumsum([events for _, events in waiting])
    tried += [age + supply.when(a) for (age, _), a in zip(waiting, ahead.tolist(), strict=True)]
    assert found >= max(tried) - 1e-6
    # The grid is coarse: a delay changes by no more than the time between two points, and as much
    # again for what comes meanwhile at the slowest speed.
    assert found <= max(tried) + (last / 100 + until / 200) * (1 + rate / 5.0) + 1e-6
