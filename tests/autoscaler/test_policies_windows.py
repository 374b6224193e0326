"""Li-Ku, FLAS and KEDA: windows, averages, tolerance, stabilization and cooldown, by hand."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from srtm.autoscaler.decision import Action, Decision, Handover
from srtm.autoscaler.policies import Settings
from srtm.autoscaler.policies.flas import Flas
from srtm.autoscaler.policies.hpa import Behavior, desired_replicas
from srtm.autoscaler.policies.keda import Keda
from srtm.autoscaler.policies.li_ku import LiKu, LiKuTuned, buffer_target, queue_model_target
from srtm.limits.slo import SLO
from tests.autoscaler.test_policies import drive, seen

LI_KU = Settings(SLO(0.99, 0.5), mu=58.0)
"""Li-Ku's experiment: mu 58/s, T_a 500 ms; 10 partitions."""


def group(count: int, partitions: int = 10) -> dict[str, list[int]]:
    return {f"c{n}": list(range(n, partitions, count)) for n in range(count)}


def actions(decisions: Sequence[Decision]) -> list[tuple[int, int]]:
    """(index, members) of what was done."""
    return [(i, len(d.members)) for i, d in enumerate(decisions) if d.action is not Action.NONE]


# --- Li-Ku's two profilers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "count"),
    [
        pytest.param(0.0, 1, id="no load: one"),
        pytest.param(56.0, 1, id="T is T_a at 56/s: Eq. 6 holds"),
        pytest.param(56.1, 2, id="just over"),
        pytest.param(112.0, 2, id="twice that"),
        pytest.param(500.0, 9, id="the peak: 8.93"),
    ],
)
def test_queue_model(rate: float, count: int) -> None:
    assert queue_model_target(rate, 58.0, 0.5) == count
    assert 1 / (58.0 - rate / count) <= 0.5 + 1e-9
    if count > 1:
        fewer = 58.0 - rate / (count - 1)
        assert fewer <= 0 or 1 / fewer > 0.5


def test_queue_model_without_solution() -> None:
    """One event takes 1/58 s, longer than 10 ms."""
    assert queue_model_target(10.0, 58.0, 0.01) is None
    policy = LiKu("li-ku", Settings(SLO(0.99, 0.01), mu=58.0))
    decision = policy.decide(seen([5] * 10, group(10), mu=58.0))
    assert any("Eq. 6 has no solution" in note for note in decision.notes)


@pytest.mark.parametrize(
    ("buffer", "target"),
    [
        pytest.param(226.2, 2.0, id="at the threshold of 2 * 58 * 1.95"),
        pytest.param(452.4, 3.5, id="twice the threshold: w more"),
        pytest.param(0.0, 0.5, id="empty: w less"),
    ],
)
def test_buffer_length(buffer: float, target: float) -> None:
    assert buffer_target(2, buffer, 58.0) == pytest.approx(target)


# --- Li-Ku's Algorithm 1 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handover", "needed"),
    [
        pytest.param(Handover.EAGER, 2, id="eager"),
        pytest.param(Handover.COOPERATIVE, 4, id="cooperative"),
    ],
)
def test_up_needs_its_whole_window(handover: Handover, needed: int) -> None:
    policy = LiKu("li-ku", Settings(SLO(0.99, 0.5), mu=58.0, handover=handover))
    observations = [seen([20] * 10, group(1), at=float(at), mu=58.0) for at in range(needed)]
    assert actions(drive(policy, observations)) == [(needed - 1, 4)]  # 200 / 56 = 3.6


def test_up_scales_to_the_average_of_the_window_rounded_up() -> None:
    """lambda over 2 s: 90, then (90 + 310) / 2 = 200; targets 2 and 4, on average 3."""
    policy = LiKu("li-ku", LI_KU)
    rates = [9.0, 31.0]
    observations = [seen([r] * 10, group(1), at=float(i), mu=58.0) for i, r in enumerate(rates)]
    assert actions(drive(policy, observations)) == [(1, 3)]


def test_lambda_is_that_of_the_last_two_seconds() -> None:
    policy = LiKu("li-ku", LI_KU)
    rates = [5.0, 5.0, 17.0]
    observations = [seen([r] * 10, group(1), at=float(i), mu=58.0) for i, r in enumerate(rates)]
    assert drive(policy, observations)[2].reason.startswith("110/s want 2 consumers")


def test_one_estimate_above_clears_the_down_window() -> None:
    policy = LiKu("li-ku", LI_KU)
    lags = [0.0] * 9 + [900.0] + [0.0] * 9  # threshold 339 for three consumers; 50/s want one
    observations = [
        seen([5] * 10, group(3), [lag / 10] * 10, at=float(i), mu=58.0)
        for i, lag in enumerate(lags)
    ]
    assert actions(drive(policy, observations)) == []


