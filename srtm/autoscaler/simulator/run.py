"""A run: one policy against one set of arrivals, and what came of it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.decision import Action, Policy
from srtm.autoscaler.observation import (
    ConsumerSeen,
    ConsumerState,
    Observation,
    PartitionSeen,
)
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.consumer import Consumer, Partition
from srtm.autoscaler.simulator.group import Group
from srtm.autoscaler.simulator.setting import Setting

SLOTS = 10
"""Parts of a decision interval in which arrivals are counted: 100 ms at the default interval, so
that a policy can tell bursts from an even flow."""

ROUNDING_SECONDS = 1e-9
"""Ends are sums of service times; an event is late by more than their rounding."""
DRAIN_SECONDS = 3600.0
"""How long the group serves, after the workload and unbilled, what is left; what takes longer never
ends."""


@dataclass(frozen=True, slots=True)
class Run:
    """arrived, latency: one entry for each event, in order of arrival (seconds; inf: never
    served). replicas: (at, billed consumers), a step at each change. notes: how often each
    clamp or warning of the policy was reported."""

    policy: str
    setting: Setting
    seconds: int
    arrived: NDArray[np.float64]
    latency: NDArray[np.float64]
    replicas: tuple[tuple[float, int], ...]
    actions: dict[Action, int]
    rebalances: int
    notes: dict[str, int]

    @property
    def sla_share(self) -> float:
        """Events within the SLO's target."""
        late = np.count_nonzero(self.latency > self.setting.slo.target_seconds + ROUNDING_SECONDS)
        return 1.0 - late / max(1, len(self.latency))

    @property
    def worst_share(self) -> float:
        """Events within the target in the worst stretch as long as the SLO's window, of those that
        begin with a second; in the whole run where it is shorter, or where there is no window."""
        window = self.setting.slo.window_seconds
        if window is None or window >= self.seconds:
            return self.sla_share
        late = self.latency > self.setting.slo.target_seconds + ROUNDING_SECONDS
        before = np.concatenate(([0], np.cumsum(late)))
        starts = np.arange(0.0, self.seconds - window + 1e-9)
        first, last = self.arrived.searchsorted(starts), self.arrived.searchsorted(starts + window)
        shares = 1.0 - (before[last] - before[first]) / np.maximum(1, last - first)
        return float(shares.min())

    @property
    def keeps_slo(self) -> bool:
        """Is the SLO kept in every stretch as long as its window?"""
        return bool(self.worst_share >= self.setting.slo.percentile)

    @property
    def unserved(self) -> int:
        """Events that nobody served, within an hour after the last arrivals."""
        return int(np.count_nonzero(np.isinf(self.latency)))

    @property
    def replica_minutes(self) -> float:
        return self.mean_replicas() * self.seconds / 60

    def mean_replicas(self, since: float = 0.0) -> float:
        """Billed consumers on average, from second `since` to the end of the arrivals."""
        ends = [at for at, _ in self.replicas[1:]] + [float(self.seconds)]
        spans = zip(self.replicas, ends, strict=True)
        return math.fsum(
            count * max(0.0, min(end, self.seconds) - max(at, since)) for (at, count), end in spans
        ) / (self.seconds - since)

    def summary(self) -> dict[str, object]:
        """The figures of one run, as `srtm autoscale simulate --json` prints them."""
        latency = self.latency if len(self.latency) else np.zeros(1)
        p50, p99 = np.quantile(latency, (0.5, 0.99), method="inverted_cdf")
        served = np.isfinite(self.latency)
        last = float((self.arrived + self.latency)[served].max()) if served.any() else 0.0
        return {
            "policy": self.policy,
            "events": len(self.latency),
            "sla_percent": round(100 * self.sla_share, 4),
            "worst_window_percent": round(100 * float(self.worst_share), 4),
            "keeps_slo": self.keeps_slo,
            "replica_minutes": round(self.replica_minutes, 4),
            "mean_ms": _milliseconds(float(latency.mean())),
            "p50_ms": _milliseconds(float(p50)),
            "p99_ms": _milliseconds(float(p99)),
            "max_ms": _milliseconds(float(latency.max())),
            "scale_ups": self.actions.get(Action.UP, 0),
            "scale_downs": self.actions.get(Action.DOWN, 0),
            "rebalances": self.rebalances,
            "throughput": round(int(served.sum()) / max(last, float(self.seconds)), 4),
        }


def _milliseconds(seconds: float) -> float | None:
    return round(seconds * 1e3, 3) if math.isfinite(seconds) else None


