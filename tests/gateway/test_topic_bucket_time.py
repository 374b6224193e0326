"""A topic and its bucket, time passed in: whatever the reads, timers and nsqd do, and whoever is
next, no interval of bucket time has more than max(b, n_max) + r*t."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from srtm.gateway.backlog import Bounds
from srtm.gateway.backlogs import Backlogs
from srtm.gateway.batch import Batch
from srtm.gateway.measure.meter import Meter
from srtm.gateway.measure.record import Record
from srtm.gateway.run import Run
from srtm.gateway.topic import Topic
from srtm.limits.contract import Fair, Limit
from srtm.limits.queueing import token_waits
from srtm.nsq.commands import message
from tests.limits.test_bucket import BURSTS, NS, RATES, Ledger
from tests.support.cases import cases

ELEMENT = message(b"x")


class Nsqd:
    """A carrier that keeps what it is given, until the test lets it answer."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def publish(self, batch: Batch) -> None:
        self.batches.append(batch)


class Publisher:
    """An owner that only counts."""

    def __init__(self, publisher: str = "p") -> None:
        self.publisher = publisher
        self.settled = self.refused = 0

    def settle(self, run: Run, count: int) -> None:
        self.settled += count

    def refuse(self, run: Run, retry_seconds: float | None) -> None:
        self.refused += 1

    def lose(self, run: Run) -> None:
        raise AssertionError("nsqd is always there")

    def pause(self, reason: object) -> None: ...

    def resume(self, reason: object) -> None: ...


ORDERS = st.sampled_from([None, Fair.PUBLISHER])
UNBOUNDED = Bounds(10**9, 10**12, 1 << 20)


class World:
    """One topic in a gateway of its own; time goes where `now` is set."""

    def __init__(
        self, rate: float, burst: float, bounds: Bounds = UNBOUNDED, fair: Fair | None = None
    ) -> None:
        self.dirty: list[Topic] = []
        self.backlogs = Backlogs(1 << 30, 100)
        self.is_open = True
        self.alarms: list[tuple[int, Callable[[int], None]]] = []
        self.nsqd, self.publisher = Nsqd(), Publisher()
        self.topic = Topic(b"t", self, bounds, Meter())
        self.topic.known = True
        self.fair = fair
        self.topic.set_limit(Limit(rate=rate, burst=burst, fair=fair), 0)
        self.record = self.topic.record = Record()
        self.limits = [(0, rate, burst)]
        self.largest = 1

    def carrier(self, topic: Topic) -> Nsqd:
        return self.nsqd

    def owe(self, topic: Topic, debt: float) -> None: ...

    def write_debts(self) -> None: ...

    def batch_waits(self, topic: Topic) -> None: ...

    def call_at(self, when: int, alarm: Callable[[int], None]) -> None:
        self.alarms.append((when, alarm))

    def offer(
        self, stamp: int, count: int, atomic: bool, publisher: Publisher | None = None
    ) -> Run:
        self.largest = max(self.largest, count if atomic else 1)
        messages = [ELEMENT * count] if atomic else [ELEMENT] * count
        run = Run(b"t", messages, count, atomic, None)
        run.owner, run.stamp = publisher or self.publisher, stamp
        self.topic.offer(run)
        return run

    def wake(self, now: int) -> None:
        """The end of one wake-up of the gateway: alarms that are due, arrivals, answers."""
        due = [alarm for when, alarm in self.alarms if when <= now]
        self.alarms = [entry for entry in self.alarms if entry[0] > now]
        for alarm in due:
            alarm(now)
        if self.dirty:
            self.dirty.clear()
            self.topic.decide(now, now)
            self.topic.pump(now)
        while self.nsqd.batches:
            self.topic.acknowledged(self.nsqd.batches.pop(0), now)

    def rescale(self, rate: float, burst: float, now: int) -> None:
        self.topic.set_limit(Limit(rate=rate, burst=burst, fair=self.fair), now)
        self.limits.append((now, rate, burst))

    def finish(self, now: int) -> None:
        """Let all that waits go, each at its time."""
        self.is_open = True
        self.topic.release(now)
        for _ in range(10_000):
            self.wake(now)
            if not (self.topic.held or self.topic.ready):
                return
            now = max(now + 1, min((when for when, _ in self.alarms), default=now + NS))
        raise AssertionError("something waits for ever")

    def ledger(self) -> Ledger:
        ledger = Ledger(limits=self.limits, largest=self.largest)
        for first, step_ns, count in self.record.admissions:
            ledger.admit(first, count, step_ns)
        return ledger


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["one", "one", "run", "batch", "wake", "wake", "gate", "rescale"]),
        st.sampled_from([0, 0, 1, 30, 100, 1000, 30_000]),  # hundredths of a token's time
        st.sampled_from([0, 0, 0, 20, 100, 500]),  # read so much later, in the same
        st.integers(1, 30),
        RATES,
        BURSTS,
        st.integers(0, 3),  # the publisher
    ),
    max_size=40,
)


