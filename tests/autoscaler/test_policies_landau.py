"""Landau's sentinel: its three triggers, group management, and the packings that it runs."""

import pytest

from srtm.autoscaler.decision import Action, Handover
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.packing import least_loaded
from srtm.autoscaler.policies import POLICIES, Settings
from srtm.autoscaler.policies.landau import Landau, State
from srtm.limits.slo import SLO
from tests.autoscaler.test_policies import check, drive, make, seen

SETTINGS = Settings(SLO(0.99, 0.5), mu=200.0)
"""CONSUMER_CAPACITY 200/s, ALGORITHM_CAPACITY 150/s."""
TWO = {"c0": [0, 1], "c1": [2]}


def sentinel() -> Landau:
    return Landau("landau", SETTINGS, least_loaded)


@pytest.mark.parametrize(
    ("observation", "trigger"),
    [
        pytest.param(seen([100, 100, 50], TWO), None, id="at CONSUMER_CAPACITY: none"),
        pytest.param(seen([100, 101, 50], TWO), "consumer c0 is over its capacity", id="over it"),
        pytest.param(
            seen([10, 10, 10, 10], TWO), "1 of 4 partitions are not assigned", id="unassigned"
        ),
        pytest.param(seen([10] * 3, TWO, [900] * 3), None, id="lag is none of its business"),
    ],
)
def test_triggers(observation: Observation, trigger: str | None) -> None:
    decision = sentinel().decide(observation)
    check(decision, observation)
    if trigger is None:
        assert decision.action is Action.NONE
        assert decision.reason.startswith("sentinel")
    else:
        assert decision.action is not Action.NONE
        assert decision.reason.startswith(trigger)
        assert decision.handover is Handover.DIRECT


def test_max_s1_time_is_what_scales_down() -> None:
    policy = sentinel()
    observations = [seen([20, 20, 20], TWO, at=float(at)) for at in range(31)]
    decisions = drive(policy, observations)
    assert [d.action for d in decisions] == [Action.NONE] * 30 + [Action.DOWN]
    assert "MAX_S1_TIME" in decisions[-1].reason


def test_the_sentinels_time_begins_when_group_management_is_done() -> None:
    policy = sentinel()
    first = policy.decide(seen([100, 101, 50], TWO, at=0.0))
    assert first.action is Action.REASSIGN  # 101 alone: 101 + 50 exceed 150
    after = {"c0": [0, 2], "c1": [1]}
    moving = [seen([20] * 3, after, at=float(at), rebalancing=True) for at in range(1, 10)]
    assert {d.action for d in drive(policy, moving)} == {Action.NONE}
    assert policy.state is State.MANAGE
    settled = [seen([20] * 3, after, at=float(at)) for at in range(10, 41)]
    decisions = drive(policy, settled)
    assert [d.action for d in decisions] == [Action.NONE] * 30 + [Action.DOWN]


def test_the_sentinels_time_begins_anew_when_the_clock_goes_back() -> None:
    policy = sentinel()
    before = [seen([20, 20, 20], TWO, at=float(at)) for at in range(1000, 1010)]
    after = [seen([20, 20, 20], TWO, at=float(at)) for at in range(31)]
    decisions = drive(policy, before + after)
    assert [i for i, d in enumerate(decisions) if d.action is Action.DOWN] == [40]


def test_a_consumer_that_starts_is_waited_for() -> None:
    policy = sentinel()
    assert policy.decide(seen([150, 150], {"c0": [0, 1]}, at=0.0)).action is Action.UP
    pending = {"c0": [0], "c1": [1]}
    wait = policy.decide(seen([150, 250], pending, at=1.0, starting=["c1"]))
    assert wait.action is Action.NONE
    assert wait.reason.startswith("group management")


def test_a_timeout_that_changes_nothing_goes_back_to_watching() -> None:
    policy = sentinel()
    groups = {"c0": [0], "c1": [1]}
    decisions = drive(policy, [seen([100, 100], groups, at=float(at)) for at in range(62)])
    assert {d.action for d in decisions} == {Action.NONE}
    assert policy.state is State.SENTINEL
    assert ["MAX_S1_TIME" in d.reason for d in decisions].count(True) == 2


def test_a_partition_over_algorithm_capacity_is_said_to_be_alone() -> None:
    decision = sentinel().decide(seen([160, 50], {"c0": [0, 1]}))
    assert sorted(m.partitions for m in decision.members) == [(0,), (1,)]
    assert any("partition 0 exceeds ALGORITHM_CAPACITY" in note for note in decision.notes)


@pytest.mark.parametrize("name", [name for name in POLICIES if name.startswith("landau-")])
def test_every_packing_keeps_to_algorithm_capacity(name: str) -> None:
    rates = [80.0, 70.0, 60.0, 50.0, 40.0]
    decision = make(name).decide(seen(rates, {"c0": [0, 1, 2, 3, 4]}))
    assert decision.action is Action.UP
    for member in decision.members:
        assert sum(rates[p] for p in member.partitions) <= 150.0
