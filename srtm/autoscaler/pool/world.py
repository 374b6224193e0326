"""A pool as its controller uses it: whoever is there has a part of the load, so nothing is handed
over, and nothing has to settle."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.executors.executor import Abilities, Fleet
from srtm.autoscaler.live.diary import Diary
from srtm.autoscaler.live.memory import Recalled
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import NO_MU, LiveConsumer, Phases, any_mu, new_mu
from srtm.autoscaler.live.roster import Roster
from srtm.autoscaler.live.states import Event
from srtm.autoscaler.observation import ConsumerState, Observation
from srtm.autoscaler.policies.registry import SIZES_BY_CONTRACT
from srtm.autoscaler.pool.reading import PoolReading
from srtm.autoscaler.pool.shares import change_of, pool_observation, share_count
from srtm.autoscaler.pool.state import PoolState
from srtm.consumer.file import ScaledTable
from srtm.host.clock import NS
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO

_OLD_INTERVALS, _OLD_SECONDS = 2, 2.0
"""A reading comes once an interval; brokers have a second to answer."""
PAUSED = "the channel is paused: no consumer gets anything"


@dataclass
class PoolWorld:
    """mu: of a consumer by its id, as learnt; mean_mu: of one of so many; least_mu: of one at least
    tells: do consumers tell which launch they are (client_id)?
    seen: the latest reading; None before the first
    """

    group: ScaledTable
    abilities: Abilities
    state: PoolState
    mu: Callable[[str], float | None]
    mean_mu: Callable[[int], float | None]
    least_mu: Callable[[], float | None]
    tells: bool = True
    seen: PoolReading | None = None
    consumers: tuple[LiveConsumer, ...] = ()
    _ran: frozenset[str] = frozenset()
    _ended: frozenset[str] = frozenset()
    """of those that this executor ran: Kafka names one that was killed for 45 s"""

    def __post_init__(self) -> None:
        self.diary = Diary(self.state.write)
        for note in self.state.notes():
            self.diary.read(note)

    # --- who leads: its service holds the lock ----------------------------------------------------

    def lead(self, now_ns: int) -> Event | None:
        return None

    def may_act(self, now_ns: int) -> bool:
        """What was seen before this process stood still says nothing of who is there now."""
        if self.seen is None:
            return False
        age_seconds = now_ns / NS - self.seen.reading.at
        return age_seconds <= _OLD_INTERVALS * self.group.interval + _OLD_SECONDS

    # --- who is there -----------------------------------------------------------------------------

    @property
    def _reading(self) -> PoolReading:
        assert self.seen is not None
        return self.seen

    @property
    def _tells(self) -> bool:
        """Is a consumer known by what it tells its brokers?"""
        return self.tells and not self.abilities.restarts

    def take_over(self, roster: Roster) -> None:
        """Who is there joins as it is seen."""

    def members(self, fleet: Fleet, roster: Roster) -> Mapping[str, str]:
        ids = self._reading.client_ids
        self._ran = fleet.running | (self._ran & ids)
        self._ended = self._ran - fleet.running
        present = frozenset(self._reading.clients or ()) if self.abilities.blind else fleet.running
        if self._tells:  # a process that runs takes a while to connect
            present -= roster.launched.keys() - ids
        leaving = fleet.leaving | (roster.leaving & ids)
        return {id_: id_ for id_ in present | leaving}

    def may_end(self, id_: str, roster: Roster) -> bool:
        return not self.abilities.blind

    def is_empty(self, roster: Roster) -> bool:
        return not roster.members

    def running(self) -> int:
        """Consumers that have joined."""
        return sum(each.state is ConsumerState.RUNNING for each in self.consumers)

    # --- what is seen -----------------------------------------------------------------------------

    @property
    def fault(self) -> str:
        return "; ".join(self.seen.faults) if self.seen else ""

    def _learn_mu(self, roster: Roster) -> float | None:
        """The mu of one consumer: the mean of those that are known, of all together, what was
        learnt before, or what the file says; and what it serves while it has work, where that is
        more."""
        ours = [LiveConsumer(id_, mu=self.mu(id_)) for id_ in roster.parts]
        gone = len(self._ended & self._reading.client_ids)
        mean = new_mu(ours, self.mean_mu(len(self._reading.clients or ()) - gone))
        found = mean or self.state.mu or self.group.mu
        least = self.least_mu()
        if found is not None and least is not None:
            found = max(found, least)
        if mean is not None:
            self.state.mu = found
        return found

    def observe(self, reading: Reading, roster: Roster, phases: Phases) -> tuple[Observation, str]:
        self.state.startup = phases.startup
        ours = sorted(roster.parts.keys() - roster.launched.keys())
        # The executor knows nothing of these, but they take a part of the load.
        known = roster.parts.keys() | roster.leaving
        others = sorted(self._reading.client_ids - known - self._ended) if self._tells else []
        new = self._learn_mu(roster)
        self.consumers = (
            *(LiveConsumer(id_, mu=self.mu(id_) or new) for id_ in ours),
            *(LiveConsumer(id_, mu=new, state=ConsumerState.STARTING) for id_ in roster.launched),
            *(LiveConsumer(id_, mu=self.mu(id_) or new, ours=False) for id_ in others),
        )
        shares = share_count(max(self.group.max, len(self.consumers)))
        mu = new or any_mu(reading)
        seen = pool_observation(reading, self.consumers, mu, shares, phases.startup)
        if self._reading.paused:
            return seen, PAUSED
        return seen, "" if new else NO_MU

    def recall(self, at: float, slo: SLO) -> Recalled:
        return Recalled()

    # --- what is done -----------------------------------------------------------------------------

    def answered(
        self, seen: Observation, decision: Decision, budget: RollingBudget
    ) -> tuple[str, ...]:
        """Policies warn of partitions here, of which a channel has none, but for one that knows."""
        return decision.notes if self.group.policy == SIZES_BY_CONTRACT else ()

    def adopt(self, seen: Observation, decision: Decision) -> Decision:
        if self.consumers:
            return decision
        return replace(decision, reason="there is no consumer")

    def fitted(self, seen: Observation, decision: Decision) -> Decision:
        change = change_of(decision, self.consumers)
        if not change.leavers and not change.launches:
            return replace(decision, action=Action.NONE, members=())
        ours = [each.id for each in self.consumers if each.ours]
        ranked = [each for each in ours if each not in change.leavers] + list(change.leavers)
        kept = self.abilities.staying(ranked, len(ours) - len(change.leavers))
        members = (*(Member(id_, ()) for id_ in kept), *[Member(None, ())] * change.launches)
        action = Action.UP if change.launches else Action.DOWN
        return replace(decision, action=action, members=members)

    def assign(self, roster: Roster, now_ns: int) -> tuple[float, ...] | None:
        return None if roster.launched else ()
