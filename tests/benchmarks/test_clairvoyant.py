"""The clairvoyant reference and the bound below it."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import (
    ArrivalModel,
    Arrivals,
    arrivals_by_partition,
    arrivals_of,
    even_shares,
)
from srtm.autoscaler.simulator.bound import late_by_owner, lower_bound
from srtm.autoscaler.simulator.clairvoyant import Clairvoyant, ReplicaPlan, plan
from srtm.autoscaler.simulator.descent import tidy
from srtm.autoscaler.simulator.grouping import groups_for, matched, moved_partitions
from srtm.autoscaler.simulator.path import Change, Costs, Schedule, cheapest
from srtm.autoscaler.simulator.play import play
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.autoscaler.simulator.workload import iot_like
from srtm.limits.slo import SLO
from tests.support.cases import cases

_SLO = SLO(0.99, 0.5)
_EFFORT = 0.05
"""Of a search in a test: a hundred runs or two."""


def _hill(seconds: int, top: float) -> list[float]:
    return [top * (1 - abs(2 * t / seconds - 1)) for t in range(seconds)]


def _small(model: ArrivalModel, top: float = 180.0, seconds: int = 20) -> Arrivals:
    return arrivals_of(_hill(seconds, top), even_shares(2), model, seed=3)


_CASES = [
    pytest.param(model, handover, rebalance, id=f"{model}-{handover}-{rebalance:g}s")
    for model in (ArrivalModel.BURST, ArrivalModel.POISSON)
    for handover in Handover
    for rebalance in (0.05, 2.0)
]


@pytest.mark.parametrize(("model", "handover", "rebalance"), _CASES)
def test_a_plan_plays_as_it_says_and_lies_above_its_bound(
    model: ArrivalModel, handover: Handover, rebalance: float
) -> None:
    arrivals = arrivals_of(iot_like(120), even_shares(5), model, seed=2)
    setting = Setting(_SLO, rebalance_seconds=rebalance, handover=handover, initial=2)

    found = plan(arrivals, setting, _EFFORT)
    run = simulate(Clairvoyant(found), arrivals, setting)

    assert run.sla_share == pytest.approx(found.share, abs=1e-12)
    assert run.replica_minutes == pytest.approx(found.replica_minutes, abs=1e-9)
    assert found.keeps_slo == (found.share >= _SLO.percentile - 1e-12)
    if found.keeps_slo:
        assert found.lower_bound <= found.replica_minutes + 1e-9


@pytest.mark.parametrize(
    ("model", "top", "handover"),
    [
        pytest.param(ArrivalModel.BURST, 180.0, Handover.EAGER, id="burst-eager"),
        pytest.param(ArrivalModel.BURST, 180.0, Handover.COOPERATIVE, id="burst-cooperative"),
        pytest.param(ArrivalModel.BURST, 180.0, Handover.DIRECT, id="burst-direct"),
        pytest.param(ArrivalModel.POISSON, 300.0, Handover.DIRECT, id="poisson-direct"),
    ],
)
def test_no_schedule_of_up_to_three_changes_is_cheaper(
    model: ArrivalModel, top: float, handover: Handover
) -> None:
    arrivals = _small(model, top)
    setting = Setting(
        SLO(0.9, 0.5),
        rebalance_seconds=0.05,
        handover=handover,
        startup_seconds=2.0,
        heartbeat_seconds=0.5,
    )
    groups = groups_for(arrivals, setting)
    allowed = arrivals.events * setting.slo.allowed_late_share + 1e-6

    cheapest_seconds = math.inf
    for count in range(4):
        for at in itertools.combinations(range(20), count):
            schedule = tuple(Change(tick, (n + 1) % 2) for n, tick in enumerate(at))
            played = play(schedule, groups, arrivals, setting)
            if played.late_events <= allowed:
                cheapest_seconds = min(cheapest_seconds, played.replica_seconds)
    found = plan(arrivals, setting, _EFFORT)

    assert cheapest_seconds < 40  # two for all the time
    assert found.keeps_slo
    assert found.replica_minutes * 60 <= cheapest_seconds + 1e-6
    assert found.lower_bound * 60 <= cheapest_seconds + 1e-6


@given(
    rates=st.lists(st.lists(st.integers(0, 260), min_size=8, max_size=8), min_size=1, max_size=3),
    model=st.sampled_from(ArrivalModel),
    changes=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), max_size=4),
    handover=st.sampled_from(Handover),
    percentile=st.sampled_from((0.5, 0.8, 0.99)),
    startup=st.sampled_from((0.0, 2.0, 3.4)),
    initial=st.integers(1, 3),
    target=st.sampled_from((0.5, 1.0, 1.3)),
)
@hypothesis_settings(max_examples=cases(200), deadline=None)
def test_no_schedule_that_keeps_the_slo_is_below_the_bound(
    rates: list[list[float]],
    model: ArrivalModel,
    changes: list[tuple[int, int]],
    handover: Handover,
    percentile: float,
    startup: float,
    initial: int,
    target: float,
) -> None:
    arrivals = arrivals_by_partition(rates, model, seed=1)
    setting = Setting(
        SLO(percentile, target),
        rebalance_seconds=0.05,
        handover=handover,
        startup_seconds=startup,
        heartbeat_seconds=0.2,
        initial=initial,
    )
    groups = groups_for(arrivals, setting)
    by_tick = {tick: Change(tick, group % len(groups)) for tick, group in changes}
    schedule: Schedule = tidy(tuple(by_tick[tick] for tick in sorted(by_tick)))

    played = play(schedule, groups, arrivals, setting)

    if played.late_events <= arrivals.events * (1 - percentile) + 1e-6:
        assert lower_bound(arrivals, setting) * 60 <= played.replica_seconds + 1e-6


def test_the_bound_is_met_where_nothing_is_lost() -> None:
    """All need two consumers from the start, which are there."""
    arrivals = arrivals_of([180.0] * 30, even_shares(2), ArrivalModel.BURST, seed=1)
    setting = Setting(SLO(0.999, 0.5), initial=2)

    found = plan(arrivals, setting, _EFFORT)

    # Two for 30 s; the bound lets the second go when the last second's events have come.
    assert found.replica_minutes * 60 == pytest.approx(60, abs=1.0)
    assert found.lower_bound * 60 == pytest.approx(59, abs=0.1)


def test_late_by_owner_takes_the_best_split() -> None:
    """100 a consumer are in time: of 70, 60, 40, 30 one leaves 100 late; two, split 70 + 30 and
    60 + 40, none."""
    arrivals = arrivals_by_partition([[70.0], [60.0], [40.0], [30.0]], ArrivalModel.BURST, seed=1)
    late = late_by_owner(arrivals, Setting(_SLO))

    assert late is not None
    assert late.tolist() == [[100, 0, 0, 0]]


def test_late_by_owner_is_for_bursts_only() -> None:
    assert late_by_owner(_small(ArrivalModel.POISSON), Setting(_SLO)) is None


@pytest.mark.parametrize("handover", Handover)
@pytest.mark.parametrize("model", [ArrivalModel.BURST, ArrivalModel.POISSON])
def test_it_costs_no_more_than_any_group_kept_for_good(
    model: ArrivalModel, handover: Handover
) -> None:
    arrivals = arrivals_of(iot_like(60), even_shares(3), model, seed=4)
    setting = Setting(SLO(0.9, 0.5), rebalance_seconds=0.5, handover=handover)
    groups = groups_for(arrivals, setting)
    constant = [play((), groups, arrivals, setting)] + [
        play((Change(0, group),), groups, arrivals, setting) for group in range(1, len(groups))
    ]
    kept = [p.replica_seconds for p in constant if p.late_events <= 0.1 * arrivals.events]

    found = plan(arrivals, setting, _EFFORT)

    assert kept
    assert found.keeps_slo
    assert found.replica_minutes * 60 <= min(kept) + 1e-6


def test_the_same_arguments_give_the_same_plan() -> None:
    arrivals = arrivals_of(iot_like(60), even_shares(5), ArrivalModel.POISSON, seed=5)
    setting = Setting(_SLO, handover=Handover.DIRECT, initial=2)

    assert plan(arrivals, setting, _EFFORT) == plan(arrivals, setting, _EFFORT)


def _check_infeasible(found: ReplicaPlan, says: str) -> None:
    assert not found.keeps_slo
    assert 0 < found.share < found.setting.slo.percentile
    assert f"{found.share:.4f}" in found.remedy
    assert says in found.remedy


def test_a_partition_above_mu_is_reported_with_the_best_share() -> None:
    arrivals = arrivals_of([400.0] * 30, (0.75, 0.25), ArrivalModel.POISSON, seed=1)

    found = plan(arrivals, Setting(_SLO, initial=2), _EFFORT)

    _check_infeasible(found, "partition 0 alone")
    assert found.lower_bound == math.inf


def test_a_peak_before_the_first_start_up_is_reported() -> None:
    rates = [300.0] * 4 + [20.0] * 26
    arrivals = arrivals_of(rates, even_shares(3), ArrivalModel.BURST, seed=1)

    found = plan(arrivals, Setting(_SLO, handover=Handover.DIRECT), _EFFORT)

    assert not found.keeps_slo
    assert f"{found.share:.4f}" in found.remedy


def test_no_events_need_the_smallest_group() -> None:
    arrivals = Arrivals((np.zeros(0), np.zeros(0)), 30)

    found = plan(arrivals, Setting(_SLO), _EFFORT)

    assert (found.share, found.replica_minutes, found.changes) == (1.0, 0.5, ())
    assert found.lower_bound == 0.5


def test_partitions_stay_where_most_of_them_are() -> None:
    before, after = ((0, 1, 2), (3, 4)), ((3, 4), (0,), (1, 2))

    assert matched(before, after) == [(0, 2), (1, 0)]
    assert moved_partitions(before, after) == (0,)


def test_groups_are_balanced_and_each_is_near_the_one_before() -> None:
    arrivals = arrivals_of([100.0] * 20, even_shares(5), ArrivalModel.BURST, seed=1)

    groups = groups_for(arrivals, Setting(_SLO))

    assert [sorted(map(len, parts)) for parts in groups] == [
        [5], [2, 3], [1, 2, 2], [1, 1, 1, 2], [1, 1, 1, 1, 1],
    ]  # fmt: skip
    assert [len(moved_partitions(a, b)) for a, b in itertools.pairwise(groups)] == [2, 1, 1, 1]


def test_the_path_launches_ahead_and_lets_go_at_once() -> None:
    """150 events/s in seconds 20..39 of 60, else 50: the second consumer, launched 5 s ahead."""
    rates = [50.0] * 20 + [150.0] * 20 + [50.0] * 20
    arrivals = arrivals_of(rates, even_shares(2), ArrivalModel.BURST, seed=1)
    setting = Setting(_SLO, handover=Handover.DIRECT, rebalance_seconds=0.05)
    groups = groups_for(arrivals, setting)

    schedule = cheapest(Costs(arrivals, setting, groups), price=1.0, handover_factor=1.0)

    assert schedule == (Change(14, 1), Change(39, 0))


def test_the_bound_counts_the_bill_of_a_start_up() -> None:
    """150 events/s in seconds 20..39 of 60, else 50: one for 60 s, and one more from 14.1, its
    launch, to 39.1 or later. The bound knows all but when within second 39 it may leave."""
    rates = [50.0] * 20 + [150.0] * 20 + [50.0] * 20
    arrivals = arrivals_of(rates, even_shares(2), ArrivalModel.BURST, seed=1)
    setting = Setting(SLO(0.9999, 0.5), handover=Handover.DIRECT, rebalance_seconds=0.05)
    groups = groups_for(arrivals, setting)

    played = play((Change(14, 1), Change(39, 0)), groups, arrivals, setting)

    assert played.late_events == 0
    assert 84 - 1 <= lower_bound(arrivals, setting) * 60 <= played.replica_seconds < 86


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param((), (), id="empty"),
        pytest.param((Change(3, 0),), (), id="to-where-it-is"),
        pytest.param((Change(3, 1), Change(5, 1)), (Change(3, 1),), id="twice-the-same"),
        pytest.param(
            (Change(3, 1), Change(5, 0)), (Change(3, 1), Change(5, 0)), id="there-and-back"
        ),
    ],
)
def test_tidy(schedule: Schedule, expected: Schedule) -> None:
    assert tidy(schedule) == expected
