"""CLOSER, ICCBDC, linear and provisioning: traces worked by hand from their pseudo-code."""

from collections.abc import Sequence

import pytest

from srtm.autoscaler.decision import Action, Decision, Handover
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.packing import least_loaded_ffd
from srtm.autoscaler.policies import Settings, Trace, replicas_per_second
from srtm.autoscaler.policies.closer import (
    Closer1,
    Closer2,
    Scaling,
    assignment_violates_the_sla,
    scale_needed,
)
from srtm.autoscaler.policies.iccbdc import Iccbdc, IccbdcCounts
from srtm.autoscaler.policies.linear import Linear, linear_count
from srtm.autoscaler.policies.provisioned import Optimal, Peak
from srtm.limits.slo import SLO
from tests.autoscaler.test_policies import check, drive, make, seen

SETTINGS = Settings(SLO(0.99, 0.5), mu=200.0)
"""mu 200/s, w_sla 500 ms, (0.9, 0.4): bins of 180/s and 90 events up, 80/s and 40 down."""


def groups_of(decision: Decision) -> dict[str | None, tuple[int, ...]]:
    return {member.consumer: tuple(sorted(member.partitions)) for member in decision.members}


# --- CLOSER, Algorithm 1 and scaleNeeded ---------------------------------------------------------


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        pytest.param(seen([90, 90], {"c0": [0, 1]}), None, id="180/s is mu * f_up: it fits"),
        pytest.param(seen([91, 90], {"c0": [0, 1]}), Scaling.UP, id="181/s does not"),
        pytest.param(seen([1, 1], {"c0": [0, 1]}, [45, 45]), None, id="90 events fit"),
        pytest.param(seen([1, 1], {"c0": [0, 1]}, [46, 45]), Scaling.UP, id="91 do not"),
        pytest.param(
            seen([40, 40], {"c0": [0], "c1": [1]}), Scaling.DOWN, id="80/s is mu * f_down: it fits"
        ),
        pytest.param(seen([41, 40], {"c0": [0], "c1": [1]}), None, id="81/s does not: no down"),
        pytest.param(
            seen([10, 10], {"c0": [0], "c1": [1]}, [20, 20]), Scaling.DOWN, id="40 events go down"
        ),
        pytest.param(
            seen([10, 10], {"c0": [0], "c1": [1]}, [21, 20]), None, id="41 events do not go down"
        ),
        pytest.param(
            seen([100, 90, 60], {"c0": [0, 1], "c1": [2]}), Scaling.REASS, id="190/s on one of two"
        ),
        pytest.param(
            seen([60, 60, 60], {"c0": [0, 1], "c1": []}), Scaling.REASS, id="one has no owner"
        ),
        pytest.param(seen([1], {}), Scaling.UP, id="nobody is there"),
    ],
)
def test_scale_needed(observation: Observation, action: Scaling | None) -> None:
    assert scale_needed(observation, SETTINGS) == action


@pytest.mark.parametrize(
    ("rates", "lags", "violates"),
    [
        pytest.param([180], [90], False, id="both at the limit"),
        pytest.param([180.1], [0], True, id="rate over"),
        pytest.param([0], [90.1], True, id="lag over"),
        pytest.param([250], [0], True, id="more than mu"),
    ],
)
def test_assignment_violates_the_sla(
    rates: Sequence[float], lags: Sequence[float], violates: bool
) -> None:
    observation = seen(rates, {"c0": [0]}, lags)
    assert assignment_violates_the_sla(observation, 0.9, 0.5) is violates


def test_algorithm_1_scales_up_by_what_is_missing() -> None:
    observation = seen([70] * 5, {"c0": [0, 1, 2, 3, 4]})
    decision = Closer1("closer1", SETTINGS).decide(observation)
    check(decision, observation)
    assert decision.action is Action.UP
    assert sorted(len(m.partitions) for m in decision.members) == [1, 2, 2]  # 140/s each at most
    assert [m.consumer for m in decision.members].count(None) == 2
    assert decision.reason == "1 consumer at 0.9 of mu do not hold 350/s and 0 events: 3 do"


