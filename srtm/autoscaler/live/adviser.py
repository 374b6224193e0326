"""The policy of a group that runs: asked once an interval, and shown first what the controller
before this one saw."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from srtm.autoscaler.decision import Action, Decision, Policy
from srtm.autoscaler.live.memory import KEPT
from srtm.autoscaler.observation import Observation

log = logging.getLogger("srtm.autoscale")

_AT_ONCE = 60
"""observations that are shown again in one interval, so that beats are not late"""


@dataclass(slots=True)
class Adviser:
    """make: the policy, once mu is known; fault: what it raised last, "" where it answered; seen:
    what it was asked about of late, oldest first, which another thread may read"""

    name: str
    make: Callable[[float], Policy]
    fault: str = ""
    _policy: Policy | None = None
    _past: list[Observation] = field(default_factory=list)
    seen: tuple[Observation, ...] = ()
    _heir: Policy | None = None
    _anew: bool = False

    def recall(self, past: tuple[Observation, ...]) -> None:
        """Set what was seen until now, before the policy is asked first."""
        if self._policy is None:
            self._past = list(past)

    def begin_anew(self) -> None:
        """Make the policy anew, by what `make` knows now. It takes the place of the old one once
        it has been shown what was seen."""
        self._anew = self._policy is not None

    def ask(self, seen: Observation) -> Decision:
        """A policy that fails decides nothing; the group stays as it is."""
        past, self.seen = self.seen, (*self.seen[1 - KEPT :], seen)
        try:
            if self._anew:
                self._anew = False
                self._heir, self._past = self.make(seen.new_mu), list(past)
            if self._policy is None:
                self._policy = self.make(seen.new_mu)
            policy = self._heir or self._policy
            shown = [*self._past, seen]
            self._past = shown[_AT_ONCE:]
            for each in shown[:_AT_ONCE]:
                decision = policy.decide(each)
            if not self._past:
                self._policy, self._heir = policy, None
            elif self._heir is not None:
                decision = self._policy.decide(seen)
            else:
                return Decision(Action.NONE, reason="it recalls what was seen before")
        except Exception as error:
            if self.fault != str(error):
                log.exception("policy %s has failed", self.name)
            self.fault = f"policy {self.name}: {error}"
            self._past.clear()
            return Decision(Action.NONE, reason=self.fault)
        self.fault = ""
        return decision
