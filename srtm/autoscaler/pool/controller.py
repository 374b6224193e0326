"""The controller of one pool: it looks, asks its policy, and has consumers launched and ended.

Time comes as an argument. The pool works on without it, and the next one finds it as it is.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from srtm.autoscaler.decision import Action, Decision, Policy
from srtm.autoscaler.executors.executor import Executor
from srtm.autoscaler.live.bounds import Unsound, bounded
from srtm.autoscaler.live.diary import Diary
from srtm.autoscaler.live.learnt import Learnt
from srtm.autoscaler.live.rolling import RollingBudget
from srtm.autoscaler.observation import ConsumerState, Observation
from srtm.autoscaler.pool.sampler import PoolReading
from srtm.autoscaler.pool.shares import (
    Change,
    PoolConsumer,
    change_of,
    pool_observation,
    share_count,
)
from srtm.autoscaler.pool.state import PoolState
from srtm.consumer.pool_file import PoolTable

log = logging.getLogger("srtm.autoscale")


@dataclass
class PoolController:
    """make: a policy, once mu is known; mu: of a consumer by its id, as learnt; mean_mu: of one of
    so many; least_mu: of one at least; wall: for people only
    tells: do consumers tell nsqd which launch they are (client_id)?
    """

    group: PoolTable
    executor: Executor
    state: PoolState
    make: Callable[[float], Policy]
    mu: Callable[[str], float | None]
    mean_mu: Callable[[int], float | None]
    least_mu: Callable[[], float | None]
    wall: Callable[[], str]
    tells: bool = True
    fault: str = ""
    counts: dict[Action, int] = field(default_factory=dict)
    replica_seconds: float = 0.0
    oldest_wait: float = 0.0
    consumers: tuple[PoolConsumer, ...] = ()
    launched: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.budget = RollingBudget(self.group.slo)
        self.learnt = Learnt(startup=self.state.startup or Learnt().startup)
        self._policy: Policy | None = None
        self._policy_fault = ""
        self._diary = Diary(self.state.write)
        for note in self.state.notes():
            self._diary.read(note)
        self._known: set[str] = set()
        self._looked_at: float | None = None
        self._open = False

    # --- who is there -----------------------------------------------------------------------------

    def tick(self, at: float) -> None:
        """Look after launches that came to nothing. Call it often."""
        for id_ in self.executor.failed(at):
            self.fault = self.executor.backing_off(at) or f"{id_} came to nothing"
            log.warning("%s", self.fault)
            self.launched.pop(id_, None)

    def look(self, seen: PoolReading, at: float) -> None:
        """Who works, who still starts."""
        clients = seen.clients or {}
        running = self.executor.running()
        present = set(clients if running is None else running)
        self._join(present, seen.client_ids, at)
        for id_ in sorted(self._known - present - self.ended):
            log.warning("%s is gone", id_)
        self._known = present
        self.ended = (self.ended & seen.client_ids) | set(self.executor.leaving())
        ours = sorted(present - self.launched.keys() - self.ended)
        names = [*ours, *self.launched]
        # The executor knows nothing of these, but they take a part of the load.
        others = set(seen.client_ids) - set(names) - self.ended
        if running is None or not self.tells or self.executor.restarts:
            others = set()
        new = self._new_mu(len(clients))
        self.consumers = (
            *(PoolConsumer(id_, self.mu(id_) or new) for id_ in ours),
            *(PoolConsumer(id_, new, ConsumerState.STARTING) for id_ in self.launched),
            *(PoolConsumer(id_, self.mu(id_) or new, ours=False) for id_ in sorted(others)),
        )
        if self._looked_at is not None:
            self.replica_seconds += len(names) * (at - self._looked_at)
        self._looked_at = at

    def _join(self, present: set[str], client_ids: frozenset[str], at: float) -> None:
        joined: list[str] = []
        if self.executor.anonymous:
            for id_ in sorted(present - self._known)[: len(self.launched)]:
                self._has_started(next(iter(self.launched)), at)
                joined.append(id_)
        else:
            waits = self.tells and not self.executor.restarts
            for id_ in [each for each in self.launched if each in present]:
                if id_ in client_ids or not waits:
                    self._has_started(id_, at)
                    joined.append(id_)
        self.executor.joined(joined)

    def _has_started(self, id_: str, at: float) -> None:
        self.learnt.launched(at - self.launched.pop(id_))
        self.state.startup = self.learnt.startup

    def _new_mu(self, clients: int) -> float | None:
        """The mu of one consumer: the mean of those that are known, of all together, what was
        learnt before, or what the file says; and what it serves while it has work, where that is
        more."""
        known = [found for id_ in self._known if (found := self.mu(id_))]
        mean = sum(known) / len(known) if known else self.mean_mu(clients)
        found = mean or self.state.mu or self.group.mu
        least = self.least_mu()
        if found is not None and least is not None:
            found = max(found, least)
        if mean is not None:
            self.state.mu = found
        return found

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, seen: PoolReading, at: float) -> None:
        """Ask the policy what it makes of what is seen, and carry out what it decides; called once
        an interval."""
        reading = seen.reading
        self.budget.add(reading.at, reading.served, reading.late)
        self.oldest_wait = reading.oldest_wait
        self.look(seen, at)
        new_mu = self._new_mu(len(seen.clients or {}))
        shares = share_count(max(self.group.max, len(self.consumers)))
        rate = sum(each.rate for each in reading.partitions)
        observed = pool_observation(
            reading, self.consumers, new_mu or max(rate, 1.0), shares, self.learnt.startup
        )
        self.fault = self.executor.backing_off(at) or self.executor.fault()
        if seen.paused:
            decision = Decision(
                Action.NONE, reason="the channel is paused: no consumer gets anything"
            )
            self.fault = decision.reason
        elif new_mu is None:
            reason = "mu is not known: set mu in [group], or wait until a consumer is pressed"
            decision, self.fault = Decision(Action.NONE, reason=reason), reason
        else:
            decision = self._asked(observed)
        if not self.consumers:  # policies speak of partitions here
            decision = replace(decision, reason="the channel has no consumer")
        self.fault = self.fault or "; ".join(seen.faults)
        self.fault = self.fault or reading.stuck(self.group.slo.target_seconds)
        self._carry_out(observed, decision, at)

    def _asked(self, seen: Observation) -> Decision:
        """A policy that fails decides nothing; the pool stays as it is."""
        try:
            if self._policy is None:
                self._policy = self.make(seen.new_mu)
            return self._policy.decide(seen)
        except Exception as error:
            if self._policy_fault != str(error):
                log.exception("policy %s has failed", self.group.policy)
            self._policy_fault = self.fault = f"policy {self.group.policy}: {error}"
            return Decision(Action.NONE, reason=self.fault)

    def _carry_out(self, seen: Observation, decision: Decision, at: float) -> None:
        least, most, there = self.group.min, self.group.max, len(self.consumers)
        if self.executor.backing_off(at):
            least, most = min(least, there), max(min(most, there), 0)
        try:
            decision = bounded(seen, decision, least, most)
        except Unsound as error:
            self.fault = str(error)
            log.error("%s; nothing is done", error)
            return
        change = change_of(decision, self.consumers)
        ours = sum(each.ours for each in self.consumers)
        self.executor.want(ours + change.launches - len(change.leavers), ours - len(self.launched))
        if change.leavers and not self.executor.chooses:
            change = self._called_off(change.leavers)
        action = Action.UP if change.launches else Action.DOWN if change.leavers else Action.NONE
        self.counts[action] = self.counts.get(action, 0) + 1
        if action is Action.NONE:
            self._settle(at)
            return
        names = [each.id for each in self.consumers if each.ours]
        kept = self._staying(names, change.leavers)
        leavers = [each for each in names if each not in kept]
        launches = self.executor.names(change.launches)
        log.info("%s: %s", action, decision.reason)
        self._diary.begin(
            at,
            at=self.wall(),
            action=str(action),
            policy=self.group.policy,
            reason=decision.reason,
            notes=list(decision.notes),
            consumers_before=there,
            consumers=there + len(launches) - len(leavers),
            launched=launches,
            leaving=leavers,
            rate=round(seen.rate, 3),
            lag=int(seen.lag),
            budget_left=round(self.budget.left, 4),
            replica_seconds=round(self.replica_seconds, 1),
        )
        self._open = True
        self._do(launches, leavers, at)

    def _staying(self, names: Sequence[str], leavers: Sequence[str]) -> list[str]:
        """Who is to leave comes last; an executor that has no choice says who stays."""
        ranked = [each for each in names if each not in leavers] + list(leavers)
        return self.executor.staying(ranked, len(names) - len(leavers))

    def _do(self, launches: Sequence[str], leavers: Sequence[str], at: float) -> None:
        starting = [each for each in leavers if each in self.launched]
        self.executor.called_off(starting)
        for id_ in starting:
            del self.launched[id_]
        running = [each for each in leavers if each not in starting]
        self.ended.update(leavers)
        self.executor.end(at, running)
        failed = self.executor.launch(at, launches)
        for id_ in launches:
            if id_ not in failed:
                self.launched[id_] = at
        if failed:
            self.fault = self.executor.backing_off(at)
            log.warning("%s", self.fault)

    def _called_off(self, leavers: Sequence[str]) -> Change:
        """Who runs is ended by others, when they like; what only starts can be left."""
        return Change(tuple(each for each in leavers if each in self.launched))

    def _settle(self, at: float) -> None:
        if self._open and not self.launched:
            self._diary.end(at, ())
            self._open = False

    # --- its end ----------------------------------------------------------------------------------

    def dismiss(self, seen: PoolReading, at: float) -> bool:
        """Everybody is to leave. True once nobody is there; call it until then."""
        self.look(seen, at)
        left = [each.id for each in self.consumers if each.ours]
        if not left:
            return not self.ended
        self._do((), left, at)
        return False
