"""The policy `srtm`: act only where it saves more than it costs.

At each decision a small dynamic programme looks ahead. Its states are the group as it is and a
balanced group of each size; its costs are replica-seconds, billed from the launch, and late events
at a price. Late events are those of each second under each group (fluid queues over the arrivals
of the last seconds, scaled to the forecast) and those of the hand-over (what comes while partitions
stand still, for as long as hand-overs have really taken, by the kind of hand-over that costs
least). The forecast's error makes three futures of it; what is done now has to suit all of them,
and what can wait until it shows which one it is does wait. The first step is taken.

The price follows the SLO's error budget, so the share of late events comes out near the one that
is allowed, with no setting for a workload. All constants stand in `tuning`.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from srtm.autoscaler.decision import Action, Decision, Handover, Member
from srtm.autoscaler.fluid import Floats, slotted
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.paper import cannot_be_met
from srtm.autoscaler.policies.srtm.budget import Budget
from srtm.autoscaler.policies.srtm.forecast import Forecast
from srtm.autoscaler.policies.srtm.groups import Group, balanced, group_of
from srtm.autoscaler.policies.srtm.outlook import Outlook
from srtm.autoscaler.policies.srtm.plan import first_step
from srtm.autoscaler.policies.srtm.shape import Shape, beside
from srtm.autoscaler.policies.srtm.standing import Standing
from srtm.autoscaler.policies.srtm.stops import Kind, Stops
from srtm.autoscaler.policies.srtm.surges import Surges
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning
from srtm.autoscaler.policies.timeline import Timeline
from srtm.limits.ceiling import EXCEEDED, Ceiling, Level
from srtm.limits.slo import SLO


@dataclass(frozen=True, slots=True)
class _Asked:
    """A change that was decided and may be refused: then it costs nothing, and teaches nothing.

    group: as it was; late: events that were late by then; cost: those of the hand-over, foretold
    """

    group: Group
    kind: Kind
    at: float
    late: int
    cost: float


class Srtm:
    """handovers: those that the group's back end can do; the policy chooses among them
    most: consumers that there may be (None: as many as there are partitions)
    ceiling: what the arrivals are bounded by (None: by nothing)
    """

    name = "srtm"

    def __init__(
        self,
        slo: SLO,
        decision_seconds: float = 1.0,
        handovers: tuple[Handover, ...] = (*Handover,),
        most: int | None = None,
        tuning: Tuning = TUNING,
        ceiling: Ceiling | None = None,
    ) -> None:
        self._slo = slo
        self._ceiling = ceiling
        self._tuning = tuning
        self._handovers = handovers
        self._most = most
        self._seconds = decision_seconds
        ahead = round(tuning.horizon_seconds / decision_seconds)
        self._horizon = max(tuning.fewest_intervals, ahead)
        self._first = max(tuning.first_intervals, round(tuning.first_seconds / decision_seconds))
        self._budget = Budget(slo, tuning)
        self._stops = Stops(tuning)
        self._timeline = Timeline(decision_seconds)
        self._begin_anew()

    def _begin_anew(self) -> None:
        tuning = self._tuning
        self._shape = Shape(self._horizon, tuning.paths, self._seconds, tuning.level_seconds)
        self._forecast: Forecast | None = None
        self._rates: deque[float] = deque(maxlen=self._horizon * tuning.paths)
        self._surges = Surges(self._seconds, tuning)
        self._level = Level(self._ceiling)
        self._standing = Standing(self._slo, self._seconds, tuning)
        self._observations = 0
        self._launched_at: float | None = None
        self._smaller = 0  # decisions in a row that want fewer consumers
        self._asked: _Asked | None = None

    def decide(self, seen: Observation) -> Decision:
        notes = self._look(seen)
        orphans = len(seen.orphans)
        if not seen.consumers or (orphans and not seen.rebalancing):
            return self._adopt(seen, orphans, notes)
        if not seen.changing:
            self._launched_at = None
        elif seen.rebalancing or not self._launches_still(seen):
            return Decision(Action.NONE, reason="a change is under way", notes=notes)
        first = self._tuning.first_intervals if self._is_short(seen) else self._first
        if self._observations < first or self._forecast is None:
            return Decision(Action.NONE, reason="too little has been seen yet", notes=notes)
        tuning = self._tuning
        self._standing.look(seen.at, self._budget.usual / seen.new_mu)
        if self._standing.least > len(seen.consumers):
            return self._stand(seen, self._standing.least, notes)
        surges, likely = self._surges.expected(self._forecast.level)
        horizon = self._look_ahead(seen)
        outlook = Outlook(
            seen=seen,
            shape=self._shape.paths(horizon),
            rates=self._expected(seen, self._forecast.rates(horizon)),
            errors=self._forecast.errors(horizon),
            surges=surges,
            # What is left of the budget makes a surprise less cheap than a usual error.
            surge_weights=likely / self._budget.discount**tuning.surge_undiscounted,
            lead=self._forecast.ahead,
            interval_seconds=self._seconds,
            target_seconds=self._slo.target_seconds,
            longest_poll_seconds=tuning.longest_poll_seconds,
            most=self._room(seen),
            uneven=tuning.uneven,
            # What was exceeded bounds nothing.
            ceiling=None if self._level.exceeded else self._ceiling,
            level=self._level.messages,
        )
        return self._choose(outlook, notes)

    def _expected(self, seen: Observation, rates: Floats) -> Floats:
        """The forecast, and no less than what is announced."""
        if not seen.announced:
            return rates
        return np.maximum(rates, seen.announced_rates(len(rates), self._seconds))

    def _look(self, seen: Observation) -> tuple[str, ...]:
        """Take in what is seen; what cannot be met, or made sense of, is noted."""
        before = self._timeline.last
        odd = tuple(self._timeline.step(seen.at))
        if odd:
            self._begin_anew()
        forecast = self._forecast_for(self._lead(seen) + 1)
        self._observations += 1
        if self._observations > 1:  # the first one is of a time that nobody knows
            forecast.see(seen.rate)
            self._rates.append(seen.rate)
            if forecast.surprise is not None:
                self._surges.see(forecast.surprise)
            slots = _slots(seen, self._seconds, self._slo.target_seconds)
            self._shape.see(slots, forecast.jumped)
            # An observation may have been missed: tokens came all the time since the last one.
            seconds = self._seconds if before is None else seen.at - before
            came = slots.sum(axis=1) * (seconds / self._seconds)
            self._level.see(came.tolist(), seconds / len(slots))
            mus = [c.mu for c in seen.consumers] or [seen.new_mu]
            mu, room = math.fsum(mus) / len(mus), self._room(seen)
            self._standing.see(slots, mu, room, len(seen.consumers), seen.late)
        asked, self._asked = self._asked, None
        if asked is not None and (seen.changing or group_of(seen) != asked.group):
            self._budget.expect(asked.cost)
            self._stops.begin(asked.kind, asked.at, asked.late, asked.cost)
        self._budget.see(seen, self._seconds)
        self._stops.see(seen.at, self._budget.late, seen.stopped_seconds, seen.changing)
        beyond = (EXCEEDED,) if self._level.exceeded else ()
        return (*odd, *beyond, *cannot_be_met(seen, self._slo.target_seconds))

    def _forecast_for(self, ahead: int) -> Forecast:
        """The forecast whose errors are measured so many intervals ahead, or nearly: a start-up
        that turns out longer than was thought needs another, which is taught what has been."""
        if self._forecast is None or abs(self._forecast.ahead - ahead) > 1:
            near = beside(self._seconds, self._tuning.level_seconds)
            self._forecast = Forecast(ahead, near, self._tuning)
            for rate in self._rates:
                self._forecast.see(rate)
        return self._forecast

    def _is_short(self, seen: Observation) -> bool:
        """Does more come, or wait, than is served, or served within the target?"""
        served = math.fsum(c.mu for c in seen.consumers)
        return seen.rate > served or seen.lag > served * self._slo.target_seconds

    def _launches_still(self, seen: Observation) -> bool:
        """Has the launch under way only begun? One that grows takes over when all have joined."""
        since = math.inf if self._launched_at is None else seen.at - self._launched_at
        return since <= self._tuning.surprise_until * seen.startup_seconds

    def _lead(self, seen: Observation) -> int:
        """Intervals from a launch to serving: one where it takes no time, as decisions go."""
        seconds = seen.startup_seconds + seen.rebalance_seconds
        seconds = min(seconds, self._tuning.longest_launch_seconds)
        return max(1, math.ceil(seconds / self._seconds))

    def _look_ahead(self, seen: Observation) -> int:
        """Intervals: twice a launch at least. A shorter look would see what launching costs, and
        nothing of what it brings."""
        return max(self._horizon, 2 * self._lead(seen))

    def _adopt(self, seen: Observation, orphans: int, notes: tuple[str, ...]) -> Decision:
        """Partitions without a consumer are not served at all: that cannot wait."""
        loads = {p.id: max(p.rate, 1e-9) for p in seen.partitions}
        # A consumer more would be no help to a partition that brings more than one serves.
        enough = math.ceil(
            math.fsum(min(p.rate, seen.new_mu) for p in seen.partitions) / seen.new_mu
        )
        count = min(self._room(seen), max(1, len(seen.consumers), enough))
        action = Action.UP if count > len(seen.consumers) else Action.REASSIGN
        if count < len(seen.consumers):
            action = Action.DOWN
        reason = f"{orphans} of {len(seen.partitions)} partitions have no consumer"
        group = balanced(loads, seen, count, self._tuning.move_worth)
        return _decision(action, group, reason, notes, self._handovers[-1])

    def _stand(self, seen: Observation, size: int, notes: tuple[str, ...]) -> Decision:
        """A group that stands would have cost less: it is what there is at least."""
        share = self._shape.paths().sum(axis=(0, 1))
        group = balanced(_loads(seen, share), seen, size, self._tuning.move_worth)
        if self._launched_at is None:
            self._launched_at = seen.at
        reason = (
            f"{len(seen.consumers)} -> {size} consumers: with so many that stay, what came of late "
            "would have cost less than with a group that follows it"
        )
        return _decision(Action.UP, group, reason, notes, self._handovers[-1])

    def _room(self, seen: Observation) -> int:
        """Consumers that could have something to do."""
        return min(len(seen.partitions), self._most or len(seen.partitions))

    def _choose(self, outlook: Outlook, notes: tuple[str, ...]) -> Decision:
        seen, tuning = outlook.seen, self._tuning
        now = group_of(seen)
        share = outlook.shape.sum(axis=(0, 1))
        loads = _loads(seen, share)
        sizes = _sizes(len(now), self._standing.least, self._room(seen), tuning.wider)
        others = [balanced(loads, seen, n, tuning.move_worth) for n in sizes]
        groups = [now, *(group for group in others if set(group) != set(now)), now]
        stages = outlook.stages(groups)
        price, persist = self._budget.price, max(1, round(tuning.persist_seconds / self._seconds))
        step = partial(
            first_step,
            price=price,
            interval_seconds=self._seconds,
            lead=self._lead(seen),
            persist=persist,
            held=tuning.held,
        )
        best, _ = step(stages)
        self._smaller = self._smaller + 1 if len(groups[best]) < len(now) else 0
        if not best:  # not even if hand-overs were free
            return Decision(Action.NONE, reason="the group as it is costs least", notes=notes)
        hand_overs = self._hand_overs(outlook, now, groups)
        relief = stages.relief()
        charged = [
            self._charge(now, group, cost, cost < less)
            for group, (cost, _), less in zip(groups, hand_overs, relief, strict=True)
        ]
        stages = replace(stages, hand=np.array(charged))
        best, saved = step(stages)
        if not best:
            return Decision(Action.NONE, reason="no change is worth its hand-over", notes=notes)
        action, patience = _action(now, groups[best]), self._patience(outlook)
        if self._launched_at is not None and action is not Action.UP:
            return Decision(Action.NONE, reason="a change is under way", notes=notes)
        if action is Action.DOWN and self._smaller <= patience:
            reason = f"fewer consumers are wanted for {self._smaller} of {patience + 1} decisions"
            return Decision(Action.NONE, reason=reason, notes=notes)
        self._smaller = 0
        cost, kind = hand_overs[best]
        if self._launched_at is None:
            self._launched_at = seen.at
        self._asked = _Asked(now, (kind, action), seen.at, self._budget.late, cost)
        size, seconds = len(groups[best]), len(outlook.rates) * self._seconds
        reason = (
            f"{len(now)} -> {size} consumers for {outlook.rates[0]:.0f} events/s, "
            f"{outlook.at_the_end} in {seconds:.0f} s: saves {saved:.1f} replica-seconds over "
            f"waiting, a late event being worth {price:.2f}"
        )
        if round(cost):
            reason += f"; the hand-over makes {cost:.0f} late"
        return replace(_decision(action, groups[best], reason, notes, kind), late=cost)

    def _patience(self, outlook: Outlook) -> int:
        """Decisions before it that a scale-down asks for."""
        unsure = float(outlook.errors[0])
        if outlook.surge_weights.sum() > self._tuning.surge_frequent:
            unsure = max(unsure, float(outlook.surges[-1]))
        error = unsure / max(float(outlook.rates[0]), 1e-9)
        return round(self._lead(outlook.seen) * min(1.0, error / self._tuning.noisy))

    def _hand_overs(
        self, outlook: Outlook, old: Group, groups: Sequence[Group]
    ) -> list[tuple[float, Handover]]:
        """Late events of the hand-over to each group that causes fewest, and its kind. One that
        stops as much as another for as long or longer need not be looked at."""
        rebalance_seconds, at = outlook.seen.rebalance_seconds, outlook.seen.at
        actions = [_action(old, group) for group in groups]
        best = [(math.inf, self._handovers[-1])] * len(groups)
        looked_at: list[tuple[Handover, list[float]]] = []
        for kind in reversed(self._handovers):
            stops = [self._stops.expected((kind, a), rebalance_seconds, at) for a in actions]
            if any(
                (other is not Handover.EAGER or kind is Handover.EAGER)
                and all(a <= b for a, b in zip(known, stops, strict=True))
                for other, known in looked_at
            ):
                continue
            looked_at.append((kind, stops))
            late = outlook.hand_overs(old, groups, kind, stops)
            for place, events in enumerate(late):
                if events * self._stops.correction < best[place][0]:
                    best[place] = (events * self._stops.correction, kind)
        return best

    def _charge(self, old: Group, new: Group, late: float, relieves: bool) -> float:
        """What the programme is told that a hand-over costs: one that could as well be left must
        be within the budget. relieves: the group as it is makes more late than it costs"""
        optional = len(new) < len(old) or (len(new) == len(old) and not relieves)
        if len(new) < len(old):
            late *= self._tuning.there_and_back
        if optional and not self._budget.affords(late):
            return math.inf
        return late


def _sizes(now: int, least: int, most: int, wider: int) -> list[int]:
    near = range(now - wider, now + wider + 1)
    return sorted(n for n in {*near, now // 2, 2 * now} if max(1, least) <= n <= most)


def _loads(seen: Observation, shares: Floats) -> dict[int, float]:
    return {p.id: max(float(s), 1e-9) for p, s in zip(seen.partitions, shares, strict=True)}


def _slots(seen: Observation, interval_seconds: float, target_seconds: float) -> Floats:
    """Events of one interval, shape (slots, partitions). What comes in a slot is taken to come at
    once, which says something only of slots that are not longer than the target: longer ones are
    cut, and their events spread evenly."""
    slots = slotted(seen, interval_seconds)
    parts = math.ceil(interval_seconds / len(slots) / target_seconds - 1e-9)
    return np.repeat(slots / parts, parts, axis=0)


def _action(old: Group, new: Group) -> Action:
    if len(old) == len(new):
        return Action.REASSIGN
    return Action.UP if len(new) > len(old) else Action.DOWN


def _decision(
    action: Action, group: Group, reason: str, notes: tuple[str, ...], kind: Handover
) -> Decision:
    members = tuple(Member(consumer, partitions) for consumer, partitions in group)
    return Decision(action, members, reason, notes, kind)
