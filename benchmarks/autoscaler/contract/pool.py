"""A simulated pool of an NSQ channel: whoever is free takes the next message."""

import heapq
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.decision import Policy
from srtm.autoscaler.live.monitor import SLOTS, Reading
from srtm.autoscaler.live.observe import LiveConsumer
from srtm.autoscaler.observation import ConsumerState, PartitionSeen
from srtm.autoscaler.pool.shares import change_of, pool_observation, share_count

Times = NDArray[np.float64]

PHASE = 0.1
"""Decisions are taken this long after each full second."""
MOST = 40
"""`max` of the file: how finely the load is cut for policies follows from it."""


@dataclass
class PoolRun:
    """latency: of each event in the order of arrival. counts: (at, consumers) at each decision;
    changes: when a decision changed the pool."""

    latency: Times
    counts: list[tuple[float, int]] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)


@dataclass
class _Server:
    id: str
    joined_at: float
    free_at: float
    leaves_at: float = math.inf


def run_pool(
    policy: Policy,
    times: Times,
    seconds: int,
    mu: float,
    startup_seconds: float,
    initial: int = 1,
) -> PoolRun:
    """Serve `times`, each by the consumer that is free first, and let `policy` decide once a
    second, as a live pool's controller would show it."""
    servers = [_Server(f"c{n}", 0.0, 0.0) for n in range(initial)]
    free = [(0.0, n) for n in range(initial)]
    ends = np.full(len(times), math.inf)
    run = PoolRun(ends)
    heapq.heapify(free)
    served = 0
    looks = [tick + PHASE for tick in range(seconds)]
    for number, now in enumerate([*looks, math.inf]):
        while served < len(times):
            ready, who = free[0]
            start = max(ready, float(times[served]))
            if start >= now:
                break
            heapq.heappop(free)
            if servers[who].leaves_at <= start:
                continue
            ends[served] = start + 1.0 / mu
            heapq.heappush(free, (start + 1.0 / mu, who))
            served += 1
        if now == math.inf:
            break
        there = [each for each in servers if each.leaves_at > now]
        since = looks[number - 1] if number else now - 1.0
        edges = times.searchsorted(np.linspace(since, now, SLOTS + 1))
        slots = np.diff(edges).tolist()
        lag = int(times.searchsorted(now)) - int((ends <= now).sum())
        seen = PartitionSeen(0, float(sum(slots)), float(lag), tuple(slots))
        consumers = tuple(
            LiveConsumer(
                each.id,
                mu=mu,
                state=ConsumerState.RUNNING if each.joined_at <= now else ConsumerState.STARTING,
            )
            for each in there
        )
        reading = Reading(now, (seen,), {0: 0.0}, None, 0, 0)
        shares = share_count(max(MOST, len(consumers)))
        shown = pool_observation(reading, consumers, mu, shares, startup_seconds)
        change = change_of(policy.decide(shown), consumers)
        for each in there:
            if each.id in change.leavers:
                each.leaves_at = now
        for _ in range(change.launches):
            joins = now + startup_seconds
            heapq.heappush(free, (joins, len(servers)))
            servers.append(_Server(f"c{len(servers)}", joins, joins))
        if change.launches or change.leavers:
            run.changes.append(now)
        run.counts.append((now, len(there) + change.launches - len(change.leavers)))
    run.latency = ends - times
    return run