def test_algorithm_1_scales_down_by_the_packing_at_f_down() -> None:
    groups = {"c0": [0, 1], "c1": [2, 3], "c2": [4]}
    decision = Closer1("closer1", SETTINGS).decide(seen([30] * 5, groups))  # 2 * 30 <= 80 < 3 * 30
    assert decision.action is Action.NONE
    decision = Closer1("closer1", SETTINGS).decide(seen([26] * 5, groups))  # 3 * 26 <= 80
    assert decision.action is Action.DOWN
    assert len(decision.members) == 2


def test_algorithm_1_reassigns_with_as_many_consumers() -> None:
    observation = seen([100, 90, 60], {"c0": [0, 1], "c1": [2]})
    decision = Closer1("closer1", SETTINGS).decide(observation)
    check(decision, observation)
    assert decision.action is Action.REASSIGN
    assert groups_of(decision) == {"c0": (0,), "c1": (1, 2)}


def test_ranked_by_rate_alone_lag_decides_only_what_fits() -> None:
    """180/s and 90 events for each: 0 has the lag and 1 the rate. In two dimensions 0 is the
    largest and 2 goes to 1; by rate 1 is, and 2 goes to where the rate is small: to 0."""
    observation = seen([20, 100, 75], {"c0": [0, 1, 2], "c1": []}, [80, 10, 5])
    two = Closer1("closer1", SETTINGS).decide(observation)
    rate = Closer1("closer1-rate", SETTINGS, least_loaded_ffd).decide(observation)
    assert sorted(groups_of(two).values()) == [(0,), (1, 2)]
    assert sorted(groups_of(rate).values()) == [(0, 2), (1,)]


def test_a_reassignment_into_fewer_bins_ends_nobody() -> None:
    """65 + 60 fit one consumer at 180/s; 3 consumers at 80/s are needed, and there are 3."""
    observation = seen([65, 60, 70], {"c0": [0, 1, 2], "c1": [], "c2": []})
    decision = Closer1("closer1", SETTINGS).decide(observation)
    check(decision, observation)
    assert decision.action is Action.REASSIGN
    assert len(decision.members) == 3
    assert sorted(len(member.partitions) for member in decision.members) == [0, 1, 2]


def test_a_rebalance_that_changes_nothing_is_left_out() -> None:
    observation = seen([50, 50], {"c0": [0], "c1": [1]}, [100, 100])  # each has one of its own
    decision = Closer1("closer1", SETTINGS).decide(observation)
    assert decision.action is Action.NONE
    assert "the group that is there already" in decision.reason
    assert sum("one of its own" in note for note in decision.notes) == 2


def test_a_partition_above_mu_gets_a_consumer_of_its_own() -> None:
    decision = Closer1("closer1", SETTINGS).decide(seen([250, 20, 20], {"c0": [0, 1, 2]}))
    assert sorted(groups_of(decision).values()) == [(0,), (1, 2)]
    assert any("partition 0 exceeds a consumer at f_up" in note for note in decision.notes)


@pytest.mark.parametrize("policy", [Closer1, Closer2, Iccbdc])
def test_nothing_is_decided_during_a_rebalance(policy: type[Closer1 | Closer2 | Iccbdc]) -> None:
    busy = seen([70] * 5, {"c0": [0, 1, 2, 3, 4]}, [300] * 5, rebalancing=True)
    assert policy("x", SETTINGS).decide(busy).action is Action.NONE
    idle = seen([70] * 5, {"c0": [0, 1, 2, 3, 4]}, [300] * 5)
    assert policy("x", SETTINGS).decide(idle).action is Action.UP


def test_a_starting_consumer_counts() -> None:
    groups = {"c0": [0, 1, 2], "c1": [3, 4]}
    observation = seen([60] * 5, groups, starting=["c1"])  # 300/s: two at 180/s
    assert Closer1("closer1", SETTINGS).decide(observation).action is Action.NONE


# --- CLOSER, Algorithm 2 -------------------------------------------------------------------------


