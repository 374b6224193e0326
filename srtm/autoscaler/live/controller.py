"""The controller of a Kafka group or an NSQ pool: it leads or stands by, observes, asks its
policy, and carries the decision out.

    standby ──▶ synchronize ──▶ sentinel ── the policy wants another group ──▶ reassign
       ▲             │             ▲  ▲                                           │
       └── another one leads ──────┘  └── everybody has what is wanted ── manage ◀┘

Time comes as an argument. What it looks at and moves is its world's (a group in kafka_world.py, a
pool in pool/world.py); who starts and ends is its executor's. All consumers work on without it, and
the next controller finds them as they are.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from srtm.autoscaler.decision import Action, Decision, Policy
from srtm.autoscaler.executors.executor import Executor
from srtm.autoscaler.live.adviser import Adviser
from srtm.autoscaler.live.bounds import Unsound, bounded, is_there_already, limits
from srtm.autoscaler.live.contract_bounds import ContractBounds
from srtm.autoscaler.live.crew import Crew
from srtm.autoscaler.live.learnt import Learnt
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import Phases
from srtm.autoscaler.live.rescales import STAMP, Rescales
from srtm.autoscaler.live.roster import Roster
from srtm.autoscaler.live.states import Event, State, step
from srtm.autoscaler.live.warned import Warned
from srtm.autoscaler.live.world import World
from srtm.autoscaler.observation import Announcement, Observation
from srtm.autoscaler.signal import latency_signal
from srtm.consumer.file import ScaledTable
from srtm.host.clock import NS
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO

log = logging.getLogger("srtm.autoscale")


def utc_now() -> str:
    return time.strftime(STAMP, time.gmtime())


@dataclass
class Controller:
    """make: a policy for an SLO, once mu is known; wall: for people only
    startup_seconds: how long a launch may take to join
    announced: load that is known to come
    """

    group: ScaledTable
    world: World
    executor: Executor
    make: Callable[[SLO, float], Policy]
    startup_seconds: float
    wall: Callable[[], str] = utc_now
    announced: Callable[[], tuple[Announcement, ...]] = tuple
    state: State = State.STANDBY
    roster: Roster = field(default_factory=Roster)
    fault: str = ""
    counts: dict[Action, int] = field(default_factory=dict)
    replica_seconds: float = 0.0
    oldest_wait: float = 0.0
    learnt: Learnt = field(default_factory=Learnt)
    warned: Warned = field(default_factory=Warned)

    def __post_init__(self) -> None:
        self.budget = RollingBudget(self.group.slo)
        self._rescales = Rescales(self.group.rescales_a_day)
        self._bounds = ContractBounds(self.group.contract)
        self._adviser = Adviser(self.group.policy, lambda mu: self.make(self.group.slo, mu))
        self._crew = Crew(self.executor, self.startup_seconds)
        self._looked_ns = 0

    @property
    def seen(self) -> tuple[Observation, ...]:
        """The last observations that the policy was asked about, oldest first."""
        return self._adviser.seen

    @property
    def leads(self) -> bool:
        return self.state in (State.SENTINEL, State.MANAGE)

    @property
    def signal(self) -> float | None:
        """The predicted latency over the SLO's target; None while nobody is asked."""
        if not self.leads or not self.seen:
            return None
        return latency_signal(self.seen[-1], self.group.slo, self.group.interval)

    @property
    def changes(self) -> int:
        """How often the group was changed in the last day."""
        return self._rescales.count(self.wall())

    def tick(self, now_ns: int) -> None:
        """Lead or stand by, and carry out what was decided; the policy is asked by `decide`. Call
        it often."""
        event = self.world.lead(now_ns)
        if event is not None:
            self._step(event)
        if event is Event.DEPOSED:
            self._crew = Crew(self.executor, self.startup_seconds)
            self._crew.want(now_ns / NS, self.roster, lambda id_: False)
        elif event is Event.SYNCHRONIZED:
            self._crew.take_over(now_ns / NS, self.roster)
        if not self.leads:
            self.fault = self.world.fault or self.fault
            return
        if self.world.may_act(now_ns):
            self._follow(now_ns / NS)
        stops = self.world.assign(self.roster, now_ns)
        if self.state is State.MANAGE and stops is not None:
            self._step(Event.DONE)
            self.learnt.moved(stops)
            self.world.diary.end(now_ns / NS, stops)

    def _step(self, event: Event) -> None:
        self.state = step(self.state, event)
        if event is Event.DEPOSED:
            self.roster, self._looked_ns = Roster(), 0
        elif event is Event.SYNCHRONIZED:
            self.roster, self.fault = Roster(), ""
            self.world.take_over(self.roster)

    # --- what is under way ------------------------------------------------------------------------

    def _follow(self, at: float) -> None:
        fleet = self._crew.look(self.roster)
        members = self.world.members(fleet, self.roster)
        self._crew.call_off((self.roster.leaving - members.keys()) & fleet.running)
        for id_ in self.roster.follow(at, members, self.executor.abilities.anonymous):
            log.warning("%s is gone", id_)
        while self.roster.startups:
            self._crew.backoff.succeed()
            self.learnt.launched(self.roster.startups.pop())
        self._forget_failed(at)
        self._want(at)

    def _forget_failed(self, at: float) -> None:
        for why in self._crew.failed(at, self.roster):
            self.fault = why
            log.warning("%s", why)

    def _want(self, at: float) -> None:
        self._crew.want(at, self.roster, lambda id_: self.world.may_end(id_, self.roster))

    def aim(self, slo: SLO) -> None:
        """Keep another SLO from now on. The policy begins anew with what was seen, and the budget
        is whole."""
        if slo == self.group.slo:
            return
        log.info("SLO %s from now on; it was %s", slo, self.group.slo)
        self.group = self.group.model_copy(update={"slo": slo})
        self.budget = RollingBudget(slo)
        self._adviser.begin_anew()

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, reading: Reading, now_ns: int) -> None:
        """Ask the policy what it makes of what is seen, and begin what it decides; called once an
        interval."""
        self.budget.add(reading.at, reading.served, reading.late)
        self.oldest_wait = reading.oldest_wait
        for note in reading.notes:
            log.warning("%s", note)
        if not self.leads or not self.world.may_act(now_ns):
            return
        at = now_ns / NS
        self._follow(at)
        self._recall(reading.at)
        self.world.diary.see(at, reading.late)
        if self._looked_ns:
            self.replica_seconds += len(self.roster.parts) * (now_ns - self._looked_ns) / NS
        self._looked_ns = now_ns
        learnt, managing = self.learnt, self.state is State.MANAGE
        phases = Phases(learnt.startup, learnt.rebalance, learnt.stopped, managing)
        seen, blocked = self.world.observe(reading, self.roster, phases)
        seen = replace(seen, announced=self.announced())
        self.fault = self._crew.backoff.told(at) or self._crew.fleet.fault
        if blocked:
            self.fault, decision = blocked, Decision(Action.NONE, reason=blocked)
        else:
            decision = self._adviser.ask(seen)
            self.fault = self._adviser.fault or self.fault
            notes = self.world.answered(seen, decision, self.budget)
            self.warned.tell((*notes, *self._bounds.notes(seen)), reading.at)
        self.fault = self.fault or self.world.fault or reading.stuck(self.group.slo.target_seconds)
        self._reassign(seen, self.world.adopt(seen, decision), now_ns)

    def _recall(self, at: float) -> None:
        """What the controller before this one kept."""
        self._rescales.recall(self.world.diary.stamps)
        self.world.diary.stamps.clear()
        recalled = self.world.recall(at, self.group.slo)
        if recalled.past:
            self._adviser.recall(recalled.past)
        if recalled.budget is not None and recalled.budget.served > self.budget.served:
            self.budget = recalled.budget

    def _reassign(self, seen: Observation, decision: Decision, now_ns: int) -> None:
        at, abilities = now_ns / NS, self.executor.abilities
        can_launch = not self._crew.backoff.told(at)
        least, most = limits(seen, self.group.min, self.group.max, can_launch)
        try:
            decision = bounded(seen, decision, least, most)
        except Unsound as error:
            self.fault = str(error)
            log.error("%s; nothing is done", error)
            return
        decision = self.world.fitted(seen, decision)
        if not is_there_already(seen, decision):
            decision = self._rescales.allowed(seen, decision, self.wall())
        self._crew.count = len(decision.members) or len(self.roster.parts)
        if decision.action is Action.DOWN and abilities.blind:
            self._call_off({each.consumer for each in decision.members})
            return
        self.counts[decision.action] = self.counts.get(decision.action, 0) + 1
        if decision.action is Action.NONE or is_there_already(seen, decision):
            return
        self._begin(seen, decision, now_ns)

    def _call_off(self, staying: set[str | None]) -> None:
        """Who runs is ended by others, when they like; what only starts can be left."""
        starting = self.roster.launched.keys() - staying
        self._crew.call_off(starting)
        for id_ in starting:
            self.roster.failed(id_)

    def _begin(self, seen: Observation, decision: Decision, now_ns: int) -> None:
        at, before = now_ns / NS, len(self.roster.parts)
        self._step(Event.TRIGGERED)
        launched = set(self.roster.launched)
        count = sum(each.consumer is None for each in decision.members)
        names = self.executor.abilities.names(count, self._crew.fleet.next_number)
        launches = self.roster.adopt(at, decision, names)
        self._crew.call_off(launched - self.roster.launched.keys())
        self._step(Event.ASSIGNED)
        log.info("%s: %s", decision.action, decision.reason)
        stamp = self.wall()
        self._rescales.add(stamp)
        self.world.diary.begin(
            at,
            at=stamp,
            action=str(decision.action),
            policy=self.group.policy,
            reason=decision.reason,
            notes=list(decision.notes),
            consumers_before=len(seen.consumers),
            consumers=len(seen.consumers) + len(self.roster.parts) - before,
            launched=launches,
            leaving=sorted(self.roster.leaving),
            rate=round(seen.rate, 3),
            lag=int(seen.lag),
            late_foretold=None if decision.late is None else round(decision.late, 1),
            budget_left=round(self.budget.left, 4),
            replica_seconds=round(self.replica_seconds, 1),
        )
        self._want(at)
        self._crew.look(self.roster)
        self._forget_failed(at)

    # --- its end ----------------------------------------------------------------------------------

    def dismiss(self) -> bool:
        """Everybody is to leave. True once nobody is there; call it until then."""
        if not self.leads:
            return False
        if self.state is State.SENTINEL:
            self._step(Event.TRIGGERED)
            self._step(Event.ASSIGNED)
        self._crew.count = 0
        self._call_off(set())
        fleet = self._crew.fleet
        self._crew.call_off(fleet.running - self.roster.members.keys())
        self.roster.parts.clear()
        self.roster.leaving = set(self.roster.members)
        return self.world.is_empty(self.roster) and not fleet.running | fleet.leaving
