"""CLOSER 2024, section 4: Algorithm 1 (`closer1`) and Algorithm 2 (`closer2`).

`closer1-rate` and `closer2-rate` rank partitions and consumers by rate alone when they pack, as
ICCBDC 2022 and the public code of CLOSER do; the order in two dimensions is ours.

Both pack partitions, least loaded first, into consumers of mu * f events/s and mu * f * w_sla
events, at every decision interval; consumers that still start count as replicas. Read out of the
text or mended:
- Whether they run during a rebalance is not said. Here they do not: the group is blocked, and lag
  that grows then is no lack of consumers. Deciding on it scales the first workload up 13 to 25
  times (Algorithm 2, rebalance 50 ms, start-up 5 to 0 s, lag read 0.2 s into a batch), where
  Table 2 has 6 ups.
- A partition that exceeds a bin gets a consumer of its own (section 4, after Eq. 3 and Eq. 4).
- G_reassign can have fewer bins than there are consumers (fewer do at f_up, not at f_down). A
  rebalance launches and ends nobody, so the others stay, with no partition.
- A rebalance that would change no assignment is left out: printed, it repeats every second.
- With unequal consumers |G| says little; there the bins are the consumers themselves, and "more"
  means that one has to be launched.
- A partition without owner is seen by no line; Kafka itself rebalances then, by G_reassign.
"""

from collections.abc import Iterable
from enum import StrEnum

from srtm.autoscaler.decision import Decision, Member
from srtm.autoscaler.observation import Observation, PartitionSeen
from srtm.autoscaler.packing import Algorithm, Packing, least_loaded
from srtm.autoscaler.policies.group import (
    bins_of,
    consumers,
    items_of,
    members_of,
    nothing,
    wanted,
)
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings


class Scaling(StrEnum):
    """The flags of `scaleNeeded`."""

    UP = "UP"
    DOWN = "DOWN"
    REASS = "REASS"


def pack(
    seen: Observation,
    f: float,
    w_sla: float,
    rebalance_seconds: float = 0.0,
    algorithm: Algorithm = least_loaded,
) -> Packing:
    """Least-Loaded(lambda, lag, w_sla, mu * f); with totalLag (Eq. 6 and 7) where a rebalance is
    to be reckoned with."""

    def total_lag(partition: PartitionSeen) -> float:
        return partition.lag + partition.rate * rebalance_seconds

    return algorithm(items_of(seen, total_lag), bins_of(seen, f, w_sla))


def scale_needed(
    seen: Observation, settings: Settings, algorithm: Algorithm = least_loaded
) -> Scaling | None:
    """Procedure 1, which is Algorithm 1 without its actions."""
    f_up, f_down, w_sla = settings.f_up, settings.f_down, settings.w_sla
    if pack(seen, f_up, w_sla, algorithm=algorithm).count > len(seen.consumers):
        return Scaling.UP
    if pack(seen, f_down, w_sla, algorithm=algorithm).count < len(seen.consumers):
        return Scaling.DOWN
    if seen.orphans or assignment_violates_the_sla(seen, f_up, w_sla):
        return Scaling.REASS
    return None


def assignment_violates_the_sla(seen: Observation, f_up: float, w_sla: float) -> bool:
    """Some consumer has more than mu * w_sla * f_up events or more than mu * f_up events/s."""
    partitions = {p.id: p for p in seen.partitions}
    for consumer in seen.consumers:
        owned = [partitions[p] for p in consumer.partitions if p in partitions]
        if sum(p.lag for p in owned) > consumer.mu * w_sla * f_up:
            return True
        if sum(p.rate for p in owned) > consumer.mu * f_up:
            return True
    return False


class Closer1(PaperPolicy):
    """Algorithm 1: what `scale_needed` says, done on the lag that is there."""

    def __init__(self, name: str, settings: Settings, algorithm: Algorithm = least_loaded) -> None:
        super().__init__(name, settings)
        self._algorithm = algorithm

    def _decide(self, seen: Observation) -> Decision:
        return _scale_event_consumer(seen, self.settings, 0.0, self._algorithm)


class Closer2(Closer1):
    """Algorithm 2: what `scale_needed` says, done on the lag after the rebalance."""

    def _decide(self, seen: Observation) -> Decision:
        return _scale_event_consumer(seen, self.settings, seen.rebalance_seconds, self._algorithm)


def _scale_event_consumer(
    seen: Observation, settings: Settings, rebalance_seconds: float, algorithm: Algorithm
) -> Decision:
    if seen.rebalancing:
        return nothing("a rebalance is under way")
    action = scale_needed(seen, settings, algorithm)
    if action is None:
        return nothing(
            f"{consumers(len(seen.consumers))} hold {seen.rate:g}/s and {seen.lag:g} events, and "
            f"fewer would not at {settings.f_down:g} of mu"
        )
    return do_scale(seen, settings, action, rebalance_seconds, algorithm)


def do_scale(
    seen: Observation,
    settings: Settings,
    action: Scaling,
    rebalance_seconds: float,
    algorithm: Algorithm = least_loaded,
) -> Decision:
    """Procedure 2. In line 2 `action == "UP" OR "REASS"` is action == "UP" or action == "REASS"."""
    have = len(seen.consumers)
    load = f"{seen.rate:g}/s and {seen.lag:g} events"
    if action is Scaling.DOWN:
        fewer = pack(seen, settings.f_down, settings.w_sla, rebalance_seconds, algorithm)
        if fewer.count < have:
            reason = f"{consumers(fewer.count)} at {settings.f_down:g} of mu hold {load}"
            return wanted(seen, members_of(fewer), reason)
        return nothing(
            f"{load} fit fewer than {consumers(have)} but not with what a rebalance of "
            f"{rebalance_seconds:g} s adds"
        )
    packing = pack(seen, settings.f_up, settings.w_sla, rebalance_seconds, algorithm)
    members, notes = members_of(packing), own_consumer(packing)
    if packing.count > have:
        reason = (
            f"{consumers(have)} at {settings.f_up:g} of mu do not hold {load}: {packing.count} do"
        )
        return wanted(seen, members, reason, notes)
    used = {member.consumer for member in members}
    idle = [Member(c.id, ()) for c in seen.consumers if c.id not in used]
    reason = f"a consumer over {settings.f_up:g} of mu, or none: {load} anew over {consumers(have)}"
    most = max(0, len(seen.partitions) - len(members))
    return wanted(seen, [*members, *idle[:most]], reason, notes)


def own_consumer(packing: Packing) -> Iterable[str]:
    """The clamp of section 4: a partition bigger than a bin."""
    for partition in packing.oversized:
        yield (
            f"partition {partition} exceeds a consumer at f_up: it gets one of its own "
            "(CLOSER section 4), and some of its events are late"
        )
