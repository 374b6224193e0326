"""Groups with partitions: of what comes in any interval a partition has its share, and its consumer
has all of it.

A consumer whose partitions have the share S of every interval meets S (b + r t), so its longest
delay is S b / mu if S r <= mu: that is what partitions are packed by. What moves to another
consumer stands still meanwhile, for d.

Let V be the longest delay of what comes to a consumer until its partitions are handed over, if they
never were. An event that moves finds, at a consumer that gets partitions of this one alone, no more
work ahead of it than here: it is done by d after the time at which it would have been done here
(a poll in hand ends first, and is work ahead of it as well). So no delay is longer than V + d. At a
consumer that gets partitions of several, their burst may come just before they stop: V + d + S b /
mu. Therefore a group that shrinks keeps the consumers' sets of the large group together, and a
group that grows divides them again.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from srtm.autoscaler.decision import Handover, Member
from srtm.autoscaler.observation import PartitionSeen
from srtm.autoscaler.packing import Bin, Bins, Item, few, lower_bound
from srtm.autoscaler.policies.contract.curves import Supply, longest_delay
from srtm.autoscaler.policies.contract.view import Sized, View, shown
from srtm.autoscaler.policies.srtm.groups import Group, balanced, group_of
from srtm.autoscaler.policies.srtm.tuning import TUNING


class Partitioned:
    """A group at one moment. shares: of each partition, of every interval. handover: its kind."""

    def __init__(self, view: View, shares: Mapping[int, float], handover: Handover) -> None:
        self._view = view
        self._shares = shares
        self._mu = {c.id: c.mu for c in view.seen.consumers}
        self._everybody = handover is Handover.EAGER
        self._now = tuple(
            (consumer, tuple(p for p in partitions if p in shares))
            for consumer, partitions in group_of(view.seen)
        )
        # Members of the other protocols learn of it at their heartbeats.
        told = 0.0 if handover is Handover.DIRECT else TUNING.heartbeat_seconds
        self._still = view.seen.rebalance_seconds + told
        self._settles = self._still if view.seen.rebalancing else 0.0
        """How long partitions may still stand still from the last hand-over on."""
        self._waiting = {p: view.backlog.waiting(p) for _, p in self._now}

    # --- for ever ---------------------------------------------------------------------------------

    def for_ever(self, group: Group) -> float:
        """The longest delay in a group that never changes and has no backlog."""
        return max((self._alone(*each) for each in group), default=math.inf)

    def _alone(self, consumer: str | None, partitions: tuple[int, ...]) -> float:
        share, mu = self._share(partitions), self._speed(consumer)
        if not partitions:
            return 0.0
        if share * self._view.ceiling.rate > mu * (1 + 1e-9):
            return math.inf
        return max(1.0, share * self._view.ceiling.burst) / mu

    def fewest_for_ever(self, known: Group = ()) -> Group:
        """A group of the fewest consumers that keep the target for every arrival, for ever; where
        none does, each partition that is too much for one has a consumer of its own. known: the
        answer before this one, whose sets of partitions are kept as long as they do."""
        view = self._view
        items = [
            Item(p.id, self._shares[p.id] * view.ceiling.rate, 0.0, view.seen.owners.get(p.id))
            for p in view.seen.partitions
        ]
        there = tuple(Bin(c.id, self._room(c.mu)) for c in view.seen.consumers)
        bins = Bins(Bin(None, self._room(view.seen.new_mu)), there)
        bound = lower_bound(items, bins)
        for group in (self._now, self._divided(known)):
            if (
                group
                and self.for_ever(group) <= view.target
                and (len(group) <= bound or len(group) == len(known))
            ):
                return group
        packing = few(items, bins)
        if self.for_ever(self._now) <= view.target and len(self._now) <= packing.count:
            return self._now
        return tuple((each.bin.consumer, tuple(sorted(each.items))) for each in packing.filled)

    def _divided(self, known: Group) -> Group:
        """The sets of `known` for the consumers that there are: each keeps the largest that it has
        and serves for ever, the others are for new ones. Empty where a set has several owners."""
        if {p for _, part in known for p in part} != self._shares.keys():
            return ()  # partitions have come or gone
        left = dict(self._now)
        group: list[tuple[str | None, tuple[int, ...]]] = []
        for _, part in sorted(known, key=lambda each: -self._share(each[1])):
            owner = self._view.seen.owners.get(part[0]) if part else None
            if owner is None or not set(part) <= set(dict(self._now)[owner]):
                return ()
            keeps = owner in left and self._alone(owner, part) <= self._view.target
            group.append((owner if keeps else None, part))
            if keeps:
                del left[owner]
        idle = iter(left)
        return tuple((next(idle, None) if c is None else c, part) for c, part in group)

    def adopting(self) -> tuple[Member, ...]:
        """Everybody who is there, with the partitions that nobody has shared out among them, and
        as many more as are needed for ever."""
        count = min(
            len(self._view.seen.partitions), max(len(self._now), len(self.fewest_for_ever()), 1)
        )
        return self._planned(balanced(self._shares, self._view.seen, count), 0.0, "").members

    def _room(self, mu: float) -> float:
        """events/s in the long run that a consumer may have, so that a burst is in time too."""
        ceiling = self._view.ceiling
        return mu * min(1.0, self._view.target * ceiling.rate / ceiling.burst)

    # --- from now on ------------------------------------------------------------------------------

    def plan(self, most: Group) -> Sized:
        """The fewest consumers now with which all is in time, if `most` are launched as late as at
        the next decision."""
        view, now = self._view, self._now
        for count in range(1, max(len(most), len(now)) + 1):
            if count == len(now):
                delay, then = self._staying(most)
                if delay <= view.target:
                    return self._planned(now, delay, then)
            if count == len(most):
                delay = self._going(most)
                if delay <= view.target:
                    return self._planned(most, delay, "for ever")
            elif count < len(now):
                for group in (self._shrunk(most, count), balanced(self._shares, view.seen, count)):
                    delay, then = self._shrinking(group, most)
                    if delay <= view.target and self._serves(group, view.peak):
                        return self._planned(group, delay, then)
        then = "for ever, and some are late until then"
        return self._planned(most, self._going(most), then, self._remedy(most))

    def _staying(self, most: Group) -> tuple[float, str]:
        kept = self._kept(self._now, math.inf)
        if kept <= self._view.target or most == self._now:
            return kept, "for ever"
        later = self._kept(self._now, self._view.notice) + self._changed(self._now, most)
        return later, f"with {len(most)} when more comes"

    def _going(self, most: Group) -> float:
        """To go over to `most` now, when those that are launched have joined."""
        launches = any(consumer is None for consumer, _ in most)
        until = self._view.seen.startup_seconds if launches else 0.0
        return self._kept(self._now, until) + self._changed(self._now, most)

    def _changed(self, old: Group, new: Group) -> float:
        """What a hand-over adds to the longest delay before it."""
        sets = [set(partitions) for _, partitions in old]
        divides = all(any(set(part) <= each for each in sets) for _, part in new)
        return self._still + (0.0 if divides else self.for_ever(new))

    def _shrunk(self, most: Group, count: int) -> Group:
        """A group of `count` of those that run now, with the sets of `most` undivided."""
        sets = [part for _, part in most if part]

        def owned(partitions: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(n for n, part in enumerate(sets) if part[0] in partitions)

        there = [replace(c, partitions=owned(c.partitions)) for c in self._view.seen.consumers]
        whole = tuple(PartitionSeen(n, 0.0, 0.0) for n in range(len(sets)))
        seen = replace(self._view.seen, partitions=whole, consumers=tuple(there))
        loads = {n: self._share(part) for n, part in enumerate(sets)}
        return tuple(
            (consumer, tuple(sorted(p for n in numbers for p in sets[n])))
            for consumer, numbers in balanced(loads, seen, count)
        )

    def _shrinking(self, group: Group, most: Group) -> tuple[float, str]:
        """To go over to a group of those that run now, and perhaps back."""
        kept = self._handed_over(group, math.inf)
        if kept <= self._view.target:
            return kept, "for ever"
        later = self._handed_over(group, self._view.notice) + self._changed(group, most)
        return later, f"with {len(most)} when more comes"

    def _kept(self, group: Group, until: float) -> float:
        """The longest delay of what waits, and of what comes until then, if nothing changes."""
        delays = (self._served(consumer, partitions, until) for consumer, partitions in group)
        return self._settles + max(delays, default=math.inf)

    def _handed_over(self, group: Group, until: float) -> float:
        owned = {consumer: set(partitions) for consumer, partitions in self._now}
        delays = []
        for consumer, partitions in group:
            moved = self._everybody or not set(partitions) <= owned.get(consumer, set())
            still = self._still if moved else 0.0
            delays.append(still + self._served(consumer, partitions, max(0.0, until - still)))
        return max(delays)

    def _served(self, consumer: str | None, partitions: tuple[int, ...], until: float) -> float:
        if not partitions:
            return 0.0
        if partitions not in self._waiting:
            self._waiting[partitions] = self._view.backlog.waiting(partitions)
        mu = self._speed(consumer)
        flow = self._view.flow(self._share(partitions))
        delay = longest_delay(flow, Supply(((0.0, mu),)), self._waiting[partitions], until)
        return max(1 / mu, delay)

    def _share(self, partitions: tuple[int, ...]) -> float:
        return min(1.0, math.fsum(self._shares[p] for p in partitions))

    def _speed(self, consumer: str | None) -> float:
        return self._view.seen.new_mu if consumer is None else self._mu[consumer]

    def _serves(self, group: Group, rate: float) -> bool:
        return all(self._share(ps) * rate <= self._speed(consumer) for consumer, ps in group)

    def _planned(self, group: Group, delay: float, then: str, notes: tuple[str, ...] = ()) -> Sized:
        return Sized(tuple(Member(*each) for each in group), delay, then, notes)

    def _remedy(self, most: Group) -> tuple[str, ...]:
        """Why not even `most` keep the target for ever, and what would help."""
        ceiling, target = self._view.ceiling, self._view.target
        worst = max(most, key=lambda each: self._alone(*each), default=None)
        if worst is None or self._alone(*worst) <= target:
            return ()
        consumer, partitions = worst
        share, mu = self._share(partitions), self._speed(consumer)
        which = f"partition {partitions[0]} has {share:.1%} of the contract {ceiling}"
        if share * ceiling.rate > mu:
            return (
                f"{which}, {share * ceiling.rate:.4g}/s, and a consumer serves {mu:.4g}/s: split "
                "the topic over more partitions or make consumers faster",
            )
        burst = max(1.0, share * ceiling.burst)
        return (
            f"{which}: a burst of {burst:.4g} events takes {shown(burst / mu)} of a consumer and "
            f"the target is {shown(target)}: allow that, make consumers serve "
            f"{burst / target:.4g}/s, split the topic over more partitions, or limit the burst to "
            f"{ceiling.burst * target * mu / burst:.4g}",
        )
