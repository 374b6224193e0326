"""Decisions that are taken back: after which more is late than was foretold, with no more load.

A policy cannot know all: a consumer is slow once it has four partitions, a broker does not like the
new owners. So what follows a smaller group, or new owners, is watched. Where late events are more
than the decision foretold and than the SLO allows, though no more comes than before, the group of
before is restored. The same is refused for a while, as long as as much comes; for longer each time.
More consumers are never refused.
"""

import math
from dataclasses import dataclass, replace

from srtm.autoscaler.decision import Action, Decision, Member, Policy
from srtm.autoscaler.observation import Observation
from srtm.limits.slo import SLO
from srtm.text.words import counted

WATCH_SECONDS = 60.0
"""How long what follows a change is watched, from when it is complete, and how long a decision may
take to be carried out at all."""
WORSE = 4.0
"""Late events are too many when they are more than so many times what was foretold and what the SLO
allows, and their share more than so many times the one of the minutes before."""
EVENTS = 20
"""So few more late events are chance."""
MORE_LOAD = 1.1
"""A mean rate that is so much higher since explains what is late."""
LESS_LOAD = 0.9
"""What failed is tried again once the mean rate is so much below the one at which it failed."""
REFUSED_SECONDS = 300.0
LONGEST_SECONDS = 4 * 3600.0
"""For how long it is refused at first, and at most: each time for twice as long."""
MEMORY_SECONDS = 300.0
"""Half of what was late before a change no longer counts after this."""
RATE_SECONDS = 30.0
"""Half of a rate no longer counts in the mean after this: that of one interval is mostly chance."""


@dataclass(slots=True)
class _Trial:
    """A change that is watched. before: the group that it changed; rate: events/s by then, in the
    mean; foretold: late events; carried_out: was the new group seen?"""

    at: float
    rate: float
    before: tuple[Member, ...]
    after: tuple[Member, ...]
    share: float
    foretold: float
    carried_out: bool = False
    complete_at: float | None = None
    came: float = 0.0
    served: int = 0
    late: int = 0

    @property
    def smaller(self) -> bool:
        return len(self.after) < len(self.before)

    def see(self, seen: Observation, seconds: float) -> None:
        self.came += seen.rate * seconds
        self.served += seen.served
        self.late += seen.late
        there = {(c.id, c.partitions) for c in seen.consumers}
        wanted = {(each.consumer, each.partitions) for each in self.after}
        self.carried_out |= len(there) == len(wanted) if self.smaller else there == wanted
        if self.carried_out and self.complete_at is None and not seen.changing:
            self.complete_at = seen.at

    def is_over(self, at: float) -> bool:
        return at > WATCH_SECONDS + (self.at if self.complete_at is None else self.complete_at)

    def is_worse(self, at: float, allowed_share: float) -> bool:
        bound = WORSE * (self.foretold + allowed_share * self.served) + EVENTS
        more_load = self.came > MORE_LOAD * self.rate * (at - self.at)
        late = self.late > bound and self.late > WORSE * self.share * self.served
        return self.complete_at is not None and late and not more_load


@dataclass(frozen=True, slots=True)
class _Refused:
    """Groups of `size` or fewer, or new owners in a group of that size, are refused until `until`,
    while `rate` or more comes."""

    size: int
    rate: float
    until: float
    seconds: float


