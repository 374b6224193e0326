"""A Kafka group as its controller uses it: the group's topic says who leads and who has what.

What is to be done goes out as words of `Effects`. All that has to be known again after a restart
stands in the group's topic and in what its members report.
"""

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from srtm.autoscaler.decision import Action, Decision
from srtm.autoscaler.executors.executor import Abilities, Fleet
from srtm.autoscaler.live.bounds import adopted, with_those_that_stay
from srtm.autoscaler.live.brokered import Brokered
from srtm.autoscaler.live.diary import Diary
from srtm.autoscaler.live.direct import Direct
from srtm.autoscaler.live.memory import Keeper, Recalled
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import NO_MU, LiveConsumer, Phases, any_mu, new_mu, observation
from srtm.autoscaler.live.planned import Planned
from srtm.autoscaler.live.roster import Roster, identified
from srtm.autoscaler.live.slow import SlowLeavers
from srtm.autoscaler.live.states import Event
from srtm.autoscaler.observation import Observation
from srtm.consumer.file import GroupTable
from srtm.consumer.lease import take_over_seconds
from srtm.consumer.ledger import Ledger
from srtm.consumer.process import Process
from srtm.consumer.wire import Command, Leader, Note, Word, Written
from srtm.host.clock import NS
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO

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
class KafkaWorld:
    """dead: is the process surely dead? seconds: since 1970, for how old a memory is
    mu: (consumer, what it says itself) -> what it serves, as learnt; None: not known
    abilities: of the executor
    """

    group: GroupTable
    process: Process
    name: str
    effects: Effects
    dead: Callable[[Process], bool]
    seconds: Callable[[], float]
    mu: Callable[[str, float], float | None]
    abilities: Abilities = field(default_factory=Abilities)
    grace_seconds: float = 10.0
    ledger: Ledger = field(default_factory=Ledger)
    direct: Direct | None = None
    fault: str = ""

    def __post_init__(self) -> None:
        self.name = f"{self.name}-{uuid.uuid4().hex[:8]}"
        self.diary = Diary(self.effects.write)
        self._keeper = Keeper(self.effects.write, self.seconds)
        self._beat = 0
        self._beat_ns = 0
        self._heard_leader_ns = 0
        self._last_leader: Leader | None = None
        self._synchronized = False
        self._deposed: Event | None = None
        self._to_recall = False
        self._alone = 0
        self._slow = SlowLeavers(self.grace_seconds)
        self._launched: frozenset[str] = frozenset()  # consumers that the executor knows

    # --- words ------------------------------------------------------------------------------------

    def see(self, words: list[Word], now_ns: int) -> None:
        """What was read of the group's partition, in order."""
        for word in words:
            if isinstance(word, Note):
                self.diary.read(word)
            if self.direct is not None:
                self.direct.see(word, now_ns)
            else:
                self.ledger.apply(word)
            if isinstance(word, Leader) and word.name == self.ledger.leader:
                self._last_leader, self._heard_leader_ns = word, now_ns

    def begin_anew(self) -> None:
        """The group's topic was made anew: nothing that is known stands."""
        if self.direct is not None:
            self._deposed = self._stand_by("the group's topic was made anew")
        # Numbers go on: tokens and epochs only ever grow.
        self.ledger = Ledger(epoch=self.ledger.epoch, version=self.ledger.version)

    # --- who leads --------------------------------------------------------------------------------

    def lead(self, now_ns: int) -> Event | None:
        deposed, self._deposed = self._deposed, None
        if deposed is not None:
            return deposed
        direct = self.direct
        if direct is None:
            return self._try_to_lead(now_ns)
        if self._synchronized and not direct.leads:
            return self._stand_by(f"{self.ledger.leader or 'a later controller'} leads now")
        if now_ns - self._beat_ns >= self.group.lease * NS / 5:
            self._say(direct, now_ns)
        return None if self._synchronized else self._synchronize(direct, now_ns)

    def _try_to_lead(self, now_ns: int) -> Event | None:
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
                return None
        free_at = now_ns + round(take_over_seconds(self.group.lease) * NS)
        self.direct = BACK_ENDS[self.group.handover](
            self.name, self.group.lease, self.ledger.epoch + 1, free_at, self.ledger
        )
        self._synchronized = False
        self._say(self.direct, now_ns)
        return Event.CLAIMED

    def _say(self, direct: Direct, now_ns: int, gone: bool = False) -> None:
        self._beat += 1
        self._beat_ns = now_ns
        direct.beat(self._beat, now_ns)
        self.effects.write(
            Leader(
                name=self.name,
                epoch=direct.epoch,
                beat=self._beat,
                place=self.process.place,
                pid=self.process.pid,
                begun=self.process.begun,
                gone=gone,
            )
        )

    def _stand_by(self, why: str) -> Event:
        log.warning("%s: this one stands by", why)
        self.direct, self._synchronized, self._heard_leader_ns = None, False, 0
        return Event.DEPOSED

    def _synchronize(self, direct: Direct, now_ns: int) -> Event | None:
        """Its claim is read back: so is all that stood before it. Whoever is silent from here on is
        taken for silent."""
        if not direct.leads:
            if self.ledger.epoch >= direct.epoch:
                return self._stand_by(f"{self.ledger.leader} was first")
            return None
        if not direct.synced(now_ns):
            return None
        self._synchronized = self._to_recall = True
        self.fault = ""
        log.info("%s leads with epoch %d", self.name, direct.epoch)
        return Event.SYNCHRONIZED

    def may_act(self, now_ns: int) -> bool:
        return self.direct is not None and self.direct.synced(now_ns)

    def leave(self, now_ns: int) -> None:
        """Another controller may lead at once."""
        if self.direct is not None and self.direct.leads:
            self._say(self.direct, now_ns, gone=True)

    # --- who is there -----------------------------------------------------------------------------

    @property
    def _led(self) -> Direct:
        assert self.direct is not None
        return self.direct

    def take_over(self, roster: Roster) -> None:
        roster.begin(identified(self._led.live()), self._led.told())

    def members(self, fleet: Fleet, roster: Roster) -> Mapping[str, str]:
        self._launched = fleet.running | fleet.leaving
        return identified(self._led.live())

    def _would_restart(self, id_: str) -> bool:
        """Would the executor start it again if it ended by itself? Not one that nobody launched."""
        return self.abilities.restarts and (self.abilities.blind or id_ in self._launched)

    def may_end(self, id_: str, roster: Roster) -> bool:
        """Where it would be started again if it ended by itself: once it has given everything up.
        The broker takes partitions away only when their consumer ends."""
        report = self._led.live().get(roster.members.get(id_, ""))
        holds = self._led.assigns and report is not None and report.holds
        return self._would_restart(id_) and not holds

    def is_empty(self, roster: Roster) -> bool:
        return not self._led.ledger.members

    def running(self) -> int:
        """Consumers that have joined."""
        return len(self.direct.live()) if self.direct else len(self.ledger.members)

    # --- what is seen -----------------------------------------------------------------------------

    def _consumers(self, roster: Roster) -> tuple[LiveConsumer, ...]:
        learnt = {}
        for id_ in roster.parts:
            report = self.ledger.members.get(roster.members.get(id_, ""))
            learnt[id_] = self.mu(id_, report.mu if report else 0.0)
        return roster.consumers(learnt)

    def observe(self, reading: Reading, roster: Roster, phases: Phases) -> tuple[Observation, str]:
        direct = self._led
        if isinstance(direct, Brokered):
            direct.partitions = frozenset(each.id for each in reading.partitions)
        if isinstance(direct, Planned):
            direct.loads = {each.id: each.rate for each in reading.partitions}
        moves = phases.rebalancing or not (direct.assigns or direct.settled())
        phases = replace(phases, rebalancing=moves and not roster.launched)
        consumers = self._consumers(roster)
        mu = new_mu(consumers, self.group.mu)
        seen = observation(reading, consumers, mu or any_mu(reading), phases)
        return seen, "" if mu else NO_MU

    def recall(self, at: float, slo: SLO) -> Recalled:
        if not self._to_recall:
            return Recalled()
        self._to_recall = False
        memories = self.ledger.memories.values()
        return self._keeper.recall(memories, slo, at, self.group.interval)

    # --- what is done -----------------------------------------------------------------------------

    def answered(
        self, seen: Observation, decision: Decision, budget: RollingBudget
    ) -> tuple[str, ...]:
        self._keeper.keep(seen)
        self._keeper.keep_budget(seen.at, budget)
        return decision.notes

    def adopt(self, seen: Observation, decision: Decision) -> Decision:
        orphans = seen.orphans
        acts = decision.action is not Action.NONE
        self._alone = self._alone + 1 if orphans and not acts and self._led.assigns else 0
        if self._alone >= _LEFT_ALONE and seen.consumers:
            return adopted(seen, f"partitions {orphans} have no consumer, and the policy waits")
        return decision

    def fitted(self, seen: Observation, decision: Decision) -> Decision:
        if not self._led.assigns and len(decision.members) == len(seen.consumers):
            return Decision(Action.NONE, reason="the broker assigns partitions itself")
        return with_those_that_stay(seen, decision, self.abilities.staying)

    def assign(self, roster: Roster, now_ns: int) -> tuple[float, ...] | None:
        direct = self._led
        if not direct.assigns:
            roster.reflect(direct.live())
        wanted = roster.wanted(direct.told())
        direct.wanted = {name: frozenset(part) for name, part in wanted.items()}
        direct.leaving = {
            name
            for id_, name in roster.members.items()
            if id_ in roster.leaving and not wanted.get(name) and not self._would_restart(id_)
        }
        self._slow.look(direct.leaving, self.ledger, now_ns)
        words, ended = direct.step(now_ns, self.dead)
        for command in words:
            if isinstance(command, Command) and command.fence:
                log.warning("%s is silent: it is fenced", command.name)
            self.effects.write(command)
        for member in ended:
            log.info("%s has ended", member)
            self.effects.end(member)
        if roster.launched or not direct.settled():
            return None
        stops, direct.stops = tuple(direct.stops), []
        return stops
