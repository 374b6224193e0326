"""Every event once, in order, by one consumer, whatever is decided and whoever dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.autoscaler.decision import Handover, Member
from srtm.autoscaler.simulator.arrivals import ArrivalModel, Arrivals, arrivals_of, even_shares
from srtm.autoscaler.simulator.consumer import Consumer, Partition
from srtm.autoscaler.simulator.group import Group
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.autoscaler.simulator.workload import iot_like
from srtm.limits.slo import SLO
from tests.support.cases import cases
from tests.support.simulator_policies import Scripted, anything

SLO_500MS = SLO(0.99, 0.5)


@dataclass(frozen=True, slots=True)
class Served:
    consumer: Consumer
    partition: Partition
    first: int
    ends: np.ndarray


@contextmanager
def watched() -> Iterator[list[Served]]:
    """Who served what: the code runs as it is, and each window is noted."""
    served: list[Served] = []
    serve = Consumer._serve

    def note(self: Consumer, until: float, limit: float) -> None:
        before = [(partition, partition.position) for partition in self.partitions]
        serve(self, until, limit)
        for partition, first in before:
            ends = partition.ends[first : partition.position]
            served.append(Served(self, partition, first, ends.copy()))

    with mock.patch.object(Consumer, "_serve", note):
        yield served


def check_conservation(served: list[Served], arrivals: Arrivals, setting: Setting) -> None:
    each = 1 / setting.mu
    by_partition: dict[int, list[Served]] = {}
    by_consumer: dict[str, list[Served]] = {}
    for part in served:
        if len(part.ends):
            by_partition.setdefault(id(part.partition), []).append(part)
            by_consumer.setdefault(part.consumer.id, []).append(part)
            assert part.consumer.joined_at <= part.ends[0] - each + 1e-9
            assert part.ends[-1] <= part.consumer.left_at + 1e-9
    assert sum(len(part.ends) for part in served) == arrivals.events, "each event once"
    for parts in by_partition.values():
        assert parts[0].first == 0, "from the first on"
        ends = np.concatenate([part.ends for part in parts])
        assert (np.diff(ends) >= each - 1e-9).all(), "in order, never by two at once"
        starts = ends - each
        assert (starts >= parts[0].partition.times - 1e-9).all(), "never before its arrival"
    for parts in by_consumer.values():
        ends = np.sort(np.concatenate([part.ends for part in parts]))
        assert (np.diff(ends) >= each - 1e-9).all(), "a consumer serves one at a time"


@settings(max_examples=cases(150))
@given(
    seed=st.integers(0, 2**32),
    handover=st.sampled_from(Handover),
    model=st.sampled_from(ArrivalModel),
    partitions=st.integers(1, 6),
    rates=st.lists(st.floats(0, 400), min_size=1, max_size=25),
    rebalance=st.sampled_from([0.0, 0.05, 0.5, 2.0]),
    startup=st.sampled_from([0.0, 1.0, 5.0]),
    heartbeat=st.sampled_from([0.5, 3.0]),
    max_poll=st.sampled_from([1, 10, 500]),
    decision=st.sampled_from([0.3, 1.0, 5.0]),
    lag_phase=st.sampled_from([0.0, 0.1, 0.7]),
    initial=st.integers(1, 3),
    together=st.booleans(),
    deaths=st.lists(st.floats(0, 20), max_size=2),
)
def test_every_event_is_served_once_in_order_by_one_consumer(
    seed: int,
    handover: Handover,
    model: ArrivalModel,
    partitions: int,
    rates: list[float],
    rebalance: float,
    startup: float,
    heartbeat: float,
    max_poll: int,
    decision: float,
    lag_phase: float,
    initial: int,
    together: bool,
    deaths: list[float],
) -> None:
    """Whatever a policy decides, when, and who dies. (A rate or lag below 0 would be refused by
    Observation.)"""
    setting = Setting(
        SLO_500MS,
        mu=333.3,
        rebalance_seconds=rebalance,
        handover=handover,
        startup_seconds=startup,
        decision_seconds=decision,
        lag_phase=lag_phase,
        heartbeat_seconds=heartbeat,
        initial=initial + len(deaths),
        max_poll=max_poll,
        told_together=together,
        session_seconds=2.0,
        seed=seed,
    )
    arrivals = arrivals_of(rates, even_shares(partitions), model, seed)
    # No policy acts when the workload is over: somebody must live then, to serve what is left.
    policy = Scripted(anything(seed, stay=1.0 if deaths else 0.8))
    with watched() as served:
        run = simulate(policy, arrivals, setting, [(at, 0) for at in deaths])
    assert run.unserved == 0
    check_conservation(served, arrivals, setting)
    assert len(run.latency) == arrivals.events
    assert (run.latency >= 1 / setting.mu - 1e-9).all()
    steps = [count for _, count in run.replicas]
    assert min(steps) >= 0
    assert run.replica_minutes <= max(steps) * run.seconds / 60 + 1e-9


@pytest.mark.parametrize("handover", list(Handover))
@pytest.mark.parametrize("model", list(ArrivalModel))
def test_a_run_is_the_same_however_often_it_is_looked_at(
    handover: Handover, model: ArrivalModel
) -> None:
    """Polls of 500 events last 2.5 s and heartbeats come every 3: ends of polls meet heartbeats."""
    arrivals = arrivals_of(iot_like(), even_shares(5), model, 1)

    def ends(looks: int) -> list[float]:
        random = Random(5)
        partitions = [Partition(times) for times in arrivals.times]
        setting = Setting(SLO(0.99, 0.5), rebalance_seconds=2.0, handover=handover)
        group = Group(setting, partitions)
        for second in range(600):
            group.advance(second + 0.1)
            if random.random() < 0.05:
                count = random.randint(1, 5)
                names: list[str | None] = [consumer.id for consumer in group.wanted][:count]
                names += [None] * (count - len(names))
                ids = random.sample(range(5), 5)
                members = [Member(name, tuple(ids[i::count])) for i, name in enumerate(names)]
                group.change(second + 0.1, members, None)
            for look in range(looks):
                group.advance(second + 0.1 + (look + 0.37) / (looks + 1))
        group.advance(700.0)
        return [float(end) for partition in partitions for end in partition.ends]

    assert ends(0) == pytest.approx(ends(3), abs=1e-6)
