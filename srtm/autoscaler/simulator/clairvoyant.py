"""The clairvoyant reference: a schedule found with the whole trace known, and a bound below it.

A model of costs (the queues of each group, a guess of what a hand-over loses) gives first
schedules at several prices of a late event. Each is played in the simulator and bettered by moves
of its changes; then the best is changed at random (annealing) as long as there are runs.
It is a heuristic: `Plan.lower_bound` says how far from the optimum it can be.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from srtm.autoscaler.decision import Action, Decision
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.bound import lower_bound
from srtm.autoscaler.simulator.descent import descend, merit, rank, wander
from srtm.autoscaler.simulator.grouping import Parts, groups_for, ticks
from srtm.autoscaler.simulator.path import Change, Costs, Schedule, cheapest
from srtm.autoscaler.simulator.play import Played, members, play
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting

_FACTORS = (1.0, 0.3, 3.0)
"""How much to make of the guess of what hand-overs lose; heartbeats can be better or worse."""
_PRICES = (1e-4, 10.0)
"""replica-seconds for a late event, and the steps that bisect them: known to 5 % then."""
_BISECTIONS = 8
_CONFIRMED = 20
"""Best schedules at most that are tried in `simulate`, which advances the group at every decision
and not at changes only: for a few schedules its polls, and so some late events, come out otherwise.
The first that keeps the SLO there too is taken, mostly the very first."""
_STARTS = 4
"""First schedules that are bettered, the most promising first."""


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """groups[g]: the partitions of each consumer of group g. changes: when which group is wanted.
    share: of events within the SLO's target, as simulated. replica_minutes: likewise. lower_bound:
    replica-minutes that no schedule undercuts which keeps the SLO (math.inf: none keeps it). runs:
    simulations that the search took. remedy: empty where the SLO is kept."""

    setting: Setting
    groups: tuple[Parts, ...]
    changes: Schedule
    share: float
    replica_minutes: float
    lower_bound: float
    runs: int
    remedy: str = ""

    @property
    def keeps_slo(self) -> bool:
        return not self.remedy


class Clairvoyant:
    """Plays a plan, in the setting and with the arrivals that it was made for; it has no state."""

    name = "clairvoyant"

    def __init__(self, plan: ReplicaPlan) -> None:
        self._setting = plan.setting
        self._wanted = {change.tick: plan.groups[change.group] for change in plan.changes}

    def decide(self, seen: Observation) -> Decision:
        setting = self._setting
        wanted = self._wanted.get(round((seen.at - setting.lag_phase) / setting.decision_seconds))
        if wanted is None:
            return Decision(Action.NONE)
        now = tuple(consumer.partitions for consumer in seen.consumers)
        ids = [consumer.id for consumer in seen.consumers]
        action = Action.REASSIGN
        if len(wanted) != len(now):
            action = Action.UP if len(wanted) > len(now) else Action.DOWN
        return Decision(action, members(ids, now, wanted), "the trace is known")


def plan(arrivals: Arrivals, setting: Setting, effort: float = 1.0) -> ReplicaPlan:
    """Search for the fewest replica-minutes with the SLO kept; for the best share if it cannot be.

    effort: scales the runs of the search; 1 takes some 10 s of a core for 600 s of workload and
    70 s for 7,200 s. The same arguments give the same plan.
    """
    groups = groups_for(arrivals, setting)
    search = _Search(arrivals, setting, groups, effort)
    search.start()
    search.better()
    bound = lower_bound(arrivals, setting)
    for best in search.ranked()[:_CONFIRMED]:
        found = ReplicaPlan(setting, groups, best.schedule, 0.0, 0.0, bound, search.runs)
        run = simulate(Clairvoyant(found), arrivals, setting)
        kept = (1 - run.sla_share) * max(1, arrivals.events) <= search.allowed
        if kept or best.late_events > search.allowed:
            break
    return replace(
        found,
        share=run.sla_share,
        replica_minutes=run.replica_minutes,
        remedy="" if kept else _remedy(arrivals, setting, run.sla_share, bound),
    )


class _Search:
    """Every schedule that was played, up to a number of runs that depends on the arrivals only."""

    def __init__(
        self, arrivals: Arrivals, setting: Setting, groups: tuple[Parts, ...], effort: float
    ) -> None:
        self._arrivals, self._setting, self._groups = arrivals, setting, groups
        self._played: dict[Schedule, Played] = {}
        # Seconds of a run on one core of 2020 or so: the simulator follows polls one by one, and
        # has hardly more polls than there are different times of arrival.
        polls = sum(len(np.unique(times)) for times in arrivals.times)
        run_seconds = 0.002 + 7e-8 * arrivals.events + 4e-7 * polls
        self._most = 50 + int(effort * (10 + arrivals.seconds / 120) / run_seconds)
        self._ticks = ticks(arrivals, setting)
        self.allowed = arrivals.events * setting.slo.allowed_late_share + 1e-6

    @property
    def runs(self) -> int:
        return len(self._played)

    @property
    def best(self) -> Played:
        return min(self._played.values(), key=lambda played: rank(played, self.allowed))

    def ranked(self) -> list[Played]:
        return sorted(self._played.values(), key=lambda played: rank(played, self.allowed))

    def play(self, schedule: Schedule) -> Played | None:
        schedule = tuple(change for change in schedule if change.tick < self._ticks)
        if schedule not in self._played:
            if self.runs >= self._most:
                return None
            self._played[schedule] = play(schedule, self._groups, self._arrivals, self._setting)
        return self._played[schedule]

    def start(self) -> None:
        """Every group kept for good, and what the model proposes."""
        for group in range(len(self._groups)):
            self.play((Change(0, group),) if group else ())
        costs = Costs(self._arrivals, self._setting, self._groups)
        for factor in _FACTORS:
            low, high = _PRICES
            for _ in range(_BISECTIONS):
                price = math.sqrt(low * high)
                played = self.play(cheapest(costs, price, factor))
                if played is None or played.late_events <= self.allowed:
                    high = price
                else:
                    low = price

    def better(self) -> None:
        """Look for better schedules: by descent from the best starts, then by chance, then by
        descent again."""

        def promise(played: Played) -> float:
            return merit(played, self.allowed)

        for start in sorted(self._played.values(), key=promise)[:_STARTS]:
            descend(start, self.play, len(self._groups), self.allowed)
        wander(self.best, self.play, len(self._groups), self.allowed, self._most - self.runs)
        self._most += self._most // 4
        descend(self.best, self.play, len(self._groups), self.allowed)


def _remedy(arrivals: Arrivals, setting: Setting, share: float, bound: float) -> str:
    found = f"SLO {setting.slo} is not kept, the best share found is {share:.4f}"
    if bound == math.inf:
        found += " and no schedule can keep it"
    rates = arrivals.per_second()
    busiest = int(rates.sum(axis=1).argmax())
    peak = int(rates[busiest].max())
    if peak > setting.mu:
        return (
            f"{found}: partition {busiest} alone gets up to {peak} events/s and a consumer serves "
            f"{setting.mu:g}/s; use more partitions or faster consumers"
        )
    return (
        f"{found}; shorten the start-up or the hand-over, start with more consumers, use more "
        "partitions, or weaken the SLO"
    )
