"""The controller of one group: it leads or stands by, looks, asks its policy, and has it done.

Time comes as an argument, and what is to be done goes out through `Effects`: the words to the
group's partition, and the executor. The group works on without it. All that it has to know again
after a restart stands in the group's partition and in what its members report.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from srtm.autoscaler.decision import Action, Decision, Policy
from srtm.autoscaler.executors.executor import Executor
from srtm.autoscaler.live.adviser import Adviser
from srtm.autoscaler.live.bounds import (
    Unsound,
    adopted,
    bounded,
    is_there_already,
    limits,
    with_those_that_stay,
)
from srtm.autoscaler.live.brokered import Brokered
from srtm.autoscaler.live.diary import Diary
from srtm.autoscaler.live.direct import Direct
from srtm.autoscaler.live.learnt import Learnt
from srtm.autoscaler.live.memory import Keeper
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import Phases, observation
from srtm.autoscaler.live.planned import Planned
from srtm.autoscaler.live.retire import Retire
from srtm.autoscaler.live.rolling import RollingBudget
from srtm.autoscaler.live.roster import Roster
from srtm.autoscaler.live.slow import SlowLeavers
from srtm.autoscaler.live.states import Event, State, step
from srtm.autoscaler.live.warned import Warned
from srtm.autoscaler.observation import Observation
from srtm.consumer.file import GroupTable
from srtm.consumer.lease import take_over_seconds
from srtm.consumer.ledger import Ledger
from srtm.consumer.process import Process
from srtm.consumer.wire import Command, Leader, Note, Word, Written
from srtm.host.clock import NS

log = logging.getLogger("srtm.autoscale")

BACK_ENDS: Final[dict[str, type[Direct]]] = {
    "direct": Direct,
    "assignor": Planned,
    "kip-848": Brokered,
}
_LEFT_ALONE = 3
"""intervals that a policy may leave a partition without a consumer"""


class Effects(Protocol):
    """Where words go."""

    def write(self, word: Written) -> None: ...

    def end(self, member: str) -> None: ...


@dataclass
class Controller:
    """dead: is the process surely dead? make: a policy, once mu is known; wall: for people only
    seconds: since 1970, for how old a memory is"""

    group: GroupTable
    process: Process
    name: str
    effects: Effects
    executor: Executor
    make: Callable[[float], Policy]
    dead: Callable[[Process], bool]
    wall: Callable[[], str]
    seconds: Callable[[], float]
    grace_seconds: float = 10.0
    state: State = State.STANDBY
    ledger: Ledger = field(default_factory=Ledger)
    roster: Roster = field(default_factory=Roster)
    direct: Direct | None = None
    fault: str = ""
    counts: dict[Action, int] = field(default_factory=dict)
    replica_seconds: float = 0.0
    oldest_wait: float = 0.0
    learnt: Learnt = field(default_factory=Learnt)
    warned: Warned = field(default_factory=Warned)

    def __post_init__(self) -> None:
        self.name = f"{self.name}-{uuid.uuid4().hex[:8]}"
        self.budget = RollingBudget(self.group.slo)
        self._adviser = Adviser(self.group.policy, self.make)
        self._keeper = Keeper(self.effects.write, self.seconds)
        self._beat = 0
        self._beat_ns = 0
        self._heard_leader_ns = 0
        self._last_leader: Leader | None = None
        self._diary = Diary(self.effects.write)
        self._alone = 0
        self._to_recall = False
        self._looked_ns = 0
        self._slow = SlowLeavers(self.grace_seconds)
        self._retire = Retire(self.executor)

    # --- words ------------------------------------------------------------------------------------

    def see(self, words: list[Word], now_ns: int) -> None:
        """What was read of the group's partition, in order."""
        for word in words:
            if isinstance(word, Note):
                self._diary.read(word)
            if self.direct is not None:
                self.direct.see(word, now_ns)
            else:
                self.ledger.apply(word)
            if isinstance(word, Leader) and word.name == self.ledger.leader:
                self._last_leader, self._heard_leader_ns = word, now_ns

    def begin_anew(self) -> None:
        """The group's topic was made anew: nothing that is known stands."""
        self._stand_by("the group's topic was made anew")
        # Numbers go on: tokens and epochs only ever grow.
        self.ledger = Ledger(epoch=self.ledger.epoch, version=self.ledger.version)

    def tick(self, now_ns: int) -> None:
        """Lead or stand by, beat, and carry out what was decided; the policy is asked by `decide`.
        Call it often."""
        if self.state is State.STANDBY:
            self._try_to_lead(now_ns)
        if self.direct is None:
            return
        if self.state is not State.SYNCHRONIZE and not self.direct.leads:
            self._stand_by(f"{self.ledger.leader or 'a later controller'} leads now")
            return
        if now_ns - self._beat_ns >= self.group.lease * NS / 5:
            self._say(now_ns)
        if self.state is State.SYNCHRONIZE:
            self._synchronize(now_ns)
        if self.state in (State.SENTINEL, State.MANAGE):
            self._manage(now_ns)

    # --- who leads --------------------------------------------------------------------------------

    def _try_to_lead(self, now_ns: int) -> None:
        """When who led has gone, has died, or was not heard for longer than it would act."""
        self._heard_leader_ns = self._heard_leader_ns or now_ns
        last = self._last_leader
        if last is not None and not last.gone:
            silent = now_ns - self._heard_leader_ns > take_over_seconds(self.group.lease) * NS
            if not silent and not self.dead(Process(last.place, last.pid, last.begun)):
                fault = f"{last.name} leads; this one stands by"
                if self.fault != fault:
                    log.info("%s", fault)
                self.fault = fault
                return
        self.state = step(self.state, Event.CLAIMED)
        free_at = now_ns + round(take_over_seconds(self.group.lease) * NS)
        epoch = self.ledger.epoch + 1
        self.direct = BACK_ENDS[self.group.handover](
            self.name, self.group.lease, epoch, free_at, self.ledger
        )
        self._say(now_ns)

    def _say(self, now_ns: int, gone: bool = False) -> None:
        assert self.direct is not None
        self._beat += 1
        self._beat_ns = now_ns
        self.direct.beat(self._beat, now_ns)
        self.effects.write(
            Leader(
                name=self.name,
                epoch=self.direct.epoch,
                beat=self._beat,
                place=self.process.place,
                pid=self.process.pid,
                begun=self.process.begun,
                gone=gone,
            )
        )

    def _stand_by(self, why: str) -> None:
        if self.state is not State.STANDBY:
            log.warning("%s: this one stands by", why)
            self.state = step(self.state, Event.DEPOSED)
        self.direct = None
        self.roster = Roster()
        self._heard_leader_ns = self._looked_ns = 0

    def _synchronize(self, now_ns: int) -> None:
        """Its claim is read back: so is all that stood before it. Whoever is silent from here on is
        taken for silent."""
        assert self.direct is not None
        if not self.direct.leads:
            if self.ledger.epoch >= self.direct.epoch:
                self._stand_by(f"{self.ledger.leader} was first")
            return
        if not self.direct.synced(now_ns):
            return
        self.roster = Roster()
        self.roster.begin(self.direct.live(), self.direct.told())
        self.state = step(self.state, Event.SYNCHRONIZED)
        self._to_recall = True
        self.fault = ""
        log.info("%s leads with epoch %d", self.name, self.direct.epoch)

    # --- what is under way ------------------------------------------------------------------------

    def _manage(self, now_ns: int) -> None:
        direct = self.direct
        assert direct is not None
        at, live = now_ns / NS, direct.live()
        if direct.synced(now_ns):  # or another one may lead, and launch
            joined, gone = self.roster.follow(at, live, claims=self.executor.anonymous)
            self.executor.joined(joined)
            for id_ in self.executor.failed(at):
                self.fault = self.executor.backing_off(at) or self.fault
                log.warning("%s", self.fault)
                self.roster.failed(id_)
            for id_ in gone:
                log.warning("%s is gone", id_)
            while self.roster.startups:
                self.learnt.launched(self.roster.startups.pop())
        if not direct.assigns:
            self.roster.reflect(live)
        direct.wanted = {
            name: frozenset(part) for name, part in self.roster.wanted(direct.told()).items()
        }
        leavers = self.roster.leavers()
        direct.leaving = {name for name in leavers if not direct.wanted.get(name)}
        if self.executor.restarts:
            self._retire.step(at, self.roster, live, direct.assigns)
            direct.leaving = set()
        self._slow.look(direct.leaving, self.ledger, now_ns)
        words, ended = direct.step(now_ns, self.dead)
        for command in words:
            if isinstance(command, Command) and command.fence:
                log.warning("%s is silent: it is fenced", command.name)
            self.effects.write(command)
        for member in ended:
            log.info("%s has ended", member)
            self.effects.end(member)
        if self.state is State.MANAGE and not self.roster.launched and direct.settled():
            self._done(now_ns)

    def _done(self, now_ns: int) -> None:
        assert self.direct is not None
        self.state = step(self.state, Event.DONE)
        stops, self.direct.stops = self.direct.stops, []
        self.learnt.moved(stops)
        self._diary.end(now_ns / NS, stops)

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, reading: Reading, learnt: Mapping[str, float | None], now_ns: int) -> None:
        """Ask the policy what it makes of what is seen, and begin what it decides; called once an
        interval."""
        self.budget.add(reading.at, reading.served, reading.late)
        self.oldest_wait = reading.oldest_wait
        for note in reading.notes:
            log.warning("%s", note)
        if self.direct is None or self.state not in (State.SENTINEL, State.MANAGE):
            return
        if not self.direct.synced(now_ns):  # another one may lead: nobody is launched twice
            return
        if isinstance(self.direct, Brokered):
            self.direct.partitions = frozenset(each.id for each in reading.partitions)
        if isinstance(self.direct, Planned):
            self.direct.loads = {each.id: each.rate for each in reading.partitions}
        if self._to_recall:
            self._recall(reading.at)
        consumers = self.roster.consumers(learnt)
        if self._looked_ns:
            self.replica_seconds += len(consumers) * (now_ns - self._looked_ns) / NS
        self._looked_ns = now_ns
        phases = Phases(
            startup=self.learnt.startup,
            rebalance=self.learnt.rebalance,
            stopped=self.learnt.stopped,
            rebalancing=not self.roster.launched
            and (self.state is State.MANAGE or not (self.direct.assigns or self.direct.settled())),
        )
        seen = observation(reading, consumers, self.group.mu, phases)
        if seen is None:
            self.fault = "mu is not known: set mu in [group], or wait until a consumer is pressed"
            seen = observation(reading, consumers, max(1.0, reading_rate(reading)), phases)
            assert seen is not None
            decision = Decision(Action.NONE, reason=self.fault)
        else:
            self.fault = self.executor.backing_off(now_ns / NS) or self.executor.fault()
            decision = self._adviser.ask(seen)
            self.fault = self._adviser.fault or self.fault
            self.fault = self.fault or reading.stuck(self.group.slo.target_seconds)
            self._keeper.keep(seen)
            self._keeper.keep_budget(reading.at, self.budget)
            self.warned.tell(decision.notes, reading.at)
        self._reassign(seen, decision, now_ns)

    def _recall(self, at: float) -> None:
        """What the controller before this one kept."""
        self._to_recall = False
        memories = self.ledger.memories.values()
        recalled = self._keeper.recall(memories, self.group.slo, at, self.group.interval)
        self._adviser.recall(recalled.past)
        if recalled.budget is not None and recalled.budget.served > self.budget.served:
            self.budget = recalled.budget

    def _reassign(self, seen: Observation, decision: Decision, now_ns: int) -> None:
        assert self.direct is not None
        if self.direct.assigns:
            decision = self._for_the_left_alone(seen, decision)
        can_launch = not self.executor.backing_off(now_ns / NS)
        least, most = limits(seen, self.group.min, self.group.max, can_launch)
        try:
            decision = bounded(seen, decision, least, most)
        except Unsound as error:
            self.fault = str(error)
            log.error("%s; nothing is done", error)
            return
        if not self.direct.assigns and len(decision.members) == len(seen.consumers):
            decision = Decision(Action.NONE, reason="the broker assigns partitions itself")
        decision = with_those_that_stay(seen, decision, self.executor.staying)
        self.executor.want(len(decision.members) or len(seen.consumers), self.running())
        if decision.action is Action.DOWN and not self.executor.chooses:
            return
        self.counts[decision.action] = self.counts.get(decision.action, 0) + 1
        if decision.action is Action.NONE or is_there_already(seen, decision):
            return
        self.state = step(self.state, Event.TRIGGERED)
        launched = dict(self.roster.launched)
        launches = self.roster.adopt(now_ns / NS, decision, self._names())
        self.executor.called_off(sorted(launched.keys() - self.roster.launched.keys()))
        for id_ in self.executor.launch(now_ns / NS, launches):
            self.fault = self.executor.backing_off(now_ns / NS)
            log.warning("%s", self.fault)
            self.roster.failed(id_)
        self.state = step(self.state, Event.ASSIGNED)
        self.direct.stops.clear()
        log.info("%s: %s", decision.action, decision.reason)
        self._diary.begin(
            now_ns / NS,
            at=self.wall(),
            action=str(decision.action),
            policy=self.group.policy,
            reason=decision.reason,
            notes=list(decision.notes),
            consumers_before=len(seen.consumers),
            consumers=len(self.roster.parts),
            launched=launches,
            leaving=sorted(self.roster.leaving),
            rate=round(seen.rate, 3),
            lag=int(seen.lag),
            budget_left=round(self.budget.left, 4),
            replica_seconds=round(self.replica_seconds, 1),
        )

    def _for_the_left_alone(self, seen: Observation, decision: Decision) -> Decision:
        orphans = [p.id for p in seen.partitions if p.id not in seen.owners]
        acts = decision.action is not Action.NONE
        self._alone = self._alone + 1 if orphans and not acts else 0
        if self._alone >= _LEFT_ALONE and seen.consumers:
            return adopted(seen, f"partitions {orphans} have no consumer, and the policy waits")
        return decision

    def _names(self) -> Iterator[str]:
        yield from self.executor.names(self.group.max)

    # --- its end ----------------------------------------------------------------------------------

    def dismiss(self) -> bool:
        """Everybody is to leave. True once nobody is there; call it until then."""
        if self.direct is None or self.state not in (State.SENTINEL, State.MANAGE):
            return False
        if self.state is State.SENTINEL:
            self.state = step(step(self.state, Event.TRIGGERED), Event.ASSIGNED)
        self.roster.parts.clear()
        self.roster.launched.clear()
        self.roster.leaving = set(self.roster.members)
        return not self.direct.ledger.members

    def leave(self, now_ns: int) -> None:
        """Another one may lead at once. The group works on."""
        if self.direct is not None and self.direct.leads:
            self._say(now_ns, gone=True)

    def running(self) -> int:
        """Consumers that have joined."""
        return len(self.direct.live()) if self.direct else len(self.ledger.members)


def reading_rate(reading: Reading) -> float:
    """Events/s of the whole topic."""
    return sum(each.rate for each in reading.partitions)
