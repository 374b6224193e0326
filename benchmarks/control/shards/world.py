"""A fleet under several leaders, in virtual time: topics come, change and are led by others."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf
from random import Random
from typing import Any

from benchmarks.control.shards.gateways import Gateways
from benchmarks.control.shards.leader import PLACE, Leader
from benchmarks.control.shards.rows import BOTH, NOWHERE, Checks, Fenced, Rows
from distributor.model import Publisher
from srtm.limits.contract import Contract

_STEP_SECONDS = 0.001
"""between two steps, whichever leader's: all have more to do than they can while topics come"""
_CAPACITIES = (50_000, 150_000)
"""messages/s of a broker, evenly"""
_SHAPE, _MOST_BROKERS = 1.5, 20
"""of the Pareto distribution of topics' rates, and the largest in brokers of the mean capacity"""
_PUBLISHER_RATE = 2_000
"""messages/s: that many publishers has a topic, and four at least"""
_DRAINED, _LOST, _CHANGED = 0.02, 0.01, 0.1
"""of brokers, of brokers, of topics"""
_TAKEOVERS = 2
"""of each shard; every other leader is frozen and wakes again, the others end"""
_AWAY_SECONDS, _FROZEN_SECONDS, _UNSEEN_SECONDS = (1.0, 15.0), 40.0, 10.0
_MOST_STEPS_OF_A_TOPIC = 200
"""a run that has not ended by then does not end"""