def simulate(
    policy: Policy,
    arrivals: Arrivals,
    setting: Setting,
    failures: Sequence[tuple[float, int]] = (),
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run `policy` from second 0 to the end of the arrivals.

    failures: (at, index among the running consumers): that consumer dies then
    progress: called with each decision's time

    Raises ValueError for a topic without partitions, a failure of a consumer that does not run, and
    a decision that leaves out a partition or names a consumer that is not there.
    """
    if not arrivals.times:
        raise ValueError("no partitions: a topic has one or more")
    group = Group(setting, tuple(Partition(times) for times in arrivals.times))
    for at, index in failures:
        group.schedule_failure(at, index)
    observer = _Observer(group, setting)
    actions, notes = Counter[Action](), Counter[str]()
    tick = 0
    while (now := tick * setting.decision_seconds + setting.lag_phase) < arrivals.seconds:
        group.advance(now)
        decision = policy.decide(observer.look(now, setting.decision_seconds if tick else 0.0))
        actions[decision.action] += 1
        notes.update(decision.notes)
        if decision.action is not Action.NONE:
            group.change(now, decision.members, decision.handover)
        tick += 1
        if progress is not None:
            progress(now)
    group.advance(float(arrivals.seconds))
    replicas = steps(group.consumers, float(arrivals.seconds))
    _drain(group, arrivals.seconds)
    times = np.concatenate([p.times for p in group.partitions])
    ends = np.concatenate([p.ends for p in group.partitions])
    order = times.argsort(kind="stable")
    return Run(
        policy=policy.name,
        setting=setting,
        seconds=arrivals.seconds,
        arrived=times[order],
        latency=(ends - times)[order],
        replicas=replicas,
        actions=dict(actions),
        rebalances=group.rebalances,
        notes=dict(notes),
    )


class _Observer:
    """What a live controller would see of the group, from one look to the next."""

    def __init__(self, group: Group, setting: Setting) -> None:
        self._group = group
        self._setting = setting
        self._arrived = [0] * len(group.partitions)
        self._served = [0] * len(group.partitions)

    def look(self, now: float, interval_seconds: float) -> Observation:
        """interval_seconds: since the last look; 0 for the first"""
        group, setting = self._group, self._setting
        interval = interval_seconds or max(now, 1.0)
        before = self._arrived
        self._arrived = [partition.arrived(now) for partition in group.partitions]
        target = setting.slo.target_seconds
        served, late, staying = _latency(group.partitions, self._served, now, target)
        return Observation(
            at=now,
            partitions=tuple(
                PartitionSeen(
                    p,
                    (self._arrived[p] - before[p]) / interval,
                    partition.lag(now),
                    _slots(partition, now - interval, now),
                )
                for p, partition in enumerate(group.partitions)
            ),
            consumers=tuple(_seen(group, consumer, setting.mu, now) for consumer in group.wanted),
            new_mu=setting.mu,
            rebalancing=group.rebalancing,
            rebalance_seconds=setting.rebalance_seconds,
            startup_seconds=setting.startup_seconds,
            stopped_seconds=group.stopped_seconds,
            staying_seconds=staying,
            served=served,
            late=late,
        )


def _seen(group: Group, consumer: Consumer, usual_mu: float, now: float) -> ConsumerSeen:
    partitions = group.wanted[consumer]
    if consumer.joined_at <= now:
        return ConsumerSeen(consumer.id, consumer.mu, partitions)
    return ConsumerSeen(consumer.id, usual_mu, partitions, ConsumerState.STARTING)


def _slots(partition: Partition, start: float, end: float) -> tuple[int, ...]:
    edges = partition.times.searchsorted(np.linspace(start, end, SLOTS + 1))
    return tuple(np.diff(edges).tolist())


def _latency(
    partitions: Sequence[Partition], counted: list[int], now: float, target: float
) -> tuple[int, int, float | None]:
    """What consumers report: events done since the last call, those past `target`, mean time."""
    served, late, total = 0, 0, 0.0
    for index, partition in enumerate(partitions):
        done = counted[index]
        done += int(partition.ends[done : partition.position].searchsorted(now, "right"))
        new = slice(counted[index], done)
        counted[index] = done
        stayed = partition.ends[new] - partition.times[new]
        served += len(stayed)
        late += int((stayed > target + ROUNDING_SECONDS).sum())
        total += float(stayed.sum())
    return served, late, total / served if served else None


def _drain(group: Group, seconds: int) -> None:
    """Let hand-overs end and serve what is left."""
    end = seconds + DRAIN_SECONDS
    while group.next_event() <= end:
        group.advance(group.next_event())
    group.advance(end)


def steps(consumers: Sequence[Consumer], end: float) -> tuple[tuple[float, int], ...]:
    """(at, billed consumers) until `end`, a step at each change."""
    changes: dict[float, int] = {0.0: 0}
    for consumer in consumers:
        changes[consumer.launched_at] = changes.get(consumer.launched_at, 0) + 1
        if consumer.left_at < end:
            changes[consumer.left_at] = changes.get(consumer.left_at, 0) - 1
    count = 0
    found = []
    for at in sorted(changes):
        count += changes[at]
        found.append((at, count))
    return tuple(found)