def test_one_estimate_below_in_between_clears_the_up_window() -> None:
    policy = LiKu("li-ku", LI_KU)
    lags = [400, 0, 400, 0, 400, 400]  # threshold 113.1 for one consumer; 50/s want one
    observations = [
        seen([5] * 10, group(1), [lag / 10] * 10, at=float(i), mu=58.0)
        for i, lag in enumerate(lags)
    ]
    assert actions(drive(policy, observations)) == [(5, 5)]  # 1 + 1.5 * 286.9 / 113.1 = 4.8


def test_down_takes_ten_and_averages_the_last_three() -> None:
    policy = LiKu("li-ku", LI_KU)
    rates = [20.0] * 7 + [10.0] * 3  # 200/s want 4; the last 150, 100, 100 want 3, 2 and 2
    observations = [seen([r] * 10, group(6), at=float(i), mu=58.0) for i, r in enumerate(rates)]
    # c_l is 6 - 1.5 = 4.5 throughout, and so the target
    assert actions(drive(policy, observations)) == [(9, 5)]


def test_a_full_window_that_changes_nothing_slides_on() -> None:
    """Printed, `len == downReactW` holds once and never again."""
    policy = LiKu("li-ku", LI_KU)
    same = [seen([11] * 10, group(2), at=float(i), mu=58.0) for i in range(15)]  # 110/s want 2
    less = [seen([2] * 10, group(2), at=float(i), mu=58.0) for i in range(15, 20)]
    # at 16 the window's last three targets are 2, 2 and 1, at 17 2, 1 and 1: 4/3, so 2 still
    assert actions(drive(policy, same + less)) == [(18, 1)]


def test_the_cooldown_records_nothing() -> None:
    policy = LiKu("li-ku", LI_KU)
    observations = [seen([20] * 10, group(1), at=float(at), mu=58.0) for at in range(25)]
    # up at 1; silent until 11, whose estimate is the first of the next window
    assert actions(drive(policy, observations)) == [(1, 4), (12, 4), (23, 4)]


@pytest.mark.parametrize(
    ("late", "wanted"),
    [
        pytest.param(0, 5, id="none: Eq. 6 for 0.4 s, 260 / 55.5"),
        pytest.param(10, 6, id="as many as are allowed: for 0.1 s as printed, 260 / 48"),
        pytest.param(100, 9, id="ten times as many: for two events, 260 / 29"),
    ],
)
def test_tuned_thresholds_follow_the_share_of_late_events(late: int, wanted: int) -> None:
    assert wants(tuned([late] * 1_000)) == {wanted}


def test_tuning_that_lies_in_the_future_is_forgotten() -> None:
    decisions = tuned([1_000] * 500 + [10] * 15, [*range(500), *range(15)])
    assert wants(decisions[:500]) == {9}
    assert wants(decisions) == {6}


def tuned(late: Sequence[int], at: Sequence[int] = range(1_000)) -> list[Decision]:
    """The decisions for 260 events/s and so many late events of a thousand in each second."""
    policy = LiKuTuned("li-ku-tuned", Settings(SLO(0.99, 0.1), mu=58.0))
    now = [seen([26] * 10, group(6), at=float(each), mu=58.0) for each in at]
    pairs = zip(now, late, strict=True)
    return drive(policy, [replace(each, served=1_000, late=some) for each, some in pairs])


def wants(decisions: Sequence[Decision]) -> set[int]:
    """What Eq. 6 wanted at the end, where no cooldown kept it silent."""
    said = (re.search(r"want (\d+) consumers? \(M/M/1\)", each.reason) for each in decisions[-14:])
    return {int(each[1]) for each in said if each}


def test_never_more_consumers_than_partitions() -> None:
    policy = LiKu("li-ku", LI_KU)
    observations = [seen([500, 500], {"c0": [0, 1]}, at=float(at), mu=58.0) for at in range(2)]
    decisions = drive(policy, observations)
    assert actions(decisions) == [(1, 2)]
    assert any(
        "Eq. 6 asks for more consumers than there are partitions: 2" in n
        for n in decisions[1].notes
    )


