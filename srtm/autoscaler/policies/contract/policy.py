"""The policy `contract`: the fewest consumers that keep the target for every arrival that a
contract (r, b) allows, be it the worst.

It forecasts nothing. A group is enough if an event has no longer delay than the target even if the
most that the contract lets come does come, at the worst moment, and more consumers are launched
only at the next decision: they join a start-up later. What the bucket can still bring is known from
what has come: at most b less what came lately, with what r has brought since.

So with a target that is short against a start-up it keeps the constant group that the contract
needs; with a longer one it scales in when it is calm. A scale-in waits until the smaller group
would have served all that came in the time of the last launches.
"""

import math
from collections import deque
from collections.abc import Iterator

import numpy as np

from srtm.autoscaler.decision import Action, Decision
from srtm.autoscaler.observation import ConsumerState, Observation
from srtm.autoscaler.policies.contract.backlog import Backlog, slots_of
from srtm.autoscaler.policies.contract.partitioned import Partitioned
from srtm.autoscaler.policies.contract.pooled import Pool
from srtm.autoscaler.policies.contract.view import Sized, View, shown
from srtm.autoscaler.policies.group import consumers, nothing, wanted
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.srtm.groups import Group
from srtm.limits.ceiling import EXCEEDED, Level

_LAUNCHES = 2
"""How many times as long as a launch takes the rate must have been low before a scale-in."""
_HALF_SECONDS = 300.0
"""The time after which half of what came no longer counts for the share of a partition."""


class Contracted(PaperPolicy):
    """Raises ValueError for settings without a contract."""

    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(name, settings)
        if settings.contract is None:
            raise ValueError(
                f'{name} sizes by a contract: give [group] contract = "rate=1000,burst=200", or '
                "--contract"
            )
        self._ceiling = settings.contract
        self._begin_anew()

    def _begin_anew(self) -> None:
        settings = self.settings
        self._level = Level(self._ceiling)
        self._backlog = Backlog(settings.w_sla, settings.decision_seconds)
        self._rates: deque[tuple[float, float]] = deque(maxlen=10_000)
        self._counts: dict[int, float] = {}
        self._joined: dict[str, float] = {}
        self._before: float | None = None
        self._most: Group = ()

    def _decide(self, seen: Observation) -> Decision:
        notes = tuple(self._look(seen))
        if self.settings.pooled:
            return self._answer(seen, Pool(self._view(seen), self._joins(seen)).plan(), notes)
        group = Partitioned(self._view(seen), self._shares(seen), self.settings.handover)
        if seen.orphans and not seen.rebalancing:
            members = group.adopting()
            return wanted(seen, members, "partitions have no consumer", notes)
        if seen.starting:
            return nothing("a change is under way", notes)
        self._most = group.fewest_for_ever(self._most)
        decision = self._answer(seen, group.plan(self._most), notes)
        if seen.rebalancing and decision.action is not Action.UP:  # a launch may begin meanwhile
            return nothing("a change is under way", notes)
        return decision

    def _answer(self, seen: Observation, plan: Sized, notes: tuple[str, ...]) -> Decision:
        delay = f"{shown(plan.delay)} at most" if plan.delay < math.inf else "no bound"
        reason = (
            f"{consumers(len(plan.members))} {plan.then}: {delay} for all that {self._ceiling} "
            f"allows, of whose burst {self._level.messages:.4g} can come at once now"
        )
        if self.settings.pooled and len(plan.members) == len(seen.consumers):
            return nothing(reason, (*notes, *plan.notes))
        return wanted(seen, plan.members, reason, (*notes, *plan.notes))

    # --- what is seen -----------------------------------------------------------------------------

    def _look(self, seen: Observation) -> Iterator[str]:
        """Take in what is seen; notes on what the contract does not bound."""
        if self._timeline.went_back:
            self._begin_anew()
        seconds = 0.0 if self._before is None else seen.at - self._before
        self._follow_launches(seen)
        self._before = seen.at
        self._backlog.see(seen, seconds)
        if not seconds:
            return
        slots = slots_of(seen, seconds)
        self._level.see(slots.sum(axis=1).tolist(), seconds / len(slots))
        if self._level.exceeded:
            yield EXCEEDED
        self._rates.append((seen.at, seen.rate))
        calm = _LAUNCHES * (self.settings.decision_seconds + seen.startup_seconds)
        while self._rates[0][0] < seen.at - calm:
            self._rates.popleft()
        kept = 0.5 ** (seconds / _HALF_SECONDS)
        self._counts = {
            p.id: kept * self._counts.get(p.id, 0.0) + p.rate * seconds for p in seen.partitions
        }

    def _follow_launches(self, seen: Observation) -> None:
        """What is seen to start for the first time was launched at the last decision."""
        launched = seen.at if self._before is None else self._before
        self._joined = {
            c.id: self._joined.get(c.id, launched + seen.startup_seconds)
            for c in seen.consumers
            if c.state is ConsumerState.STARTING
        }

    def _joins(self, seen: Observation) -> dict[str, float]:
        """Seconds until each of those that start joins; one that is late may do so at any time, and
        is taken to take an interval more."""
        late = self.settings.decision_seconds
        return {id_: at - seen.at if at > seen.at else late for id_, at in self._joined.items()}

    def _shares(self, seen: Observation) -> dict[int, float]:
        """What each partition has of every interval: what was said, or what it has had until now,
        with a second of the contract's rate that came evenly."""
        said = self.settings.shares
        if said is not None and len(said) == len(seen.partitions):
            return dict(zip(sorted(p.id for p in seen.partitions), said, strict=True))
        even = self._ceiling.rate / len(seen.partitions)
        counts = {p.id: self._counts.get(p.id, 0.0) + even for p in seen.partitions}
        whole = math.fsum(counts.values())
        return {p: count / whole for p, count in counts.items()}

    def _view(self, seen: Observation) -> View:
        peak = float(np.max([rate for _, rate in self._rates])) if self._rates else math.inf
        return View(
            seen=seen,
            ceiling=self._ceiling,
            level=self._level.messages,
            backlog=self._backlog,
            target=self.settings.w_sla,
            interval=self.settings.decision_seconds,
            peak=peak,
        )