def test_algorithm_2_adds_what_arrives_during_the_rebalance() -> None:
    """At 2 s each partition of 70/s will have 140 events, more than 90: five consumers, not 3."""
    observation = seen([70] * 5, {"c0": [0, 1, 2, 3, 4]}, rebalance_seconds=2.0)
    one = Closer1("closer1", SETTINGS).decide(observation)
    two = Closer2("closer2", SETTINGS).decide(observation)
    assert (len(one.members), len(two.members)) == (3, 5)


def test_algorithm_2_does_not_go_down_into_lag() -> None:
    """26/s * 2 s = 52 events each: more than the 40 of a consumer at f_down."""
    groups = {"c0": [0, 1], "c1": [2, 3], "c2": [4]}
    observation = seen([26] * 5, groups, rebalance_seconds=2.0)
    assert Closer1("closer1", SETTINGS).decide(observation).action is Action.DOWN
    decision = Closer2("closer2", SETTINGS).decide(observation)
    assert decision.action is Action.NONE
    assert "not with what a rebalance of 2 s adds" in decision.reason


def test_algorithm_2_may_scale_up_to_reassign() -> None:
    observation = seen([100, 90, 60], {"c0": [0, 1], "c1": [2]}, rebalance_seconds=0.6)
    decision = Closer2("closer2", SETTINGS).decide(
        observation
    )  # lag 60, 54, 36: no two but 54 + 36
    assert decision.action is Action.REASSIGN
    observation = seen([100, 90, 60], {"c0": [0, 1], "c1": [2]}, rebalance_seconds=0.7)
    decision = Closer2("closer2", SETTINGS).decide(observation)  # 70, 63, 42: no two at all
    assert decision.action is Action.UP


# --- ICCBDC --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "lags", "count"),
    [
        pytest.param([100, 100], [50, 50], 1, id="at mu and at mu * w_sla"),
        pytest.param([101, 100], [0, 0], 2, id="over mu"),
        pytest.param([1, 1], [51, 50], 2, id="over mu * w_sla"),
        pytest.param([120, 120, 80, 80], [0] * 4, 2, id="largest first, to the least loaded"),
    ],
)
def test_auto_scale_cg_counts(rates: Sequence[float], lags: Sequence[float], count: int) -> None:
    observation = seen(rates, {}, lags)
    decision = Iccbdc("iccbdc", SETTINGS).decide(observation)
    assert len(decision.members) == count


def test_lag_is_clamped_to_what_a_consumer_serves_in_time_and_said() -> None:
    observation = seen([10, 10], {"c0": [0, 1]}, [5000, 3])
    decision = Iccbdc("iccbdc", SETTINGS).decide(observation)
    assert sorted(groups_of(decision).values()) == [(0,), (1,)]
    note = "partition 0 has more than 100 events (mu * w_sla): it counts as 100"
    assert any(note in each for each in decision.notes)


def test_a_clamped_partition_shares_with_one_that_has_no_lag() -> None:
    """Unclamped it would exceed every bin, and have a consumer of its own."""
    assert Iccbdc("iccbdc", SETTINGS).decide(seen([10, 10], {}, [5000, 0])).members[
        0
    ].partitions == (
        0,
        1,
    )


def test_a_cooldown_suspends_scaling_but_no_reassignment() -> None:
    settings = Settings(SLO(0.99, 0.5), mu=200.0, cooldown_seconds=30.0)
    policy = Iccbdc("iccbdc", settings)
    two, four = {"c0": [0], "c1": [1]}, [150, 150]
    assert policy.decide(seen(four, {"c0": [0, 1]}, at=0.0)).action is Action.UP
    down = policy.decide(seen([10, 10], two, at=29.9))
    assert down.action is Action.NONE
    assert "cooldown for 0.1 s more" in down.reason
    three = seen([110, 90, 90], {"c0": [0, 1, 2], "c1": []}, at=29.95)
    assert policy.decide(three).action is Action.REASSIGN
    assert policy.decide(seen([10, 10], two, at=30.0)).action is Action.DOWN


