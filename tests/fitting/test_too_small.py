"""Contracts that no placement can help."""

import numpy as np
import pytest

from distributor.fitting import Arrivals
from distributor.fitting.too_small import too_small
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO

SLO_1MS = SLO.parse("0.99@1ms")


def contract(rate: float, burst: float) -> Contract:
    return Contract(topic="t", rate=rate, burst=burst, slo=SLO_1MS)


def bursts(size: float, seconds: float = 60.0, apart: float = 0.1) -> Arrivals:
    times = np.arange(0, seconds, apart)
    return Arrivals(times, np.full(len(times), size))


@pytest.mark.parametrize(
    ("rate", "burst", "offered", "arrivals"),
    [
        pytest.param(1_100.0, 200.0, 1_000.0, None, id="nothing-seen"),
        pytest.param(1_100.0, 100.0, 1_000.0, bursts(100.0), id="each-burst-fits"),
        pytest.param(1_100.0, 99.7, 1_000.0, bursts(100.0), id="less-than-half-of-the-allowed"),
        pytest.param(1_100.0, 50.0, 1_000.0, bursts(100.0, 0.3), id="too-short-to-be-sure"),
        pytest.param(
            1_100.0, 9.0, 1_000.0, Arrivals(np.zeros(1), np.ones(1)), id="one-instant-is-no-rate"
        ),
    ],
)
def test_big_enough_as_far_as_is_known(
    rate: float, burst: float, offered: float, arrivals: Arrivals | None
) -> None:
    assert too_small(contract(rate, burst), SLO_1MS, offered, arrivals) is None


@pytest.mark.parametrize("offered", [1_000.0, 1_500.0], ids=["exactly-r", "over-r"])
def test_as_much_offered_as_the_token_rate(offered: float) -> None:
    found = too_small(contract(1_000.0, 100.0), SLO_1MS, offered, None)
    assert found is not None
    assert found.rate == pytest.approx(1.1 * offered)
    assert found.burst is None
    assert "contract too small: publishers declare" in found.reason
    assert "a b fitted to recorded arrivals would do" in found.reason


@pytest.mark.parametrize(
    ("rate", "burst", "offered", "arrivals"),
    [
        pytest.param(1_100.0, 80.0, 1_000.0, bursts(100.0), id="bursts-over-b"),
        pytest.param(1_000.0, 100.0, 1_000.0, bursts(100.0), id="no-spare-rate"),
        pytest.param(
            1_100.0, 98.0, 1_000.0, bursts(100.0, 120.0), id="alone-as-late-as-is-allowed"
        ),
        pytest.param(1_200.0, 300.0, 1_000.0, bursts(400.0), id="more-comes-than-is-declared"),
    ],
)
def test_what_would_do_does(rate: float, burst: float, offered: float, arrivals: Arrivals) -> None:
    found = too_small(contract(rate, burst), SLO_1MS, offered, arrivals)
    assert found is not None
    assert found.burst is not None
    better = contract(found.rate, found.burst)
    assert too_small(better, SLO_1MS, offered, arrivals) is None
    assert found.rate > rate or found.burst > burst
    assert "would do" in found.reason
    seen = float(arrivals.counts[1:].sum()) / arrivals.seconds
    assert found.rate == pytest.approx(1.1 * max(offered, seen))
