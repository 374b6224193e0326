"""What one simulated group hands to the next: every event once, and none before it was served."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of, even_shares
from srtm.autoscaler.simulator.chain import end_to_end, feed
from srtm.autoscaler.simulator.run import Run, simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO
from tests.support.cases import cases
from tests.support.simulator_policies import Scripted, anything

SETTING = Setting(SLO(0.99, 0.5), mu=50.0, startup_seconds=1.0)


def run_of(
    rates: list[float], model: ArrivalModel = ArrivalModel.SMOOTH, seed: int | None = None
) -> Run:
    """seed: of decisions; None: nothing is decided"""
    policy = Scripted() if seed is None else Scripted(anything(seed))
    return simulate(policy, arrivals_of(rates, even_shares(3), model, 1), SETTING)


@settings(max_examples=cases(60))
@given(
    rates=st.lists(st.floats(0, 200), min_size=1, max_size=15),
    model=st.sampled_from(ArrivalModel),
    handover=st.sampled_from(Handover),
    seed=st.integers(0, 99),
    shares=st.sampled_from([(1.0,), (0.5, 0.5), (0.7, 0.0, 0.2, 0.1)]),
)
def test_every_event_passes_each_group_once_and_later(
    rates: list[float],
    model: ArrivalModel,
    handover: Handover,
    seed: int,
    shares: tuple[float, ...],
) -> None:
    first = run_of(rates, model, seed)
    fed = feed(first, shares, seed)
    assert fed.arrivals.events == len(first.latency)
    assert sorted(fed.source) == list(range(len(first.latency)))
    for times, share in zip(fed.arrivals.times, shares, strict=True):
        assert (np.diff(times) >= 0).all()
        assert ((times > 0) & (times < fed.arrivals.seconds)).all()
        assert share or not len(times)
    setting = replace(SETTING, mu=80.0, handover=handover)
    last = simulate(Scripted(anything(seed + 1)), fed.arrivals, setting)
    assert np.array_equal(last.arrived, (first.arrived + first.latency)[fed.source])
    whole = end_to_end(first, [(fed, last)])
    assert (whole >= first.latency + 1 / setting.mu - 1e-9).all()
    assert np.sort((first.arrived + whole)[fed.source]) == pytest.approx(
        np.sort(last.arrived + last.latency)
    )


def test_an_event_that_is_never_served_is_not_handed_on() -> None:
    first = run_of([10.0] * 3)
    latency = first.latency.copy()
    latency[[4, 7]] = np.inf
    lost = replace(first, latency=latency)
    fed = feed(lost, (1.0,), 1)
    assert fed.arrivals.events == len(latency) - 2
    whole = end_to_end(lost, [(fed, simulate(Scripted(), fed.arrivals, SETTING))])
    assert np.flatnonzero(np.isinf(whole)).tolist() == [4, 7]


def test_nothing_served_is_nothing_handed_on() -> None:
    fed = feed(run_of([0.0] * 5), (0.5, 0.5), 1)
    assert fed.arrivals.events == 0
    assert fed.arrivals.seconds == 5
    assert [len(times) for times in fed.arrivals.times] == [0, 0]


def test_events_that_end_after_the_workload_still_arrive() -> None:
    fed = feed(run_of([200.0]), (1.0,), 1)
    assert fed.arrivals.events == 200
    assert fed.arrivals.seconds > 3.9, "50 of them a second"


def test_the_seed_decides_the_partitions_and_no_time() -> None:
    run = run_of([40.0] * 5)
    one, same, other = (feed(run, (0.5, 0.5), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.arrivals.times[0], same.arrivals.times[0])
    assert not np.array_equal(one.arrivals.times[0], other.arrivals.times[0])
    assert np.array_equal(*(np.sort(np.concatenate(f.arrivals.times)) for f in (one, other)))


def test_partitions_are_drawn_by_their_shares() -> None:
    fed = feed(run_of([60.0] * 60), (0.25, 0.25, 0.5), 3)
    counts = [len(times) for times in fed.arrivals.times]
    assert counts == pytest.approx([900, 900, 1800], rel=0.1)


def test_shares_that_are_no_split_are_refused() -> None:
    with pytest.raises(ValueError, match="they must sum to 1"):
        feed(run_of([1.0]), (0.5,), 1)