def test_without_a_cooldown_the_count_follows_at_once() -> None:
    policy = Iccbdc("iccbdc", SETTINGS)
    assert policy.decide(seen([150, 150], {"c0": [0, 1]}, at=0.0)).action is Action.UP
    assert policy.decide(seen([10, 10], {"c0": [0], "c1": [1]}, at=1.0)).action is Action.DOWN


@pytest.mark.parametrize(
    ("name", "handover", "expected"),
    [
        pytest.param("range", Handover.EAGER, {"c0": (0, 1, 2), None: (3, 4)}, id="range"),
        pytest.param(
            "cooperative-sticky", Handover.COOPERATIVE, {"c0": (0, 1, 2), None: (3, 4)}, id="sticky"
        ),
    ],
)
def test_kafkas_assignment_sees_no_load(
    name: str, handover: Handover, expected: dict[str | None, tuple[int, ...]]
) -> None:
    """27 / 27 / 46 of 300/s: load-aware puts P0 and P1 apart."""
    rates = [81, 81, 46, 46, 46]
    observation = seen(rates, {"c0": [0, 1, 2, 3, 4]}, [9000] * 5)
    decision = IccbdcCounts(name, SETTINGS, handover).decide(observation)
    check(decision, observation)
    assert groups_of(decision) == expected
    assert decision.handover is handover
    aware = groups_of(Iccbdc("iccbdc", SETTINGS).decide(seen(rates, {"c0": [0, 1, 2, 3, 4]})))
    assert all(not {0, 1} <= set(partitions) for partitions in aware.values())


def test_kafkas_groups_scale_like_the_load_aware_one_without_lag() -> None:
    rates = [[15.0] * 5, [60.0] * 5, [81, 81, 46, 46, 46], [199] * 5, [5.0] * 5]
    for row in rates:
        observation = seen(row, {"c0": [0, 1], "c1": [2, 3], "c2": [4]})
        aware = Iccbdc("iccbdc", SETTINGS).decide(observation)
        for name in ("range", "cooperative-sticky"):
            kafka = make(name, SETTINGS).decide(observation)
            assert len(kafka.members or observation.consumers) == len(
                aware.members or observation.consumers
            )


# --- linear --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "count"),
    [
        pytest.param(88.8, 1, id="just under mu * f_down / f_up"),
        pytest.param(800 / 9, 1, id="at 88.9 it is one still"),
        pytest.param(89.0, 2, id="over it, two"),
        pytest.param(350.0, 4, id="the first workload's peak"),
        pytest.param(0.0, 0, id="nothing"),
    ],
)
def test_the_linear_formula(rate: float, count: int) -> None:
    assert linear_count(rate, 200.0, 0.9, 0.4) == count


def test_linear_keeps_one_consumer_and_no_more_than_there_are_partitions() -> None:
    policy = Linear("linear", SETTINGS)
    assert policy.decide(seen([0, 0], {"c0": [0, 1]})).action is Action.NONE
    decision = policy.decide(seen([190, 190], {"c0": [0, 1]}))
    assert len(decision.members) == 2
    assert any("asks for more consumers than there are partitions: 2," in n for n in decision.notes)


def test_linear_takes_the_mean_of_unequal_consumers() -> None:
    """300/s at a mean of 300/s, one for each 133/s: 3. At the new one's 200/s it would be 4."""
    observation = seen([60] * 5, {"c0": [0, 1], "c1": [2, 3, 4]}, mu={"c0": 100.0, "c1": 500.0})
    assert len(Linear("linear", SETTINGS).decide(observation).members) == 3


def test_who_still_starts_leaves_first() -> None:
    groups = {"c0": [0, 1], "c1": [2, 3], "c2": [4]}
    observation = seen([30] * 5, groups, starting=["c0"])  # 150/s: 2
    decision = Linear("linear", SETTINGS).decide(observation)
    assert [member.consumer for member in decision.members] == ["c1", "c2"]


