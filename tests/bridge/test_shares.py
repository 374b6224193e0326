"""RDY over the nsqds of a route: what waits stays within the route's bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.bridge.hosts import shares_of


@pytest.mark.parametrize(
    ("total", "held", "waiting", "shares"),
    [
        pytest.param(2500, [], 10, [], id="nobody-is-there"),
        pytest.param(2500, [0], 0, [2500], id="one"),
        pytest.param(2500, [2500], 2500, [2500], id="one-that-is-full"),
        pytest.param(2500, [700, 0], 700, [1250, 1250], id="two"),
        pytest.param(2, [0, 0, 0], 0, [1, 1, 1], id="one-each-at-least"),
        pytest.param(2500, [0], 2400, [100], id="deliveries-of-a-connection-that-broke"),
        pytest.param(2500, [0, 0], 2500, [0, 0], id="nothing-new-while-they-fill-the-bound"),
        pytest.param(2500, [2400], 2500, [2400], id="nsqd-has-given-most-of-them-again"),
        pytest.param(2500, [2500, 0], 2500, [1250, 0], id="one-joins-while-the-other-is-full"),
        pytest.param(2500, [2000, 0], 2000, [1250, 500], id="and-gets-what-is-finished"),
    ],
)
def test_shares(total: int, held: list[int], waiting: int, shares: list[int]) -> None:
    assert shares_of(total, held, waiting) == shares


@given(st.integers(1, 5000), st.lists(st.integers(0, 3000), max_size=8), st.integers(0, 6000))
def test_no_delivery_leads_over_the_bound(total: int, held: list[int], orphans: int) -> None:
    waiting = sum(held) + orphans
    shares = shares_of(total, held, waiting)
    most = sum(map(max, zip(shares, held, strict=True))) + orphans
    assert most <= max(total, waiting) + len(held)