@given(RATES, BURSTS, EVENTS, ORDERS)
@settings(max_examples=cases(300))
@example(
    1e3,
    10.0,
    [
        ("run", 0, 0, 30, 1.0, 1.0, 0),
        ("gate", 0, 0, 1, 1.0, 1.0, 0),
        ("run", 30_000, 0, 30, 1.0, 1.0, 0),
        ("run", 0, 0, 30, 1.0, 1.0, 0),
        ("wake", 0, 0, 1, 1.0, 1.0, 0),
        ("gate", 1000, 0, 1, 1.0, 1.0, 0),
    ],
    None,
)
def test_no_interval_admits_more_than_its_tokens(
    rate: float,
    burst: float,
    events: list[tuple[str, int, int, int, float, float, int]],
    fair: Fair | None,
) -> None:
    world, now, unit, offered = World(rate, burst, fair=fair), 0, 1e7 / rate, 0
    publishers = [Publisher(f"p{n}") for n in range(4)]
    for what, ahead, late, count, new_rate, new_burst, who in events:
        now += int(ahead * unit)
        if what == "gate":
            world.is_open = not world.is_open
            if world.is_open:
                world.topic.release(now)
        elif what == "rescale":
            world.rescale(new_rate, new_burst, now)
            unit = 1e7 / new_rate
        elif what != "wake":
            count = 1 if what == "one" else count
            world.offer(max(0, now - int(late * unit)), count, what == "batch", publishers[who])
            offered += count
        if what != "run":  # a run is read together with what follows
            world.wake(now)
    world.finish(now)
    assert sum(each.settled for each in publishers) == offered
    assert not any(each.refused for each in publishers)
    assert sum(count for _, _, count in world.record.admissions) == offered
    world.ledger().check()


@given(
    st.sampled_from([1.0, 1e3, 12_345.678]),
    BURSTS,
    st.lists(
        st.tuples(st.sampled_from([0, 1, 30, 100, 400, 2500]), st.integers(1, 20), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([0, 1, 700, 100_000]),
    ORDERS,
)
@settings(max_examples=cases(200))
def test_token_waits_are_the_exact_queues_however_late_a_wake_up_is(
    rate: float,
    burst: float,
    runs: list[tuple[int, int, bool]],
    lateness: int,
    fair: Fair | None,
) -> None:
    """Whoever is next: no token is lost while anybody waits."""
    world, stamp, stamps, waiting = World(rate, burst, fair=fair), 0, [], 0
    publishers = [Publisher(f"p{n}") for n in range(3)]
    for gap, count, woken in runs:
        stamp += int(gap * 1e7 / rate)
        world.offer(stamp, count, False, publishers[(stamp + count) % 3])
        stamps += [stamp] * count
        if woken:
            world.wake(stamp + int(lateness * 1e7 / rate) if waiting > 5 else stamp)
        waiting += count
    world.finish(stamp + int(lateness * 1e7 / rate))
    waits = token_waits(np.array(stamps) / 1e9, rate, burst)
    expected = np.array(stamps) + waits * 1e9
    got = sorted(
        first + k * step_ns for first, step_ns, n in world.record.admissions for k in range(n)
    )
    assert got == pytest.approx(sorted(expected), rel=1e-12, abs=8 + 8 / rate)


def test_a_read_of_many_single_messages_is_no_batch_that_may_run_a_debt() -> None:
    """A publisher that pipelines 1,000 PUBs finds a full bucket: b of them go, the rest waits."""
    world = World(100, 10)
    world.offer(0, 1000, False)
    world.wake(0)
    assert world.publisher.settled == 10
    assert world.topic.waiting == 990
    world.finish(0)
    world.ledger().check()


def test_what_comes_while_nsqd_is_away_is_held_to_the_bucket_as_well() -> None:
    """One message waits for ten seconds; 1,000 that come then have not those seconds' tokens."""
    world = World(100, 10)
    world.is_open = False
    world.offer(0, 1, False)
    world.wake(0)
    world.offer(10 * NS, 1000, False)
    world.wake(10 * NS)
    world.is_open = True
    world.topic.release(10 * NS)
    world.wake(10 * NS)
    assert world.publisher.settled == 1 + 10
    world.finish(10 * NS)
    world.ledger().check()