@pytest.mark.parametrize(
    ("handover", "expected"),
    [
        pytest.param(Handover.EAGER, {"c0": (0, 1), "c1": (2,), None: (3,)}, id="eager: range"),
        pytest.param(Handover.COOPERATIVE, {"c0": (0, 3), "c1": (1,), None: (2,)}, id="sticky"),
        pytest.param(Handover.DIRECT, {"c0": (0, 3), "c1": (1,), None: (2,)}, id="direct: sticky"),
    ],
)
def test_kafkas_assignor_follows_the_hand_over(
    handover: Handover, expected: dict[str | None, tuple[int, ...]]
) -> None:
    settings = Settings(SLO(0.99, 0.5), mu=200.0, handover=handover)
    observation = seen([60] * 4, {"c0": [0, 3], "c1": [1, 2]})  # 240/s: 3
    assert groups_of(Linear("linear", settings).decide(observation)) == expected


def test_consumers_beyond_the_partitions_leave_with_an_orphan() -> None:
    observation = seen([80, 80], {"c0": [0], "c1": []})  # 160/s: 2, and 2 are there
    assert len(Linear("linear", SETTINGS).decide(observation).members) == 2
    keda = make("keda")
    keda.decide(observation)
    crowded = seen([80, 80], {"c0": [0], "c1": [], "c2": []}, at=1.0)
    assert len(drive(keda, [crowded])[0].members) == 2


def test_linear_assigns_in_ranges() -> None:
    """CLOSER's skew: the two big partitions are neighbours and stay together."""
    shares = [0.25, 0.25, *[0.0714] * 7]
    observation = seen([300 * share for share in shares], {"c0": list(range(9))})
    decision = Linear("linear", SETTINGS).decide(observation)
    assert groups_of(decision)["c0"] == (0, 1, 2)
    assert len(decision.members) == 4


# --- optimal and peak ----------------------------------------------------------------------------


def test_optimal_packs_each_seconds_batch() -> None:
    """Five equal partitions; a consumer takes 90 events: 5 of 18, 2 of 45, 1 of 46 or of 90."""
    trace = Trace([0, 90, 91, 225, 226, 455], [0.2] * 5)
    assert replicas_per_second(trace, SETTINGS) == [1, 1, 2, 3, 5, 5]


def test_optimal_follows_the_second_it_is_asked_in() -> None:
    policy = Optimal("optimal", SETTINGS, Trace([50, 225, 50], [0.2] * 5))
    groups = {"c0": [0, 1, 2, 3, 4]}
    assert policy.decide(seen([0] * 5, groups, at=0.9)).action is Action.NONE
    up = policy.decide(seen([0] * 5, groups, at=1.0))
    assert len(up.members) == 3
    three = {"c0": [0, 1], "c1": [2, 3], "c2": [4]}
    assert policy.decide(seen([0] * 5, three, at=2.5)).action is Action.DOWN
    assert policy.decide(seen([0] * 5, three, at=100.0)).action is Action.DOWN  # past the end


def test_peak_is_packed_once() -> None:
    policy = Peak("peak", SETTINGS, Trace([50, 350, 50], [0.2] * 5))
    first = seen([10] * 5, {"c0": [0, 1, 2, 3, 4]})
    decision = policy.decide(first)
    assert len(decision.members) == 5  # 70 events each
    five = {f"c{n}": [n] for n in range(5)}
    observations = [seen([rate] * 5, five, [rate] * 5, at=rate) for rate in (0.0, 70.0, 300.0)]
    assert {d.action for d in drive(policy, observations)} == {Action.NONE}


@pytest.mark.parametrize(
    ("arrivals", "shares"),
    [
        pytest.param([], [1.0], id="no seconds"),
        pytest.param([float("nan")], [1.0], id="not a rate"),
        pytest.param([1.0], [0.5, 0.4], id="shares of less than all"),
        pytest.param([1.0], [], id="no partitions"),
    ],
)
def test_a_trace_that_is_none_is_refused(arrivals: list[float], shares: list[float]) -> None:
    with pytest.raises(ValueError, match=r"trace|shares"):
        Trace(arrivals, shares)
