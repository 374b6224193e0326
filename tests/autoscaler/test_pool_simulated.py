"""The simulated pool: one queue, and whoever is free takes the next message."""

import heapq
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.observation import ConsumerState, Observation
from srtm.autoscaler.pool.shares import Change
from srtm.autoscaler.pool.simulated import Pool, simulate_pool
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO

EIGHTHS = st.integers(0, 240).map(lambda each: each / 8)
"""Seconds that are added without rounding."""
SLO_1S = SLO.parse("0.95@1s")


def setting(initial: int, mu: float = 4.0, startup: float = 1.5) -> Setting:
    return Setting(SLO_1S, mu=mu, startup_seconds=startup, initial=initial)


@given(
    times=st.lists(EIGHTHS, max_size=60),
    initial=st.integers(1, 5),
    changes=st.lists(st.tuples(EIGHTHS, st.integers(0, 3), st.integers(0, 3)), max_size=5),
)
def test_each_message_goes_to_whoever_is_free_first(
    times: list[float], initial: int, changes: list[tuple[float, int, int]]
) -> None:
    """Against a loop over messages; who leaves is one of those that stay, if any would be left."""
    arrivals = np.sort(np.array(times))
    pool = Pool(setting(initial), arrivals)
    leaves: dict[str, float] = {}
    for at, leavers, launches in sorted(changes):
        pool.advance(at)
        ids = [each.id for each in pool.staying]
        gone = ids[: min(leavers, len(ids) - 1)]
        leaves |= dict.fromkeys(gone, at)
        pool.change(at, Change(tuple(gone), launches))
    pool.advance(1e6)

    free = [(each.joined_at, place) for place, each in enumerate(pool.consumers)]
    heapq.heapify(free)
    for arrived, end in zip(arrivals, pool.ends, strict=True):
        begins = leaves_at = 0.0
        while begins >= leaves_at:
            at, place = heapq.heappop(free)
            begins = max(at, arrived)
            leaves_at = leaves.get(pool.consumers[place].id, math.inf)
        assert end == begins + 0.25
        heapq.heappush(free, (end, place))
    for each in pool.consumers:
        if each.id in leaves:
            assert leaves[each.id] <= each.left_at <= leaves[each.id] + 0.25


class Scripted:
    """A policy that wants so many consumers, one number after the other."""

    name = "scripted"

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.seen: list[Observation] = []

    def decide(self, seen: Observation) -> Decision:
        self.seen.append(seen)
        count = self.counts.pop(0) if self.counts else len(seen.consumers)
        there = [Member(each.id, each.partitions) for each in seen.consumers]
        if count == len(there):
            return Decision(Action.NONE)
        members = (*there[:count], *[Member(None, ())] * (count - len(there)))
        return Decision(Action.UP if count > len(there) else Action.DOWN, members)


def test_a_launch_is_billed_at_once_and_joins_when_it_has_started() -> None:
    times = np.sort(np.random.default_rng(1).random(80) * 10)
    policy = Scripted(1, 3, 3, 2)
    run = simulate_pool(policy, times, 10, setting(1), most=4)
    assert [count for _, count in run.replicas] == [1, 3, 2]
    assert [at for at, _ in run.replicas] == pytest.approx([0.0, 1.1, 3.1])
    states = [[each.state for each in seen.consumers] for seen in policy.seen]
    assert states[2] == [ConsumerState.RUNNING, ConsumerState.STARTING, ConsumerState.STARTING]
    assert states[3] == [ConsumerState.RUNNING] * 3
    assert run.replica_minutes * 60 == pytest.approx(1.1 + 3 * 2.0 + 2 * 6.9)


def test_what_the_policy_sees_adds_up() -> None:
    times = np.sort(np.random.default_rng(2).random(200) * 20)
    policy = Scripted(2)
    run = simulate_pool(policy, times, 20, setting(2), most=4)
    for before, seen in zip(policy.seen, policy.seen[1:], strict=False):
        came = seen.rate * (seen.at - before.at)
        assert seen.lag == pytest.approx(before.lag + came - seen.served, abs=1e-6)
        assert sum(sum(each.slots) for each in seen.partitions) == pytest.approx(came)
    assert sum(seen.late for seen in policy.seen) <= int((run.latency > 1.0).sum())
    assert np.isfinite(run.latency).all()
    assert run.latency.min() >= 0.25 - 1e-9


def test_one_queue_waits_less_than_shares_of_it() -> None:
    """At three quarters of what four serve, few wait for longer than a message takes."""
    times = np.sort(np.random.default_rng(3).random(7200) * 600)
    run = simulate_pool(Scripted(4), times, 600, setting(4), most=4)
    assert float(np.quantile(run.latency, 0.95)) < 0.75


def test_a_launch_that_is_called_off_is_billed_until_then() -> None:
    run = simulate_pool(Scripted(1, 2, 1), np.array([0.5]), 10, setting(1, startup=5.0), most=2)
    assert run.replica_minutes * 60 == pytest.approx(10 + 1.0)
    assert math.isclose(float(run.latency[0]), 0.25)
