"""Stranded tokens: what they are at one moment, what they say of the penalty, and what is known of
them by reports, against simulated brokers of which all is known."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.limits.queueing import Floats
from tb_adaptor.penalty.broker_level import Reading
from tb_adaptor.penalty.stranded import Levels, Stranded, stranded
from tb_adaptor.share import Part, even
from tb_adaptor.simulator.bucket import Bucket
from tb_adaptor.simulator.run import Arrivals
from tests.support.cases import LONG, cases

CONTRACT = Part(40.0, 12.0)
ENDS_AT = 8.0
CELL = 0.005
levels = st.lists(st.floats(-50, 50), min_size=1, max_size=5)


# --- at one moment --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param([20.0, -16.0], 16, id="as-many-as-wait"),
        pytest.param([5.0, -16.0], 5, id="as-many-as-lie-there"),
        pytest.param([4.9, -16.0], 4, id="whole-tokens"),
        pytest.param([0.9, 0.9, -5.0], 0, id="halves-of-two-brokers-are-none"),
        pytest.param([4.0, -0.3], 1, id="a-message-waits-for-part-of-a-token"),
        pytest.param([4.0, 3.0, -2.0, -3.0], 5, id="all-that-lie-for-all-that-wait"),
        pytest.param([20.0, 20.0], 0, id="nobody-waits"),
        pytest.param([-4.0, -6.0], 0, id="everybody-waits"),
        pytest.param([-16.0], 0, id="one-broker-has-all"),
    ],
)
def test_stranded_at_one_moment(known: list[float], expected: int) -> None:
    column = [[each] for each in known]
    assert stranded(column, column) == [expected]


@given(levels)
def test_never_more_than_tokens_or_than_what_waits(known: list[float]) -> None:
    [found] = stranded([[each] for each in known], [[each] for each in known])
    assert 0 <= found <= sum(max(0.0, each) for each in known) + 1e-5
    assert found <= sum(np.ceil(max(0.0, -each)) for each in known)


# --- brokers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broker:
    """arrivals: at one broker; reports: when, with the share that comes with the answer"""

    part: Part
    arrivals: Arrivals
    reports: list[tuple[float, Part]]
    shift: float = 0.0  # seconds that its clock is wrong by

    def bucket(self) -> Bucket:
        return Bucket(self.part, self.arrivals.times, self.arrivals.counts)


def known_of(brokers: list[Broker], error: float) -> Levels:
    """All that they report is told."""
    found = Levels([str(place) for place in range(len(brokers))], CONTRACT.burst, 60.0)
    buckets = [each.bucket() for each in brokers]
    told = [0] * len(brokers)
    for at, place, part in sorted(
        (at, place, part) for place, each in enumerate(brokers) for at, part in each.reports
    ):
        bucket, shift = buckets[place], brokers[place].shift
        bucket.advance(at)
        times, counts = bucket.arrivals(told[place])
        told[place] = bucket.arrived
        largest = float(counts.max(initial=1.0))
        found.add(
            str(place),
            Reading(at + shift, bucket.level, bucket.part, times + shift, counts, largest, error),
        )
        found.advance(at)
        bucket.rescale(part, at)
    return found


def levels_at(broker: Broker, moments: Floats) -> tuple[Floats, Floats]:
    """With full knowledge: that unused tokens are counted by, and that lacking ones are."""
    bucket, changes, found = broker.bucket(), list(broker.reports), []
    for moment in moments:
        while changes and changes[0][0] < moment:
            at, part = changes.pop(0)
            bucket.rescale(part, at)
        bucket.advance(float(moment))
        found.append((bucket.level, bucket.level + bucket.debt))
    unused, lacking = np.array(found).T
    return unused, lacking


def counted(brokers: list[Broker], levels: Levels, found: Stranded) -> float:
    """The mean of what was stranded in the stretch that `found` is of: one moment of each cell."""
    assert levels._at is not None
    cells = round(found.seconds / CELL)
    moments = levels._at - found.seconds + CELL * (np.arange(cells) + 0.5)
    unused, lacking = zip(*(levels_at(each, moments) for each in brokers), strict=True)
    return float(stranded(unused, lacking).mean())


@st.composite
def worlds(draw: st.DrawFn, batches: bool, moves: bool) -> list[Broker]:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(2, 3))
    part = Part(CONTRACT.rate / count, CONTRACT.burst / count)
    every = draw(st.sampled_from([0.1, 0.5, 1.0]))
    since = 0.0 if batches else 1.1  # what waits at the first report may be a batch
    found = []
    for place in range(count):
        rate = draw(st.sampled_from([0.0, 2.0, 15.0, 40.0]))
        times = np.sort(random.uniform(since, ENDS_AT, random.poisson(rate * ENDS_AT)))
        if draw(st.booleans()):  # in clumps
            times = np.sort(np.round(times + 0.4))
        counts = random.choice([1.0, 1.0, 3.0, 9.0], times.size) if batches else np.ones(times.size)
        reports = []
        last = part
        for at in np.arange(every * (place + 1) / count, ENDS_AT, every):
            if moves and random.random() < 0.3:
                last = Part(*(each * random.uniform(0.2, 1) for each in part))
            reports.append((float(at), last))
        shift = draw(st.floats(-1, 1))
        found.append(Broker(part, Arrivals(times, counts), reports, shift))
    return found


@pytest.mark.parametrize("moves", [False, True], ids=["still", "moved"])
@pytest.mark.parametrize("error", [0.0, 0.002, 0.03] if LONG else [0.0, 0.03])
@settings(max_examples=cases(60))
@given(data=st.data())
def test_what_is_known_of_single_messages_holds_what_was_stranded(
    error: float, moves: bool, data: st.DataObject
) -> None:
    brokers = [
        Broker(each.part, each.arrivals, each.reports, each.shift * error)
        for each in data.draw(worlds(batches=False, moves=moves))
    ]
    levels = known_of(brokers, error)
    found = levels.shown(ENDS_AT)
    assert found is not None
    assert found.seconds > ENDS_AT - 4
    exact = counted(brokers, levels, found)
    assert found.least <= exact + 1e-9
    assert found.most >= exact - 1e-9
    if not moves and not error:
        # What comes and is brought in a cell, at each broker.
        messages = sum(each.arrivals.times.size for each in brokers) / found.seconds
        assert found.most - found.least <= 2 * (messages + CONTRACT.rate) * CELL + 1.5


@settings(max_examples=cases(100))
@given(world=worlds(batches=True, moves=True))
def test_no_batch_debt_or_move_makes_it_claim_more(world: list[Broker]) -> None:
    brokers = [Broker(each.part, each.arrivals, each.reports) for each in world]
    levels = known_of(brokers, 0.0)
    found = levels.shown(ENDS_AT)
    assert found is not None
    assert found.least <= counted(brokers, levels, found) + 1e-9


@settings(max_examples=cases(100))
@given(world=worlds(batches=False, moves=False), moments=st.lists(st.floats(0, 9), min_size=1))
def test_in_one_bucket_so_many_messages_fewer_would_wait(
    world: list[Broker], moments: list[float]
) -> None:
    times = np.sort(np.concatenate([each.arrivals.times for each in world]))
    whole = Broker(CONTRACT, Arrivals(times, np.ones(times.size)), [])
    at = np.sort(moments)
    known = [levels_at(each, at)[0] for each in world]
    waiting = sum(np.ceil(np.maximum(0.0, -each) - 1e-6) for each in known)
    in_one = np.ceil(np.maximum(0.0, -levels_at(whole, at)[0]) - 1e-6)
    assert (waiting - in_one >= stranded(known, known)).all()


# --- what is shown --------------------------------------------------------------------------------


def crowds(on: list[int], brokers: int = 2) -> list[Broker]:
    """12 messages come to each of those brokers at once, each second."""
    part = even(CONTRACT, [str(each) for each in range(brokers)])["0"]
    reports = [(float(at), part) for at in np.arange(0.25, ENDS_AT, 1.0)]
    times = np.repeat(np.arange(1.0, ENDS_AT), 12)
    return [
        Broker(part, Arrivals(*(a if place in on else a[:0] for a in (times, np.ones(times.size)))),
               reports)
        for place in range(brokers)
    ]  # fmt: skip


def test_a_crowd_at_one_of_two_brokers_strands_the_others_tokens() -> None:
    found = known_of(crowds([0]), 0.001).shown(ENDS_AT)
    assert found is not None
    # 6 wait at first and get a token each 50 ms; the other broker's 6 tokens lie there.
    assert found.least == pytest.approx(sum(range(1, 7)) * 0.05, rel=0.15)
    assert found.most == pytest.approx(found.least, abs=0.5)


@pytest.mark.parametrize(
    "brokers",
    [
        pytest.param(crowds([0], brokers=1), id="one-broker-has-all"),
        pytest.param(crowds([]), id="nothing-comes"),
    ],
)
def test_nothing_is_stranded(brokers: list[Broker]) -> None:
    found = known_of(brokers, 0.001).shown(ENDS_AT)
    assert found is not None
    assert (found.least, found.seconds > 5) == (0.0, True)


def test_a_broker_that_does_not_tell_leaves_it_unknown() -> None:
    found = Levels("ab", 12.0, 60.0)
    for at in np.arange(0.0, 30.0):
        none = np.empty(0)
        found.add("a", Reading(float(at), 5.0, Part(20.0, 6.0), none, none, 1.0, 0.001))
        found.forget()
        found.advance(float(at))
    assert found.shown(30.0) is None
    assert not found._of["a"].stretches, "nothing is kept for ever"


def test_the_window_is_left_behind() -> None:
    levels = known_of(crowds([0]), 0.001)
    assert levels.shown(ENDS_AT + 58.0) is not None
    assert levels.shown(ENDS_AT + 61.0) is None
