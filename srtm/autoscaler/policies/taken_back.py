"""Decisions that are taken back: after which more is late than was foretold, with no more load.

A policy cannot know all: a consumer is slow once it has four partitions, a broker does not like the
new owners. So what follows a smaller group, or new owners, is watched. Where late events are more
than the decision foretold and than the SLO allows, though no more comes than before, the group of
before is restored. One as small is refused for a while, as long as as much comes; for longer each
time. More consumers are never refused.
"""

import math
from dataclasses import dataclass, replace

from srtm.autoscaler.decision import Action, Decision, Member, Policy
from srtm.autoscaler.observation import ConsumerState, Observation
from srtm.limits.slo import SLO
from srtm.text.words import counted

WATCH_SECONDS = 60.0
"""How long what follows a change is watched, from when it is complete."""
WORSE = 2.0
"""Late events are too many when they are more than so many times what was foretold and what the SLO
allows, and their share more than so many times the one of the minutes before."""
EVENTS = 20
"""So few more late events are chance."""
MORE_LOAD = 1.1
"""A rate that has risen so far since explains what is late."""
LESS_LOAD = 0.9
"""A smaller group is tried again once the rate is so much below the one at which it failed."""
REFUSED_SECONDS = 300.0
LONGEST_SECONDS = 4 * 3600.0
"""For how long it is refused at first, and at most: each time for twice as long."""
MEMORY_SECONDS = 300.0
"""Half of what was late before a change no longer counts after this."""


@dataclass(slots=True)
class _Trial:
    """A change that is watched. before: the group that it changed; foretold: late events"""

    at: float
    rate: float
    before: tuple[Member, ...]
    size: int
    share: float
    foretold: float
    complete_at: float | None = None
    served: int = 0
    late: int = 0

    def is_worse(self, allowed_share: float) -> bool:
        bound = WORSE * (self.foretold + allowed_share * self.served) + EVENTS
        return self.late > bound and self.late > WORSE * self.share * self.served


@dataclass(frozen=True, slots=True)
class _Refused:
    """Groups of `size` or fewer are refused until `until`, while `rate` or more comes."""

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
        self._served = self._late = 0.0
        self._at = math.nan
        self._trial: _Trial | None = None
        self._refused: _Refused | None = None

    def decide(self, seen: Observation) -> Decision:
        self._remember(seen)
        decision = self._policy.decide(seen)
        trial = self._watch(seen)
        if trial is not None and trial.is_worse(self._allowed) and not _is_changing(seen):
            return self._take_back(seen, trial, decision)
        if decision.action is Action.DOWN and (why := self._why_not(seen, decision)):
            return Decision(Action.NONE, reason=why, notes=decision.notes)
        if decision.action is not Action.NONE:
            self._begin(seen, decision)
        return decision

    def _remember(self, seen: Observation) -> None:
        seconds = seen.at - self._at
        kept = 0.5 ** (max(0.0, seconds) / MEMORY_SECONDS) if math.isfinite(seconds) else 0.0
        self._served = kept * self._served + seen.served
        self._late = kept * self._late + seen.late
        if seconds < 0:  # what is known lies in the future
            self._trial = self._refused = None
        self._at = seen.at

    def _begin(self, seen: Observation, decision: Decision) -> None:
        """More consumers are not watched: what is late before they serve is not their doing."""
        self._trial = None
        if decision.action is Action.UP or _is_changing(seen):
            return
        self._trial = _Trial(
            at=seen.at,
            rate=seen.rate,
            before=tuple(Member(c.id, c.partitions) for c in seen.consumers),
            size=len(decision.members),
            share=self._late / max(self._served, 1.0),
            foretold=decision.late or 0.0,
        )

    def _watch(self, seen: Observation) -> _Trial | None:
        trial = self._trial
        if trial is None:
            return None
        trial.served += seen.served
        trial.late += seen.late
        if trial.complete_at is None and not _is_changing(seen):
            trial.complete_at = seen.at
        over = trial.complete_at is not None and seen.at > trial.complete_at + WATCH_SECONDS
        if over or seen.rate > MORE_LOAD * trial.rate:
            self._trial = None
        return self._trial

    def _take_back(self, seen: Observation, trial: _Trial, decision: Decision) -> Decision:
        self._trial = None
        longer = 0.0 if self._refused is None else 2 * self._refused.seconds
        seconds = min(LONGEST_SECONDS, max(REFUSED_SECONDS, longer))
        there = {c.id for c in seen.consumers}
        known = {p for each in trial.before for p in each.partitions}
        gone = sum(each.consumer not in there for each in trial.before)
        smaller = trial.size < len(trial.before)
        if smaller:
            self._refused = _Refused(trial.size, trial.rate, seen.at + seconds, seconds)
        if known != {p.id for p in seen.partitions} or (gone and not smaller):
            return decision  # the group of before cannot be any more
        members = tuple(
            each if each.consumer in there else replace(each, consumer=None)
            for each in trial.before
        )
        reason = (
            f"taken back: {counted(trial.late, 'event')} of {trial.served} were late in "
            f"{seen.at - trial.at:.0f} s with {counted(trial.size, 'consumer')}, "
            f"{trial.foretold:.0f} foretold, and no more came than before"
        )
        action = Action.UP if smaller else Action.REASSIGN
        return Decision(action, members, reason, decision.notes, decision.handover)

    def _why_not(self, seen: Observation, decision: Decision) -> str:
        refused = self._refused
        if refused is None or len(decision.members) > refused.size or seen.at >= refused.until:
            return ""
        if seen.rate < LESS_LOAD * refused.rate:
            return ""
        return (
            f"{counted(refused.size, 'consumer')} made too much late at {refused.rate:.0f}/s: not "
            f"tried again for {refused.until - seen.at:.0f} s, or until less comes"
        )


def _is_changing(seen: Observation) -> bool:
    return seen.rebalancing or any(c.state is ConsumerState.STARTING for c in seen.consumers)
