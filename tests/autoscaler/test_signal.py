"""The predicted latency over the SLO's target."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen
from srtm.autoscaler.signal import MOST, latency_signal
from srtm.limits.slo import SLO

SECOND = SLO(0.99, 1.0)


def seen(
    rates: list[float], mus: list[float], lags: list[float] | None = None, slots: int = 10
) -> Observation:
    """Partitions in turn to the consumers; what comes is even within the interval."""
    lags = lags or [0.0] * len(rates)
    partitions = tuple(
        PartitionSeen(n, rate, lag, (rate / slots,) * slots)
        for n, (rate, lag) in enumerate(zip(rates, lags, strict=True))
    )
    consumers = tuple(
        ConsumerSeen(f"c{n}", mu, tuple(range(n, len(rates), len(mus)))) for n, mu in enumerate(mus)
    )
    return Observation(0.0, partitions, consumers, 100.0, startup_seconds=4.0)


@pytest.mark.parametrize(
    ("rates", "mus", "lags", "expected"),
    [
        ([0.0], [100.0], None, 0.0),
        ([50.0], [100.0], None, 0.05),  # 5 events of a slot, of which the last takes 50 ms
        ([50.0], [100.0], [100.0], 1.04),  # 1 s of work stands before all but a few
        ([150.0], [100.0], None, 2.01),  # after 4 s 50/s too many: 200 events and a slot's 15
        ([50.0, 50.0], [100.0], None, 0.1),
        ([50.0], [], None, MOST),  # nobody serves
        ([5000.0], [100.0], None, MOST),
    ],
)
def test_values(
    rates: list[float], mus: list[float], lags: list[float] | None, expected: float
) -> None:
    assert latency_signal(seen(rates, mus, lags), SECOND, 1.0) == pytest.approx(expected, abs=0.12)


def test_a_partition_that_nobody_serves_counts_by_what_it_brings() -> None:
    found = seen([99.0, 1.0], [200.0])
    served = ConsumerSeen("c0", 200.0, (0,))
    lonely = Observation(0.0, found.partitions, (served,), 100.0, startup_seconds=4.0)
    assert latency_signal(lonely, SLO(0.9, 1.0), 1.0) < 1.0
    assert latency_signal(lonely, SLO(0.999, 1.0), 1.0) == MOST


@given(
    st.lists(st.floats(0, 300), min_size=1, max_size=6),
    st.lists(st.floats(20, 300), min_size=1, max_size=4),
    st.sampled_from([0.5, 0.9, 0.99, 0.999]),
    st.floats(0.1, 3),
)
def test_more_load_or_a_stricter_percentile_is_never_less(
    rates: list[float], mus: list[float], percentile: float, target: float
) -> None:
    slo, fully = SLO(percentile, target), SLO(min(0.9999, percentile + 0.05), target)
    found = latency_signal(seen(rates, mus), slo, 1.0)
    assert 0.0 <= found <= MOST
    assert math.isfinite(found)
    assert latency_signal(seen([1.5 * rate for rate in rates], mus), slo, 1.0) >= found - 1e-6
    assert latency_signal(seen(rates, mus), fully, 1.0) >= found - 1e-6
    assert latency_signal(seen(rates, [2 * mu for mu in mus]), slo, 1.0) <= found + 1e-6
