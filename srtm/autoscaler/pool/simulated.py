"""A simulated pool: one queue, from which whoever is free takes the next message. Pure.

All consumers take 1/mu for a message and begin with messages in the order in which they came. So
they take turns: who began first is free first. The messages of one consumer are then each n-th of
the queue, and its ends are Lindley's recursion, as in `simulator/consumer.py`. A launch joins when
its start-up is over; who leaves ends the message that it has.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from srtm.autoscaler.decision import Action, Policy
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import LiveConsumer
from srtm.autoscaler.observation import ConsumerState, Observation, PartitionSeen
from srtm.autoscaler.pool.shares import Change, change_of, pool_observation, share_count
from srtm.autoscaler.simulator.consumer import INSTANT, Consumer, Floats
from srtm.autoscaler.simulator.run import DRAIN_SECONDS, ROUNDING_SECONDS, SLOTS, Run, steps
from srtm.autoscaler.simulator.setting import Setting


class Pool:
    """State between two events; `advance` runs them. Time is what it is told.

    times: of the messages' arrivals, ascending, seconds; ends: of their processing
    """

    def __init__(self, setting: Setting, times: Floats) -> None:
        self._setting = setting
        self._names = itertools.count()
        self._now, self._position = 0.0, 0
        self.times = times
        self.ends = np.full(len(times), math.inf)
        self.consumers: list[Consumer] = []
        for _ in range(setting.initial):
            self._launch(0.0, 0.0)

    @property
    def staying(self) -> list[Consumer]:
        """Those that start or run."""
        return [each for each in self.consumers if each.left_at == math.inf]

    def change(self, at: float, change: Change) -> None:
        for each in self.staying:
            if each.id in change.leavers:
                # A launch is called off.
                each.left_at = at if each.joined_at > at else max(at, each.free_at)
        for _ in range(change.launches):
            self._launch(at, self._setting.startup_seconds)

    def advance(self, until: float) -> None:
        """Begin with every message whose turn comes before `until`."""
        joins = {each.joined_at for each in self.staying if self._now < each.joined_at < until}
        for at in (*sorted(joins), until):
            self._serve(at)
        self._now = until

    def _launch(self, at: float, startup_seconds: float) -> None:
        setting, joins = self._setting, at + startup_seconds
        name = f"c{next(self._names)}"
        launched = Consumer(name, setting.mu, at, setting.max_poll, joined_at=joins, free_at=joins)
        self.consumers.append(launched)

    def _serve(self, until: float) -> None:
        turns = sorted(
            (each for each in self.staying if each.joined_at < until), key=lambda each: each.free_at
        )
        if not turns:
            return
        service, count = 1 / self._setting.mu, len(turns)
        room = count * (int(max(0.0, until - turns[0].free_at) / service) + 2)
        stop = min(int(self.times.searchsorted(until)), self._position + room)
        waiting = self.times[self._position : stop]
        starts = np.empty(len(waiting))
        for place, each in enumerate(turns):
            mine = waiting[place::count]
            spent = service * np.arange(len(mine))
            ready = np.maximum(mine, each.free_at)
            starts[place::count] = np.maximum.accumulate(ready - spent) + spent
        starts = np.maximum(np.maximum.accumulate(starts), waiting)  # but for their rounding
        served = int(starts.searchsorted(until - INSTANT))
        ends = starts[:served] + service
        for place, each in enumerate(turns):
            if place < served:
                each.free_at = float(ends[place::count][-1])
        self.ends[self._position : self._position + served] = ends
        self._position += served


def simulate_pool(policy: Policy, times: Floats, seconds: int, setting: Setting, most: int) -> Run:
    """Run `policy` from second 0 to `seconds` as the controller of a pool does. times: of the
    messages' arrivals, ascending, within that; most: consumers that there may be"""
    pool = Pool(setting, times)
    observer = _Observer(pool, setting, most)
    actions, notes = Counter[Action](), Counter[str]()
    tick = 0
    while (now := tick * setting.decision_seconds + setting.lag_phase) < seconds:
        pool.advance(now)
        consumers = observer.consumers(now)
        decision = policy.decide(observer.look(now, consumers))
        actions[decision.action] += 1
        notes.update(decision.notes)
        pool.change(now, change_of(decision, consumers))
        tick += 1
    pool.advance(float(seconds))
    replicas = steps(pool.consumers, float(seconds))
    pool.advance(seconds + DRAIN_SECONDS)
    return Run(
        policy=policy.name,
        setting=setting,
        seconds=seconds,
        arrived=times,
        latency=pool.ends - times,
        replicas=replicas,
        actions=dict(actions),
        rebalances=0,
        notes=dict(notes),
    )


class _Observer:
    """What the controller of a pool would see of it, from one look to the next."""

    def __init__(self, pool: Pool, setting: Setting, most: int) -> None:
        self._pool, self._setting, self._most = pool, setting, most
        self._looked_at = 0.0
        self._arrived = self._served = 0

    def consumers(self, now: float) -> list[LiveConsumer]:
        mu = self._setting.mu
        return [
            LiveConsumer(
                each.id,
                mu=mu,
                state=ConsumerState.RUNNING if each.joined_at <= now else ConsumerState.STARTING,
            )
            for each in self._pool.staying
        ]

    def look(self, now: float, consumers: Sequence[LiveConsumer]) -> Observation:
        pool, setting = self._pool, self._setting
        interval = now - self._looked_at or 1.0
        edges = pool.times.searchsorted(np.linspace(self._looked_at, now, SLOTS + 1))
        done = int(pool.ends.searchsorted(now, "right"))
        stayed = pool.ends[self._served : done] - pool.times[self._served : done]
        seen = PartitionSeen(
            0,
            (int(edges[-1]) - self._arrived) / interval,
            int(edges[-1]) - done,
            tuple(np.diff(edges).tolist()),
        )
        reading = Reading(
            at=now,
            partitions=(seen,),
            time_lags={},
            staying_seconds=float(stayed.mean()) if len(stayed) else None,
            served=len(stayed),
            late=int((stayed > setting.slo.target_seconds + ROUNDING_SECONDS).sum()),
        )
        self._looked_at, self._arrived, self._served = now, int(edges[-1]), done
        shares = share_count(max(self._most, len(consumers)))
        return pool_observation(reading, consumers, setting.mu, shares, setting.startup_seconds)
