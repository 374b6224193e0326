"""A known schedule played in the simulated group, without the observations that a policy needs: at
a tenth of the time of `simulate`, and with its latencies and bill but where polls end otherwise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.decision import Member
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.consumer import Consumer, Partition
from srtm.autoscaler.simulator.group import Group
from srtm.autoscaler.simulator.grouping import Parts, matched
from srtm.autoscaler.simulator.path import Schedule
from srtm.autoscaler.simulator.setting import Setting

Floats = NDArray[np.float64]

_DRAIN_SECONDS = 3600.0
"""Long enough: what is served so late is late, served or not."""


@dataclass(frozen=True, slots=True)
class Played:
    """late, bill: late events by their arrival, and replica-seconds, of each decision interval
    from second 0 on."""

    schedule: Schedule
    late: Floats
    bill: Floats

    @property
    def late_events(self) -> int:
        return round(float(self.late.sum()))

    @property
    def replica_seconds(self) -> float:
        return float(self.bill.sum())


def members(ids: list[str], now: Parts, wanted: Parts) -> tuple[Member, ...]:
    """Who gets which part: consumers keep as many partitions as they can. Parts left over are for
    new consumers; consumers left over leave."""
    heir = {new: ids[old] for old, new in matched(now, wanted)}
    return tuple(Member(heir.get(new), part) for new, part in enumerate(wanted))


def play(
    schedule: Schedule, groups: tuple[Parts, ...], arrivals: Arrivals, setting: Setting
) -> Played:
    """Run `schedule` to the end of the arrivals, and serve what is left."""
    partitions = tuple(Partition(times) for times in arrivals.times)
    group = Group(setting, partitions)
    for change in schedule:
        at = change.tick * setting.decision_seconds + setting.lag_phase
        group.advance(at)
        ids = [consumer.id for consumer in group.wanted]
        wanted = groups[change.group]
        group.change(at, members(ids, tuple(group.wanted.values()), wanted), None)
    end = float(arrivals.seconds)
    group.advance(end)
    left = [min(consumer.left_at, end) for consumer in group.consumers]
    while (event := group.next_event()) <= end + _DRAIN_SECONDS:
        group.advance(event)
    group.advance(end + _DRAIN_SECONDS)
    target = setting.slo.target_seconds + 1e-9
    late = np.concatenate([p.times[p.ends - p.times > target] for p in partitions])
    edges = setting.decision_seconds * np.arange(np.ceil(end / setting.decision_seconds) + 1)
    edges[-1] = max(edges[-1], end)
    return Played(
        schedule,
        np.histogram(late, edges)[0].astype(np.float64),
        _bill(group.consumers, left, np.minimum(edges, end)),
    )


def _bill(consumers: list[Consumer], left: list[float], edges: Floats) -> Floats:
    bill = np.zeros(len(edges) - 1)
    for consumer, until in zip(consumers, left, strict=True):
        bill += np.diff(np.clip(edges, consumer.launched_at, max(until, consumer.launched_at)))
    return bill