# --- FLAS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "done"),
    [
        pytest.param([0.101, 0.101], [(1, 4)], id="over a fifth of w_sla, twice: doubled"),
        pytest.param([0.1, 0.1, 0.1], [], id="at the threshold: nothing"),
        pytest.param([0.3, 0.05, 0.3, 0.05], [], id="not twice in a row"),
        pytest.param([0.019, 0.019], [(1, 1)], id="under a twenty-fifth, twice: one fewer"),
        pytest.param([0.02, 0.02, 0.02], [], id="at the lower threshold: nothing"),
        pytest.param([0.3, None, 0.3], [], id="nothing served in between: anew"),
        pytest.param([0.3] * 13, [(1, 4), (12, 4)], id="a cooldown of 10 s, then two more"),
    ],
)
def test_flas(times: Sequence[float | None], done: list[tuple[int, int]]) -> None:
    policy = Flas("flas", LI_KU)
    observations = [
        seen([5] * 10, group(2), at=float(at), mu=58.0, staying=time)
        for at, time in enumerate(times)
    ]
    assert actions(drive(policy, observations)) == done


# --- KEDA and the HPA ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "replicas", "desired"),
    [
        pytest.param(1160.0, 4, 4, id="ratio 1"),
        pytest.param(1276.0, 4, 4, id="ratio 1.1 is within the tolerance"),
        pytest.param(1277.0, 4, 5, id="over 1.1: one more"),
        pytest.param(1044.0, 4, 4, id="ratio 0.9 is within"),
        pytest.param(1043.0, 4, 4, id="under 0.9: rounded up to 4 again"),
        pytest.param(870.0, 4, 3, id="three quarters"),
        pytest.param(3190.0, 10, 10, id="at ten replicas one more is within the tolerance"),
        pytest.param(0.0, 4, 0, id="no lag"),
        pytest.param(100.0, 0, 1, id="from nothing"),
    ],
)
def test_desired_replicas(usage: float, replicas: int, desired: int) -> None:
    assert desired_replicas(usage, 290.0, replicas) == desired


def test_down_waits_until_every_recommendation_of_the_window_is_lower() -> None:
    behavior = Behavior()
    assert behavior.replicas(0.0, 5, 5) == 5
    assert behavior.replicas(15.0, 5, 3) == 5
    assert behavior.replicas(299.0, 5, 1) == 5
    assert behavior.replicas(300.0, 5, 1) == 3  # those of 0 s are out; 3 of 15 s is the highest
    assert behavior.replicas(314.0, 3, 1) == 3
    assert behavior.replicas(315.0, 3, 1) == 1


def test_a_first_recommendation_does_not_take_down_at_once() -> None:
    assert Behavior().replicas(0.0, 5, 1) == 5


@pytest.mark.parametrize(
    ("current", "desired", "replicas"),
    [
        pytest.param(1, 10, 5, id="four more"),
        pytest.param(6, 20, 12, id="twice as many"),
        pytest.param(1, 3, 3, id="less than the limit"),
    ],
)
def test_up_is_limited_in_a_period(current: int, desired: int, replicas: int) -> None:
    assert Behavior().replicas(0.0, current, desired) == replicas


def test_the_period_counts_from_where_it_began() -> None:
    behavior = Behavior()
    assert behavior.replicas(0.0, 1, 30) == 5
    assert behavior.replicas(5.0, 5, 30) == 5  # 1 + 4 is all that these 15 s allow
    assert behavior.replicas(14.0, 5, 30) == 5
    assert behavior.replicas(15.0, 5, 30) == 10  # a new period: 5 doubled


def test_keda_polls_every_five_seconds() -> None:
    policy = Keda("keda", LI_KU)
    observations = [seen([20] * 10, group(1), [60] * 10, at=float(at), mu=58.0) for at in range(7)]
    decisions = drive(policy, observations)
    assert actions(decisions) == [(0, 3), (5, 3)]  # 600 / 290 = 2.07
    assert decisions[1].reason == "polled again in 4 s"


def test_keda_counts_no_more_lag_than_the_partitions_are_worth() -> None:
    policy = Keda("keda", LI_KU)
    decisions = drive(policy, [seen([20] * 2, group(1, 2), [9000] * 2, mu=58.0)])
    assert actions(decisions) == [(0, 2)]
    assert any("lag over 580 counts as 580" in note for note in decisions[0].notes)


def test_keda_keeps_the_peak_for_the_window_and_one_replica_for_ever() -> None:
    policy = Keda("keda", LI_KU)
    times = [float(at) for at in range(0, 400, 5)]
    observations = [
        seen([1] * 10, group(3), [0] * 10, at=at, mu=58.0, staying=None) for at in times
    ]
    decisions = drive(policy, observations)
    first = actions(decisions)[0]
    assert (times[first[0]], first[1]) == (300.0, 1)


def test_a_shorter_window_is_taken() -> None:
    policy = Keda("keda", LI_KU, down_window_seconds=30.0)
    times = [float(at) for at in range(0, 60, 5)]
    observations = [seen([1] * 10, group(3), at=at, mu=58.0) for at in times]
    assert times[actions(drive(policy, observations))[0][0]] == 30.0
