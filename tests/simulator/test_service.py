"""The model of a broker: its capacities, and the fit to those that were measured."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributor.simulator.service import Service, fit
from srtm.limits.slo import SLO

ONE_MS = SLO(0.99, 0.001)


@pytest.mark.parametrize(
    "capacities",
    [
        pytest.param({1: 50_000.0}, id="single-messages"),
        pytest.param({10: 80_000.0}, id="batches-alone"),
        pytest.param({1: 50_000.0, 10: 80_000.0}, id="both"),
        pytest.param({1: 500.0, 10: 500.0}, id="a-slow-broker"),
    ],
)
def test_a_fitted_broker_holds_what_was_measured(capacities: dict[int, float]) -> None:
    slo = replace(ONE_MS, target_seconds=50.0 / min(capacities.values()))
    service = fit(capacities, slo, base=slo.target_seconds / 5)
    for batch, rate in capacities.items():
        assert service.capacity(slo, batch) == pytest.approx(rate, rel=1e-6)
    assert service.latency(min(capacities.values()) / 2, 1, 0.99) < slo.target_seconds


def test_one_capacity_says_nothing_of_what_a_batch_costs() -> None:
    assert fit({1: 50_000.0}, ONE_MS).event == 0


def test_capacities_out_of_reach_give_the_nearest_broker() -> None:
    more = fit({1: 1_000.0, 10: 90_000.0}, ONE_MS)  # ten in a batch cannot be so cheap
    assert more.message == pytest.approx(0)
    less = fit({1: 50_000.0, 10: 1_000.0}, ONE_MS)  # nor cost more than ten alone
    assert less.event == 0


@given(factor=st.floats(0.01, 100), load=st.floats(0.1, 0.95), batch=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_a_slower_broker_is_the_same_in_slow_motion(factor: float, load: float, batch: int) -> None:
    service = Service(1e-4, 1e-5, 5e-6)
    slower = service.scaled(factor)
    rate = load * batch / service.batch(batch)
    found = slower.late_share(rate / factor, batch, 0.001 * factor)
    assert found == pytest.approx(service.late_share(rate, batch, 0.001), rel=1e-6, abs=1e-9)


@given(rate=st.floats(100, 1e6), batch=st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_more_traffic_is_never_earlier(rate: float, batch: int) -> None:
    service = Service(0.0, 1e-5, 5e-6)
    assert service.late_share(rate, batch, 0.001) <= service.late_share(1.1 * rate, batch, 0.001)


def test_overload_has_no_latency() -> None:
    service = Service(0.0, 0.0, 1e-3)
    assert service.latency(1_000, 1, 0.99) == float("inf")
    assert service.late_share(2_000, 1, 1.0) == 1.0


@pytest.mark.parametrize(
    ("capacities", "base", "says"),
    [
        pytest.param({}, 0.0, "one or two capacities", id="none"),
        pytest.param({1: 0.0}, 0.0, "above 0", id="nothing-held"),
        pytest.param({1: 1.0, 2: 1.0, 3: 1.0}, 0.0, "one or two", id="three"),
        pytest.param({1: 1_000.0}, 0.001, "leaves nothing", id="the-base-is-the-target"),
    ],
)
def test_a_fit_needs_something_to_go_by(
    capacities: dict[int, float], base: float, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        fit(capacities, ONE_MS, base)


def test_a_broker_takes_some_time() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Service(0.0, 0.0, 0.0)