@dataclass(frozen=True, slots=True)
class Case:
    """load: the topics' rates over the capacity of the brokers that stay; grouped: a shard is a
    group of brokers, not the topics of one hash"""

    shards: int
    brokers: int
    topics: int
    load: float
    seed: int
    grouped: bool = False
    checks: Checks = BOTH


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    stale, fenced: writes that were refused
    brokers_of_topics: the sum over topics of the brokers of each
    offered, placed: messages/s; what stays on a drained or lost broker is not placed
    shards_of_gateway: shards that have topics at a broker, mean of those with any
    passed_on:  times that a topic went to another group
    is_over:    it came to its end
    """

    placements: int
    stale: int
    fenced: int
    most_retries: int
    brokers_of_topics: int
    offered: int
    placed: int
    shards_of_gateway: float
    passed_on: int
    answers: int
    violations: dict[str, int]
    is_over: bool


def simulate(case: Case) -> Outcome:
    """Run a case, to an outcome that is the same each time. The seed alone gives topics, rates and
    what befalls brokers, whatever the number of shards."""
    return _World(case).run()


@dataclass
class _World:
    """events: (when, order, what, with what); leaders: those that act, of a shard none or one, or
    two until the former finds that it leads no more"""

    case: Case
    events: list[tuple[float, int, str, Any]] = field(default_factory=list)
    leaders: list[Leader] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen_lost: list[set[str]] = field(init=False)
    rows: Rows = field(init=False)
    now: float = 0.0

    def __post_init__(self) -> None:
        case, drawn = self.case, Random(self.case.seed)
        names = [f"b{number:04}" for number in range(case.brokers)]
        capacities = {name: drawn.randint(*_CAPACITIES) for name in names}
        owners = {name: at % case.shards for at, name in enumerate(names)} if case.grouped else {}
        self.rows = Rows(case.shards, capacities, case.checks, owners)
        self.random = Random(case.seed + 1)
        self.gateways = Gateways(Random(case.seed + 2))
        self.seen_lost = [set() for _ in range(case.shards)]
        self._plan(drawn, capacities)
        for shard in range(case.shards):
            self._lead(shard)

    # --- what happens -------------------------------------------------------------------------

    def _plan(self, drawn: Random, capacities: dict[str, int]) -> None:
        """Draw what happens, and when."""
        case, seconds = self.case, self.case.topics * 5 * _STEP_SECONDS
        names = list(capacities)
        away = drawn.sample(names, ceil((_DRAINED + _LOST) * case.brokers))
        drained = ceil(_DRAINED * case.brokers)
        for number, name in enumerate(away):
            what = "drain" if number < drained else "lose"
            self._later(drawn.uniform(0, seconds), what, name)
        total = case.load * (sum(capacities.values()) - sum(capacities[name] for name in away))
        for topic, rate in _topics(drawn, case.topics, total, sum(_CAPACITIES) / 2):
            at = drawn.uniform(0, seconds / 2)
            contract = Contract(topic=topic, rate=2.0 * rate, burst=4.0 * case.brokers)
            self._later(at, "register", (contract, _publishers(rate)))
            if drawn.random() < _CHANGED:
                factor = drawn.choice((0.5, 1.5))
                changed = (topic, _publishers(round(factor * rate)))
                self._later(drawn.uniform(at, seconds), "change", changed)
        for shard in range(case.shards):
            for number in range(_TAKEOVERS):
                self._later(self.random.uniform(0, seconds), "end", (shard, number % 2 == 0))

    def _later(self, when: float, what: str, with_: Any) -> None:
        heappush(self.events, (when, len(self.events) + self.counts["events"], what, with_))

    def _happen(self) -> None:
        """The next event."""
        _, _, what, with_ = heappop(self.events)
        self.counts["events"] += 1
        if what == "register":
            shard = self.rows.register(*with_)
            self._tell(shard, with_[0].topic)
        elif what == "change":
            self.rows.change(*with_)
            self._tell(self.rows.topics[with_[0]].shard, with_[0])
        elif what == "drain":
            self.rows.draining.add(with_)
            self._leave(with_, self.leaders)
        elif what == "lose":
            self.gateways.lost_at[with_] = self.now
            for shard in range(self.case.shards):
                self._later(
                    self.now + self.random.uniform(0, _UNSEEN_SECONDS), "see", (shard, with_)
                )
        elif what == "see":
            self.seen_lost[with_[0]].add(with_[1])
            self._leave(with_[1], [each for each in self.leaders if each.shard == with_[0]])
        elif what == "end":
            self._end(*with_)
        elif what == "wake":
            self.leaders.append(with_)
        else:
            self._lead(with_)

    def _tell(self, shard: int, topic: str) -> None:
        for each in self.leaders:
            if each.shard == shard:
                each.add(PLACE, topic, self.now)

    def _leave(self, broker: str, leaders: list[Leader]) -> None:
        for topic, placed in self.rows.placed.items():
            if broker in placed.loads:
                for each in leaders:
                    if each.shard == self.rows.topics[topic].shard:
                        each.add(PLACE, topic, self.now)

    def _end(self, shard: int, is_frozen: bool) -> None:
        """A shard's leader is killed or frozen, in whatever it does; another one follows."""
        for each in [each for each in self.leaders if each.shard == shard]:
            self.leaders.remove(each)
            if is_frozen:
                self._later(self.now + self.random.uniform(0, _FROZEN_SECONDS), "wake", each)
        self._later(self.now + self.random.uniform(*_AWAY_SECONDS), "lead", shard)

    def _lead(self, shard: int) -> None:
        lost, random = self.seen_lost[shard], Random(self.random.random())
        leader = Leader(shard, self.rows, self.gateways, random, self.counts, lost)
        leader.restore(self.now)
        self.leaders.append(leader)

    # --- steps --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        steps, most = 0, _MOST_STEPS_OF_A_TOPIC * self.case.topics
        while steps < most and (self._step() or self._look_again()):
            steps += 1
        self.rows.audit()
        return self._outcome(steps < most)

    def _step(self) -> bool:
        """Any leader that has something to do takes its next step; False where nothing is left."""
        due = [each.due(self.now) for each in self.leaders]
        first = min([*due, *(each[0][0] for each in (self.events, self.gateways.late) if each)])
        if first == inf:
            return False
        self.now = max(self.now + _STEP_SECONDS, first)
        while self.events and self.events[0][0] <= self.now:
            self._happen()
        for topic in self.gateways.arrive(self.now):
            contract = self.rows.topics[topic].contract
            self.gateways.judge(contract, self.now, self.rows.violations)
        ready = [each for each in self.leaders if each.due(self.now) <= self.now]
        if ready:
            self._act(self.random.choice(ready))
        return True

    def _act(self, leader: Leader) -> None:
        try:
            leader.step(self.now)
        except Fenced:
            self.counts["fenced"] += 1
            self.leaders.remove(leader)
        for topic, group in leader.passed:
            self.counts["passed on"] += 1
            self._tell(group, topic)
        leader.passed.clear()

    def _look_again(self) -> bool:
        """Topics that are not placed whole once nothing else is to be done are tried again, until
        that changes nothing."""
        if self.counts["looked at"] == self.rows.writes:
            return False
        self.counts["looked at"] = self.rows.writes
        waiting = [
            (leader, topic)
            for leader in self.leaders
            for topic in self.rows.topics
            if leader.is_needed(topic)
        ]
        for leader, topic in waiting:
            leader.add(PLACE, topic, self.now)
        return bool(waiting)

    def _outcome(self, is_over: bool) -> Outcome:
        rows, counts = self.rows, self.counts
        placed = [rows.placed.get(topic, NOWHERE).loads for topic in rows.topics]
        shards = [sum(map(bool, each)) for each in rows.allocated.values() if any(each)]
        away = rows.draining | self.gateways.lost_at.keys()
        return Outcome(
            counts["placements"],
            counts["stale"],
            counts["fenced"],
            counts["most retries"],
            sum(map(len, placed)),
            sum(each.rate for each in rows.topics.values()),
            sum(rate for loads in placed for name, rate in loads.items() if name not in away),
            sum(shards) / max(1, len(shards)),
            counts["passed on"],
            self.gateways.answers,
            dict(rows.violations),
            is_over,
        )


def _topics(drawn: Random, count: int, total: float, mean: float) -> Iterator[tuple[str, int]]:
    """Names and rates of topics that come to `total` messages/s, a few of them large."""
    most = _MOST_BROKERS * mean
    sizes = [drawn.paretovariate(_SHAPE) for _ in range(count)]
    for _ in range(20):  # those cut to the most leave more to the others
        scale = total / sum(sizes)
        sizes = [min(most, scale * each) for each in sizes]
    for number, size in enumerate(sizes):
        yield f"t{number:05}", max(4, round(size))


def _publishers(rate: int) -> tuple[Publisher, ...]:
    """As many as the rate needs, in rooms of four that send together; their rates are whole."""
    count = max(4, ceil(rate / _PUBLISHER_RATE))
    return tuple(
        Publisher(f"p{n:04}", f"room-{n // 4}", float((n + 1) * rate // count - n * rate // count))
        for n in range(count)
    )