class TakenBack:
    """A policy that takes back what `policy` decided, where that made things worse."""

    def __init__(self, policy: Policy, slo: SLO) -> None:
        self.name = policy.name
        self._policy = policy
        self._allowed = slo.allowed_late_share
        self._at = math.nan
        self._forget()

    def _forget(self) -> None:
        self._served = self._late = 0.0
        self._rate: float | None = None
        self._trial: _Trial | None = None
        self._refused: dict[Action, _Refused] = {}

    def decide(self, seen: Observation) -> Decision:
        self._remember(seen)
        decision = self._policy.decide(seen)
        trial = self._trial
        if trial is not None and trial.is_worse(seen.at, self._allowed):
            return self._take_back(seen, trial, decision)
        if why := self._why_not(seen, decision):
            return Decision(Action.NONE, reason=why, notes=decision.notes)
        if decision.action is not Action.NONE:
            self._begin(seen, decision)
        return decision

    def _remember(self, seen: Observation) -> None:
        seconds = seen.at - self._at
        if seconds < 0:  # what is known lies in the future
            self._forget()
        seconds = max(0.0, seconds) if math.isfinite(seconds) else 0.0
        self._at = seen.at
        kept = 0.5 ** (seconds / MEMORY_SECONDS)
        self._served = kept * self._served + seen.served
        self._late = kept * self._late + seen.late
        kept = 0.5 ** (seconds / RATE_SECONDS)
        self._rate = seen.rate if self._rate is None else kept * self._rate + (1 - kept) * seen.rate
        if self._trial is not None:
            self._trial.see(seen, seconds)
            if self._trial.is_over(seen.at):
                self._trial = None

    def _begin(self, seen: Observation, decision: Decision) -> None:
        """More consumers are not watched: what is late before they serve is not their doing."""
        before = tuple(Member(c.id, c.partitions) for c in seen.consumers)
        again = self._trial is not None and decision.members == self._trial.after
        if again or decision.members == before:
            return
        self._trial = None
        if decision.action is Action.UP or seen.changing or seen.orphans:
            return
        assert self._rate is not None
        self._trial = _Trial(
            at=seen.at,
            rate=self._rate,
            before=before,
            after=decision.members,
            share=self._late / max(self._served, 1.0),
            foretold=decision.late or 0.0,
        )

    def _take_back(self, seen: Observation, trial: _Trial, decision: Decision) -> Decision:
        self._trial = None
        kind = Action.DOWN if trial.smaller else Action.REASSIGN
        before = self._refused.get(kind)
        longer = 0.0 if before is None else 2 * before.seconds
        seconds = min(LONGEST_SECONDS, max(REFUSED_SECONDS, longer))
        size = len(trial.after)
        self._refused[kind] = _Refused(size, trial.rate, seen.at + seconds, seconds)
        there = {c.id for c in seen.consumers}
        known = {p for each in trial.before for p in each.partitions}
        gone = sum(each.consumer not in there for each in trial.before)
        enough = decision.action is Action.UP and len(decision.members) >= len(trial.before)
        possible = known == {p.id for p in seen.partitions} and (trial.smaller or not gone)
        if enough or not possible or seen.changing:
            return Decision(Action.NONE) if self._why_not(seen, decision) else decision
        members = tuple(
            each if each.consumer in there else replace(each, consumer=None)
            for each in trial.before
        )
        reason = (
            f"taken back: {counted(trial.late, 'event')} of {trial.served} were late in "
            f"{seen.at - trial.at:.0f} s with {counted(size, 'consumer')}, "
            f"{trial.foretold:.0f} foretold, and no more came than before"
        )
        action = Action.UP if gone else Action.REASSIGN
        return Decision(action, members, reason, decision.notes, decision.handover)

    def _why_not(self, seen: Observation, decision: Decision) -> str:
        """Why the decision is refused; "" where it is not."""
        refused = self._refused.get(decision.action)
        if refused is None or seen.at >= refused.until or seen.orphans:
            return ""
        assert self._rate is not None
        other = decision.action is Action.REASSIGN and len(decision.members) != refused.size
        if other or len(decision.members) > refused.size or self._rate < LESS_LOAD * refused.rate:
            return ""
        what = counted(refused.size, "consumer")
        if decision.action is Action.REASSIGN:
            what = f"new owners of {what}"
        return (
            f"{what} made too much late at {refused.rate:.0f}/s: not tried again for "
            f"{refused.until - seen.at:.0f} s, or until less comes"
        )
