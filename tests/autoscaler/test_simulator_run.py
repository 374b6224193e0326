"""Whole runs: what must not matter, what policies see, and what is reported."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.autoscaler.decision import Action, Handover, Member
from srtm.autoscaler.observation import ConsumerState, Observation
from srtm.autoscaler.simulator.arrivals import ArrivalModel, Arrivals, arrivals_of, even_shares
from srtm.autoscaler.simulator.run import Run, simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO
from tests.support.simulator_policies import Scripted, anything

SLO_500MS = SLO(0.99, 0.5)


# --- what must not matter -------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    data=st.data(),
    rates=st.lists(st.floats(0, 300), min_size=1, max_size=30),
    model=st.sampled_from(ArrivalModel),
)
def test_the_names_of_partitions_do_not_matter(
    data: st.DataObject, rates: list[float], model: ArrivalModel
) -> None:
    arrivals = arrivals_of(rates, (0.5, 0.3, 0.2), model, 1)
    renamed = Arrivals(tuple(data.draw(st.permutations(arrivals.times))), arrivals.seconds)
    setting = Setting(SLO_500MS)
    one, other = (simulate(Scripted(), a, setting) for a in (arrivals, renamed))
    assert one.sla_share == other.sla_share
    assert np.sort(one.latency) == pytest.approx(np.sort(other.latency), abs=1e-9)


@settings(max_examples=50)
@given(
    rates=st.lists(st.floats(0, 300), min_size=2, max_size=30),
    model=st.sampled_from(ArrivalModel),
    decision=st.floats(0.05, 40),
    lag_phase=st.floats(0, 3),
    initial=st.integers(1, 4),
)
def test_looking_changes_nothing(
    rates: list[float], model: ArrivalModel, decision: float, lag_phase: float, initial: int
) -> None:
    """A policy that does nothing: any interval and phase give the same latencies and the same
    bill."""
    arrivals = arrivals_of(rates, even_shares(3), model, 1)
    runs = [
        simulate(
            Scripted(),
            arrivals,
            Setting(SLO_500MS, decision_seconds=every, lag_phase=phase, initial=initial),
        )
        for every, phase in ((1.0, 0.1), (decision, lag_phase))
    ]
    assert runs[0].latency == pytest.approx(runs[1].latency, abs=1e-9)
    assert runs[0].sla_share == runs[1].sla_share
    assert runs[0].replica_minutes == runs[1].replica_minutes == initial * len(rates) / 60


def test_a_run_is_repeatable_and_the_seed_counts() -> None:
    arrivals = arrivals_of([300.0] * 30, even_shares(4), ArrivalModel.SMOOTH, 1)

    def latency(seed: int) -> list[float]:
        setting = Setting(SLO_500MS, seed=seed, startup_seconds=1.0)
        run = simulate(Scripted(anything(5)), arrivals, setting)
        return list(run.latency)

    assert latency(1) == latency(1)
    assert latency(1) != latency(2)  # heartbeats


# --- what a policy sees ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "phase", "rate", "lag"),
    [
        pytest.param("burst", 0.0, 10, 0, id="on-the-second-its-burst-is-not-there-yet"),
        pytest.param("burst", 0.05, 10, 10, id="nothing-of-the-poll-is-committed-yet"),
        pytest.param("burst", 0.5, 10, 0, id="all-is-committed"),
        pytest.param("smooth", 0.5, 10, 0, id="smooth-events-are-committed-one-by-one"),
    ],
)
def test_rates_and_lag_at_a_phase(model: str, phase: float, rate: float, lag: float) -> None:
    arrivals = arrivals_of([10.0] * 4, (1.0,), ArrivalModel(model), 1)
    policy = Scripted()
    simulate(policy, arrivals, Setting(SLO_500MS, mu=100.0, lag_phase=phase))
    for seen in policy.seen[1:]:
        assert seen.partitions[0].rate == rate
        assert seen.partitions[0].lag == lag
    assert [seen.at for seen in policy.seen] == [phase, 1 + phase, 2 + phase, 3 + phase]


def test_served_late_and_staying_count_what_is_done_and_no_more() -> None:
    """60 events at 0 s, 10 ms each: 0.55 s see 55 done (the last just so), 5 of them late."""
    arrivals = arrivals_of([60.0, 0.0], (1.0,), ArrivalModel.BURST, 1)
    policy = Scripted()
    simulate(policy, arrivals, Setting(SLO_500MS, mu=100.0, lag_phase=0.555))
    first, second = policy.seen
    assert (first.served, first.late) == (55, 5)
    assert first.staying_seconds == pytest.approx(0.28)
    assert (second.served, second.late) == (5, 5)


def test_what_ends_at_the_target_is_in_time() -> None:
    """31 events of 16.1 ms are done at 500 ms, give or take the rounding of a sum."""
    arrivals = arrivals_of([32.0, 0.0] * 20, (1.0,), ArrivalModel.BURST, 1)
    policy = Scripted()
    run = simulate(policy, arrivals, Setting(SLO_500MS, mu=62.0, lag_phase=0.9))
    assert (run.latency > 0.5).sum() > 20, "nothing is rounded up: the test shows nothing"
    assert run.sla_share == pytest.approx(31 / 32)
    assert sum(seen.late for seen in policy.seen) == 20


def test_states_and_partitions_of_consumers() -> None:
    arrivals = arrivals_of([10.0] * 12, even_shares(2), ArrivalModel.SMOOTH, 1)

    def up(seen: Observation) -> tuple[Member, ...] | None:
        first = [Member("c0", (0,)), Member(None, (1,))]
        return tuple(first) if len(seen.consumers) == 1 else None

    policy = Scripted(up)
    simulate(policy, arrivals, Setting(SLO_500MS, handover=Handover.DIRECT, lag_phase=0.0))
    assert [c.partitions for c in policy.seen[0].consumers] == [(0, 1)]
    states = [seen.consumers[-1].state for seen in policy.seen[1:]]
    assert states[:4] == [ConsumerState.STARTING] * 4
    assert states[4:] == [ConsumerState.RUNNING] * 7
    assert [seen.rebalancing for seen in policy.seen[5:7]] == [True, False]
    assert [c.partitions for c in policy.seen[3].consumers] == [(0,), (1,)]
    assert (policy.seen[5].stopped_seconds, policy.seen[6].stopped_seconds) == (None, 0.5)


# --- what is reported -----------------------------------------------------------------------------


def on_ticks(plan: dict[int, tuple[Member, ...]]) -> Scripted:
    return Scripted(lambda seen: plan.get(int(seen.at)))


ONE = (Member("c0", (0,)),)


@pytest.mark.parametrize(
    ("plan", "replica_seconds"),
    [
        pytest.param({}, 60.0, id="the-first-from-the-start-to-the-end"),
        pytest.param({10: (*ONE, Member(None, ()))}, 60 + 49.9, id="from-the-launch-on"),
        pytest.param({10: (*ONE, Member(None, ())), 30: ONE}, 60 + 20, id="to-the-leave"),
        pytest.param({10: (*ONE, Member(None, ())), 12: ONE}, 60 + 2, id="a-launch-called-off"),
        pytest.param({59: (*ONE, Member(None, ()))}, 60 + 0.9, id="the-end-during-a-start"),
        pytest.param(
            {53: (*ONE, Member(None, ())), 59: ONE}, 60 + 6.9, id="the-end-during-a-rebalance"
        ),
    ],
)
@pytest.mark.parametrize("handover", list(Handover))
def test_billing(
    plan: dict[int, tuple[Member, ...]], replica_seconds: float, handover: Handover
) -> None:
    setting = Setting(SLO_500MS, handover=handover, rebalance_seconds=2.0)
    arrivals = arrivals_of([10.0] * 60, (1.0,), ArrivalModel.SMOOTH, 1)
    policy = on_ticks(plan)
    run = simulate(policy, arrivals, setting)
    assert run.replica_minutes == pytest.approx(replica_seconds / 60)
    assert run.unserved == 0
    assert run.actions.get(Action.UP, 0) + run.actions.get(Action.DOWN, 0) == len(plan)
    assert run.notes == ({"a clamp": len(plan)} if plan else {})


def test_a_leaver_is_billed_until_its_poll_ends() -> None:
    """40 events at 10 s, 100 ms each: c1, told to go at 10.1, goes at 14.0."""
    rates = [0.0] * 10 + [40.0] + [0.0] * 9
    arrivals = Arrivals((np.zeros(0), np.repeat(10.0, 40)), len(rates))
    setting = Setting(SLO_500MS, mu=10.0, initial=2)
    run = simulate(on_ticks({10: (Member("c0", (0, 1)),)}), arrivals, setting)
    assert run.replica_minutes * 60 == pytest.approx(20 + 14)


def test_the_summary_has_the_names_that_are_promised() -> None:
    arrivals = arrivals_of([10.0] * 5, (1.0,), ArrivalModel.SMOOTH, 1)
    run = simulate(Scripted(), arrivals, Setting(SLO_500MS, mu=100.0))
    assert run.summary() == {
        "policy": "scripted",
        "events": 50,
        "sla_percent": 100.0,
        "worst_window_percent": 100.0,
        "keeps_slo": True,
        "replica_minutes": 0.0833,
        "mean_ms": 10.0,
        "p50_ms": 10.0,
        "p99_ms": 10.0,
        "max_ms": 10.0,
        "scale_ups": 0,
        "scale_downs": 0,
        "rebalances": 0,
        "throughput": 10.0,
    }


def test_an_overload_is_served_after_the_end_and_lowers_the_throughput() -> None:
    """100 events/s for 10 s at 50/s: done after 20 s."""
    arrivals = arrivals_of([100.0] * 10, (1.0,), ArrivalModel.SMOOTH, 1)
    run = simulate(Scripted(), arrivals, Setting(SLO_500MS, mu=50.0))
    figures = run.summary()
    assert figures["throughput"] == pytest.approx(50, rel=0.01)
    assert figures["max_ms"] == pytest.approx(10_000, rel=0.01)
    assert run.replica_minutes == pytest.approx(10 / 60)


def test_what_nobody_serves_is_late_for_ever() -> None:
    arrivals = arrivals_of([10.0] * 20, (1.0,), ArrivalModel.SMOOTH, 1)
    run = simulate(Scripted(), arrivals, Setting(SLO_500MS), failures=[(5.01, 0)])
    figures = run.summary()
    assert run.unserved == 150
    assert figures["sla_percent"] == 25.0
    assert (figures["mean_ms"], figures["p99_ms"], figures["max_ms"]) == (None, None, None)
    assert figures["p50_ms"] is None
    assert figures["throughput"] == 2.5
    assert run.replica_minutes == pytest.approx(5.01 / 60, abs=1e-3)


def test_no_events_at_all() -> None:
    run = simulate(Scripted(), arrivals_of([0.0] * 9, (1.0,), ArrivalModel.BURST, 1), _setting())
    assert (run.sla_share, run.summary()["max_ms"], run.summary()["throughput"]) == (1.0, 0.0, 0.0)


def test_a_policy_that_leaves_out_a_partition_is_refused() -> None:
    arrivals = arrivals_of([10.0] * 9, even_shares(2), ArrivalModel.BURST, 1)
    with pytest.raises(ValueError, match=r"each of the 2 must be"):
        simulate(on_ticks({3: ONE}), arrivals, _setting())


def test_no_partitions() -> None:
    with pytest.raises(ValueError, match="no partitions: a topic has one or more"):
        simulate(Scripted(), Arrivals((), 5), _setting())


def test_progress_is_told_at_each_decision() -> None:
    told: list[float] = []
    arrivals = arrivals_of([1.0] * 3, (1.0,), ArrivalModel.BURST, 1)
    simulate(Scripted(), arrivals, _setting(), progress=told.append)
    assert told == pytest.approx([0.1, 1.1, 2.1])


def _setting() -> Setting:
    return Setting(SLO_500MS)


def steps_add_up(run: Run) -> float:
    ends = [at for at, _ in run.replicas[1:]] + [math.inf]
    return sum(min(run.seconds, end) - at for (at, _), end in zip(run.replicas, ends, strict=True))


def test_the_steps_cover_the_run() -> None:
    arrivals = arrivals_of([50.0] * 30, even_shares(3), ArrivalModel.POISSON, 1)
    run = simulate(Scripted(anything(3)), arrivals, _setting())
    assert len(run.replicas) > 3
    assert steps_add_up(run) == pytest.approx(30)


@pytest.mark.parametrize(
    ("window", "share"),
    [
        pytest.param(None, 0.9, id="the-whole-run"),
        pytest.param(20.0, 0.9, id="as-long-as-the-run"),
        pytest.param(60.0, 0.9, id="longer"),
        pytest.param(10.0, 0.8, id="half-of-it"),
        pytest.param(4.0, 0.5, id="twice-the-bad-part"),
        pytest.param(1.0, 0.0, id="within-the-bad-part"),
    ],
)
def test_the_worst_window_is_the_one_with_most_late_events(
    window: float | None, share: float
) -> None:
    """An event each half second for 20 s, of which those of seconds 7 and 8 are late."""
    arrived = np.arange(0.0, 20.0, 0.5)
    late = (arrived >= 7) & (arrived < 9)
    setting = Setting(SLO(0.9, 0.5, window))
    run = Run("x", setting, 20, arrived, np.where(late, 9.0, 0.1), ((0.0, 1),), {}, 0, {})
    assert run.sla_share == pytest.approx(0.9)
    assert run.worst_share == pytest.approx(share)
    assert run.keeps_slo is (share >= 0.9)
