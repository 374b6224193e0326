"""Brokers in virtual time: correlated publishers, sub-buckets and a broker's queue, exactly.

A message's latency is BASE plus the longer of two waits: for its token in the sub-bucket
(r_l, b_l), and behind the messages before it at a broker that drains DRAIN messages/s. That is what
a bucket in front of such a queue gives where r_l < DRAIN: in two rate servers in a row the slower
envelope counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from distributor.fitting import Arrivals, Done, Fitting, Round, Sample
from distributor.fitting.batches import Floats, beyond, smallest_burst, work_before
from distributor.fitting.spread import spread
from distributor.fitting.topic import FittedTopic
from distributor.model import Broker, Publisher
from srtm.limits.contract import Contract
from srtm.limits.slo import NEAR, SLO

BASE_SECONDS = 0.0005
"""Latency of one publisher's batch, median. With DRAIN the figures of one gateway and nsqd on a
2-core machine, generator and consumer beside them: 300 publishers, batches of 10, 3,000 messages/s.
End to end from the intended send, median ms of the quietest of three passes by size of a burst: 10
0.51, 50 1.62, 100 2.26, 200 3.19, 300 4.57; of the last four the generator's own lag was 0.3 to
0.5. The model has 0.6, 1.0, 1.5, 2.6, 3.6: what many connections cost at once is not in it."""
DRAIN = 48_000.0
"""messages/s: from bursts of 50 to those of 200 the median message has 75 more before it and is
1.57 ms later"""
TARGET = SLO(0.99, 0.002)
"""SRTM's is 1 ms; with these brokers 2 ms allows bursts of 72 messages, and groups of 5 to 30 need
about as many brokers as in SRTM Table 1."""
PUBLISHERS, RATE, BATCH = 1_000, 10.0, 10.0  # messages/s, messages at once (SRTM section 6.5)
HEADROOM = 1.1  # r over the offered rate
BROKERS = 10
TRACE_SECONDS = 3_000.0
SLOT_SECONDS = 0.2
_ARRIVALS_SECONDS = 60.0  # that the check of the contract is given
_CAPACITY = 12_000.0  # messages/s: by rate alone one broker holds the topic, as in SRTM Table 1
TOPIC = "fitted"


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """times: seconds when a group sends, sorted; groups: which, both of shape (n,).

    Each group's publishers send BATCH messages each at the same instants: once a second, at a
    random phase (`periodic`) or as a Poisson process.
    """

    group_size: int
    arrivals: str
    times: Floats
    groups: NDArray[np.int64]
    publishers: tuple[Publisher, ...] = field(repr=False)
    burst: float

    @property
    def contract(self) -> Contract:
        return Contract(topic=TOPIC, rate=HEADROOM * self.offered, burst=self.burst, slo=TARGET)

    @property
    def offered(self) -> float:
        return len(self.publishers) * RATE

    def members(self, assignment: Mapping[str, str]) -> dict[str, Floats]:
        """How many publishers of each group send through each broker, by broker; shape
        (groups,)."""
        count = ceil(len(self.publishers) / self.group_size)
        found: dict[str, Floats] = {}
        for number, publisher in enumerate(self.publishers):
            name = assignment.get(publisher.id)
            if name is not None:
                found.setdefault(name, np.zeros(count))[number // self.group_size] += 1
        return found

    def seen(self, now: float) -> Arrivals:
        """The topic's last arrivals."""
        first, last = np.searchsorted(self.times, (max(0.0, now - _ARRIVALS_SECONDS), now))
        sizes = np.bincount(np.arange(len(self.publishers)) // self.group_size) * BATCH
        return Arrivals(self.times[first:last], sizes[self.groups[first:last]])


def workload(group_size: int, arrivals: str, seed: int, publishers: int = PUBLISHERS) -> Workload:
    """A workload with b twice the smallest that makes 99 % of its messages pass an unsplit bucket
    at once."""
    random = np.random.default_rng((seed, group_size))
    count = ceil(publishers / group_size)
    per_group = RATE / BATCH * TRACE_SECONDS
    if arrivals == "periodic":
        each = [(random.random() + np.arange(int(per_group))) * BATCH / RATE for _ in range(count)]
    else:
        each = [random.uniform(0, TRACE_SECONDS, random.poisson(per_group)) for _ in range(count)]
    times = np.concatenate(each)
    groups = np.repeat(np.arange(count), [len(one) for one in each])
    order = np.argsort(times, kind="stable")
    times, groups = times[order], groups[order]
    sizes = np.bincount(np.arange(publishers) // group_size) * BATCH
    work = work_before(times, sizes[groups], HEADROOM * publishers * RATE)
    burst = 2.0 * smallest_burst(work, sizes[groups], TARGET.allowed_late_share)
    everybody = tuple(
        Publisher(f"p{n:04}", f"g{n // group_size:03}", RATE) for n in range(publishers)
    )
    return Workload(group_size, arrivals, times, groups, everybody, burst)


def brokers() -> list[Broker]:
    return [Broker(f"b{n}", _CAPACITY) for n in range(BROKERS)]


def topic(load: Workload) -> FittedTopic:
    return FittedTopic(load.contract, TARGET, tuple(brokers()), load.publishers, BATCH)


def fewest(load: Workload) -> list[float]:
    """The late share of the worst broker of an even correlation-aware split over 1, 2, ... brokers
    in the whole trace, up to the first count (k_ref) at which none exceeds what the SLO allows."""
    found: list[float] = []
    while not found or (found[-1] > TARGET.allowed_late_share and len(found) < BROKERS):
        placement = spread(topic(load), len(found) + 1)
        members = load.members(placement.assignment)
        worst = 0.0
        for share in placement.brokers:
            messages = members[share.name][load.groups] * BATCH
            mine = messages > 0
            each = lates(load.times[mine], messages[mine], share.r, share.b)
            worst = max(worst, each.late_share)
        found.append(worst)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Lates:
    """The late messages of one broker, by batch: time, messages, those late, late without token
    wait, near."""

    times: Floats
    messages: Floats
    late: Floats
    late_at_broker: Floats
    near: Floats
    work_left: float  # in the bucket after the last batch, messages

    @property
    def late_share(self) -> float:
        return float(self.late.sum() / self.messages.sum())


def lates(
    times: Floats, messages: Floats, r: float, b: float, owed: float = 0.0, target: float = 0.0
) -> Lates:
    """times: seconds from the start, when `owed` messages of work are in the bucket (b minus its
    tokens). target: seconds, TARGET's if 0."""
    target = target or TARGET.target_seconds
    bucket = work_before(times, messages, r, owed)
    queue = work_before(times, messages, DRAIN)

    def slower(than: float) -> tuple[Floats, Floats]:
        left = than - BASE_SECONDS
        alone = beyond(queue, messages, DRAIN * left)
        return np.maximum(alone, beyond(bucket, messages, b + r * left)), alone

    late, alone = slower(target)
    near, _ = slower(NEAR * target)
    left = bucket[-1] + messages[-1] if times.size else owed
    return Lates(times, messages, late, alone, near, float(left))


class Cluster:
    """Brokers that carry out rounds and measure, replaying one workload from time 0.

    A move leaves the topic's tokens where they are in sum: every new sub-bucket starts as full, in
    proportion, as the old ones were together.
    """

    def __init__(self, load: Workload) -> None:
        self._load = load
        self._round: Round | None = None
        self._owed_part = 0.0  # of b, at the start of the round
        self._made_until = self._given_until = 0.0
        self._pending: list[Sample] = []

    def samples(self, current: Round, until: float) -> list[Sample]:
        """The samples that ended since the last call."""
        if self._round is None or current.epoch != self._round.epoch:
            if self._round is not None:
                found = self._measured(self._round, current.began_at)
                owed = sum(each.work_left for each in found.values())
                whole = sum(self._round.shares[name][1] for name in found)
                self._owed_part = min(1.0, owed / whole)
            self._round, self._pending = current, []
            self._made_until = self._given_until = current.began_at
        if until > self._made_until:
            self._made_until = current.began_at + 2 * (until - current.began_at)
            made = self._made(current, self._made_until)
            self._pending = [each for each in made if each.ended_at > self._given_until]
        ready = [each for each in self._pending if each.ended_at <= until]
        self._pending = [each for each in self._pending if each.ended_at > until]
        self._given_until = until
        return ready

    def _measured(self, current: Round, until: float) -> dict[str, Lates]:
        load, found = self._load, {}
        first, last = np.searchsorted(load.times, (current.began_at, until))
        times, groups = load.times[first:last] - current.began_at, load.groups[first:last]
        for name, members in load.members(current.assignment).items():
            counts = members[groups] * BATCH
            mine = counts > 0
            r, b = current.shares[name]
            owed = b if current.warm_up.empty_first else self._owed_part * b
            found[name] = lates(times[mine], counts[mine], r, b, owed)
        return found

    def _made(self, current: Round, until: float) -> Iterator[Sample]:
        count = int((until - current.began_at) / SLOT_SECONDS)
        for name, each in self._measured(current, until).items():
            slot = (each.times / SLOT_SECONDS).astype(np.int64)
            rows = np.stack(
                [
                    np.bincount(slot, values, minlength=count)[:count]
                    for values in (each.messages, each.late, each.late_at_broker, each.near)
                ]
            ).astype(np.int64)
            for at, (messages, late, alone, near) in enumerate(rows.T.tolist()):
                began = current.began_at + at * SLOT_SECONDS
                yield Sample(
                    name,
                    TOPIC,
                    current.epoch,
                    began,
                    began + SLOT_SECONDS,
                    messages,
                    late,
                    alone,
                    near,
                )


def carried_out(fitting: Fitting, load: Workload) -> tuple[Done, list[Round]]:
    """What the fitting ends with, carried out until it is done; and every round as it was begun."""
    cluster = Cluster(load)
    rounds: list[Round] = []
    what = fitting.next([], 0.0, load.seen(0.0))
    while isinstance(what, Round):
        if not rounds or rounds[-1].epoch != what.epoch:
            rounds.append(what)
        now = what.look_again_at
        what = fitting.next(cluster.samples(what, now), now, load.seen(now))
    return what, rounds
