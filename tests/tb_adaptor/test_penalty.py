"""The live penalty against the exact simulator: brokers that report with clocks and delays of their
own, and what is shown of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.limits.bins import Bins, bins_of, nearest_rank, seconds_of
from srtm.limits.queueing import Floats
from tb_adaptor.penalty import Compared, Head, Heard, Host, Penalty, Waits
from tb_adaptor.penalty.host_clock import HostClock
from tb_adaptor.penalty.unsplit import Unsplit
from tb_adaptor.share import Part, even
from tb_adaptor.simulator.bucket import Bucket
from tb_adaptor.simulator.judge import nearest_rank as exact_rank
from tb_adaptor.simulator.judge import unsplit_waits
from tb_adaptor.simulator.run import Arrivals
from tests.support.cases import cases

CONTRACT = Part(50.0, 12.0)
QUIET = 5.0
"""seconds without arrivals, in which the one bucket would have been full"""


def waits_of(part: Part, arrivals: Arrivals) -> Floats:
    bucket = Bucket(part, arrivals.times, arrivals.counts)
    bucket.finish()
    return bucket.left - arrivals.times


@dataclass
class Reporter:
    """A broker: when its messages came and left, by true time, and the time on its way."""

    name: str
    arrivals: Arrivals
    part: Part
    up: float
    down: float
    clock: float = 12_345.678_9  # its host's, at 0 s
    number: int = 0
    told: float = -np.inf
    gave: float = -np.inf

    def __post_init__(self) -> None:
        self.left = self.arrivals.times + waits_of(self.part, self.arrivals)
        self.bucket = Bucket(self.part, self.arrivals.times, self.arrivals.counts)

    def report(self, at: float, with_waits: bool = True) -> Heard:
        """Made at `at`. It tells ages in whole milliseconds of a clock that nobody knows."""
        times, counts, left = self.arrivals.times, self.arrivals.counts, self.left
        new = (times > self.told) & (times <= at)
        gone = (left > self.gave) & (left <= at)
        slots = np.floor((times[new] + self.clock) * 1e3) / 1e3
        weights = counts[gone].astype(np.int64)
        waited = (left - times)[gone]
        held = int(counts[(times <= at) & (left > at)].sum())
        self.bucket.advance(at)
        tokens = self.bucket.level + held
        waits = Waits(bins_of(waited * 1e9, weights), float(np.dot(waited, weights)), held, tokens)
        self.told = self.gave = at
        self.number += 1
        arrives = at + self.up
        return Heard(
            arrives,
            np.floor((at + self.clock) * 1e3) / 1e3,
            self.number,
            1.0,
            self.up + self.down,
            slots,
            counts[new],
            counts[new] > 1,
            waits if with_waits else None,
            self.part,
        )


class Followed(Penalty):
    """One topic, with the hosts of its brokers. Who has told that it is idle does not name it again
    until something comes, as a gateway does."""

    def __init__(self, contract: Part, brokers: Iterable[str], *, leaves_out: bool = True) -> None:
        self.hosts = {name: Host() for name in brokers}
        self.leaves_out = leaves_out
        self.left_out = 0
        super().__init__("t", contract, self.hosts, 0.0, self.hosts)

    def receive(self, name: str, heard: Heard) -> None:
        host = self.hosts[name]
        host.report(Head(heard.at, heard.clock, heard.number, heard.seconds, heard.round_trip))
        waits, part = heard.waits, heard.part
        is_idle = (
            waits is not None
            and waits.tokens is not None
            and not (waits.bins or waits.held or heard.times.size)
            and waits.tokens >= part.burst
        )
        if is_idle and "t" in host.idle and self.leaves_out:
            self.left_out += 1
            return
        super().receive(name, heard)
        if is_idle:
            host.idle["t"] = part
        else:
            host.idle.pop("t", None)

    def shown(self, now: float) -> Compared | str:
        self.catch_up(now)
        return super().shown(now)


def told(
    arrivals: Mapping[str, Arrivals],
    contract: Part,
    ups: Floats,
    every: float,
    until: float,
    leaves_out: bool = True,
) -> tuple[Followed, float]:
    """All of them report until everything has left, and is told."""
    split = even(contract, list(arrivals))
    brokers = [
        Reporter(name, each, split[name], float(up), 0.003, 1e5 * float(up))
        for (name, each), up in zip(arrivals.items(), ups, strict=True)
    ]
    penalty = Followed(contract, arrivals, leaves_out=leaves_out)
    reports = sorted(
        (at + place * every / len(brokers), place)
        for at in np.arange(0.0, until, every)
        for place in range(len(brokers))
    )
    heard = [
        (brokers[place].name, brokers[place].report(at, with_waits=at > every))
        for at, place in reports
    ]
    for name, each in sorted(heard, key=lambda pair: pair[1].at):
        penalty.receive(name, each)
    return penalty, max(each.at for _, each in heard)


@st.composite
def traffic(draw: st.DrawFn, batches: bool) -> dict[str, Arrivals]:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = {}
    for name in draw(st.sampled_from(["a", "ab", "abc"])):
        rate = draw(st.sampled_from([1.0, 8.0, 20.0]))
        times = np.sort(random.uniform(QUIET, QUIET + 20, random.poisson(rate * 20)))
        counts = np.ones(times.size)
        if batches:
            counts = random.choice([1.0, 1.0, 1.0, 5.0, 15.0], times.size)
        if draw(st.booleans()):  # in clumps
            times = np.sort(np.round(times))
        found[name] = Arrivals(times, counts)
    return found


@pytest.mark.parametrize("batches", [False, True])
@settings(max_examples=40)
@given(data=st.data())
def test_figures_are_those_of_the_simulator_within_the_error(
    batches: bool, data: st.DataObject
) -> None:
    arrivals = data.draw(traffic(batches))
    ups = np.array([data.draw(st.floats(0.0, 0.08)) for _ in arrivals])
    every = data.draw(st.sampled_from([0.1, 0.5, 1.0]))
    messages = int(sum(each.counts.sum() for each in arrivals.values()))
    split = even(CONTRACT, list(arrivals))
    waits = np.concatenate(
        [
            np.repeat(waits_of(split[name], each), each.counts.astype(int))
            for name, each in arrivals.items()
        ]
    )
    # 60 s: what came first is shown still
    drained = QUIET + 20 + (waits.max() if waits.size else 0.0) + 4 * every + 1
    if drained > 55:
        return
    leaves_out = data.draw(st.booleans())
    penalty, now = told(arrivals, CONTRACT, ups, every, drained, leaves_out)
    assert (penalty.left_out > 0) == leaves_out
    found = penalty.shown(now)
    if not messages:
        assert found == "no messages came since it began"
        return
    assert isinstance(found, Compared), found
    assert found.messages == messages
    assert found.waits.mean == pytest.approx(waits.mean(), abs=1e-9)
    assert found.waits.p99 == pytest.approx(exact_rank(waits, 0.99), rel=0.0101)
    exact = unsplit_waits(CONTRACT, arrivals)
    assert abs(found.unsplit.mean - exact.mean()) <= found.error.mean
    assert abs(found.unsplit.p99 - exact_rank(exact, 0.99)) <= found.error.p99
    assert found.penalty.mean == found.waits.mean - found.unsplit.mean
    # Half an exchange, a millisecond, and the drift of a second, twice.
    asynchronous = (float(ups.max()) + 0.003) / 2 + 1e-3 + 1e-3
    in_batches = (15 - 1) / CONTRACT.rate if batches else 0.0
    assert found.error.mean <= 2 * asynchronous + in_batches + 1e-6


@settings(max_examples=cases(300))
@given(
    st.lists(st.floats(0, 20), min_size=1, max_size=60),
    st.floats(1, 20),
    st.floats(0.0, 2.0),
    st.integers(0, 2**32),
    st.floats(0.5, 10),
)
def test_arrivals_moved_by_e_change_the_wait_of_a_rank_by_two_e(
    times: list[float], burst: float, moved: float, seed: int, rate: float
) -> None:
    before = np.sort(times)
    random = np.random.default_rng(seed)
    after = np.sort(np.maximum(0.0, before + random.uniform(-moved, moved, before.size)))
    part, ones = Part(rate, burst), np.ones(before.size)
    one = waits_of(part, Arrivals(before, ones))
    other = waits_of(part, Arrivals(after, ones))
    assert np.abs(one - other).max() <= 2 * moved + 1e-6


@settings(max_examples=cases(200))
@given(
    st.lists(st.tuples(st.floats(0, 20), st.integers(1, 9)), min_size=1, max_size=40),
    st.floats(1, 12),
    st.floats(0.5, 20),
    st.lists(st.floats(0, 25), max_size=5),
)
def test_told_little_by_little_the_bucket_is_the_simulators(
    batches: list[tuple[float, int]], burst: float, rate: float, edges: list[float]
) -> None:
    batches = sorted(batches)
    times = np.array([at for at, _ in batches])
    counts = np.array([float(count) for _, count in batches])
    bucket, found = Unsplit(Part(rate, burst), 0.0, burst), []
    done = 0
    for until in sorted([*edges, 30.0]):
        through = int(np.searchsorted(times, until, side="right"))
        found.append(bucket.take(times[done:through], counts[done:through], until))
        done = through
    expected = waits_of(Part(rate, burst), Arrivals(times, counts))
    assert np.concatenate(found) == pytest.approx(expected, abs=1e-6)


def test_what_a_bucket_held_at_first_is_not_guessed() -> None:
    bucket = Unsplit(Part(10.0, 5.0), 0.0, 0.0)
    waits = bucket.take(np.array([0.1, 2.0, 2.0]), np.array([1.0, 1.0, 6.0]), 3.0)
    assert np.isnan(waits[0]), "it may have been full, or not"
    assert waits[1:] == pytest.approx([0.0, 0.1]), "it is full by then, whatever it was"


def test_one_broker_pays_no_penalty_and_clumps_on_two_do() -> None:
    times = QUIET + np.repeat(np.arange(20.0), 12)
    clumps = Arrivals(times, np.ones(times.size))
    none = Arrivals(np.empty(0), np.empty(0))
    alone, now = told({"a": clumps}, CONTRACT, np.array([0.01]), 1.0, 40.0)
    found = alone.shown(now)
    assert isinstance(found, Compared)
    assert abs(found.penalty.mean) <= found.error.mean
    assert abs(found.penalty.p99) <= found.error.p99
    tokens = alone.stranded(now)
    assert tokens is not None
    assert tokens.least == tokens.most == 0
    split, now = told({"a": clumps, "b": none}, CONTRACT, np.array([0.01, 0.0]), 1.0, 40.0)
    found = split.shown(now)
    assert isinstance(found, Compared)
    assert found.waits.p99 == pytest.approx((12 - 6) / 25, rel=0.02)
    assert found.unsplit.p99 <= found.error.p99
    assert found.penalty.p99 > 0.2
    tokens = split.stranded(now)
    assert tokens is not None
    # Of each crowd 6 wait, as long as the other broker's 6 tokens lie there: the whole penalty.
    assert tokens.least <= found.penalty.mean * found.messages / tokens.seconds
    assert tokens.least == pytest.approx(20 * sum(range(1, 7)) / 25 / tokens.seconds, rel=0.4)


def test_a_percentile_of_the_penalty_can_be_negative() -> None:
    """A batch bigger than the whole bucket leaves its debt to one half of the messages only."""
    times = np.sort(
        np.concatenate([QUIET + np.arange(0, 20, 2.0), QUIET + np.arange(0.1, 20, 0.02)])
    )
    batches = np.isin(times, QUIET + np.arange(0, 20, 2.0))
    big = Arrivals(times[batches], np.full(int(batches.sum()), 40.0))
    small = Arrivals(times[~batches], np.ones(int((~batches).sum())))
    contract = Part(100.0, 10.0)
    penalty, now = told({"a": big, "b": small}, contract, np.array([0.0, 0.0]), 1.0, 40.0)
    found = penalty.shown(now)
    assert isinstance(found, Compared)
    assert found.penalty.mean < 0


def test_a_quick_exchange_bounds_the_slow_ones_around_it() -> None:
    clock = HostClock()
    assert clock.exchanged(5.0, 105.2, 0.4)
    assert clock.error(1.0) > 0.2
    assert clock.exchanged(6.0, 106.001, 0.002)
    assert clock.exchanged(7.0, 107.3, 0.5), "it was under way for 0.3 s"
    assert clock.offset == pytest.approx(100.0, abs=2e-3)
    assert clock.error(1.0) < 5e-3


@given(st.floats(-1e6, 1e6), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_a_clock_is_never_further_off_than_it_says(
    offset: float, ways: list[tuple[float, float]]
) -> None:
    clock = HostClock()
    for number, (up, down) in enumerate(ways):
        at = float(number)
        made = np.floor((at - offset) * 1e3) / 1e3
        assert clock.exchanged(float(made), at + up, up + down + 1e-9)
        assert abs(clock.offset - offset) <= clock.error(0.0) + 1e-6


def test_a_clock_that_stands_still_is_noticed() -> None:
    clock = HostClock()
    assert clock.exchanged(5.0, 105.0, 0.01)
    assert not clock.exchanged(6.0, 116.0, 0.01), "a host that slept for ten seconds"


# --- not known rather than wrong ------------------------------------------------------------------


def steady(name: str) -> Reporter:
    times = QUIET + np.arange(0, 30, 0.1)
    return Reporter(name, Arrivals(times, np.ones(times.size)), Part(25.0, 6.0), 0.01, 0.01)


def following(until: float) -> tuple[Followed, list[Reporter]]:
    brokers = [steady("a"), steady("b")]
    penalty = Followed(CONTRACT, "ab")
    for at in np.arange(0.0, until):
        for each in brokers:
            penalty.receive(each.name, each.report(float(at), with_waits=at > 1))
    assert isinstance(penalty.shown(until), Compared)
    return penalty, brokers


def test_a_report_that_is_lost_begins_it_anew() -> None:
    penalty, (a, _) = following(10.0)
    a.report(10.0)
    penalty.receive("a", a.report(11.0))
    said = penalty.shown(11.1)
    assert isinstance(said, str)
    assert "a report of broker a was lost or repeated" in said


def test_one_that_is_repeated_does_too() -> None:
    penalty, (a, _) = following(10.0)
    again = a.report(10.0)
    penalty.receive("a", again)
    penalty.receive("a", again)
    assert "lost or repeated" in str(penalty.shown(10.1))


def test_it_is_known_again_after_some_seconds() -> None:
    penalty, brokers = following(10.0)
    brokers[0].report(10.0)
    for at in (11.0, 12.0, 13.0, 14.0, 15.0, 16.0):
        for each in brokers:
            penalty.receive(each.name, each.report(at))
    found = penalty.shown(16.1)
    assert isinstance(found, Compared), found
    assert found.seconds < 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"round_trip": 0.0}, "how long reports take", id="no-round-trip"),
        pytest.param({"waits": None}, "tells no waits", id="no-waits"),
        pytest.param({"times": np.empty(0), "counts": np.empty(0), "batches": np.empty(0, bool)},
                     "not all messages of broker a were told", id="arrivals-missing"),
        pytest.param({"waits": Waits(Bins(), 0.0, None)}, "than it counts", id="not-counted"),
        pytest.param({"waits": Waits(Bins({0: 10**15}), 0.0, 0)}, "not all messages", id="lies"),
        pytest.param({"times": np.full(10, -1e6)}, "came long ago", id="long-ago"),
        pytest.param({"counts": np.full(10, 1e15)}, "not all messages", id="absurd-counts"),
    ],
)  # fmt: skip
def test_what_is_not_told_is_not_guessed(change: dict[str, object], said: str) -> None:
    penalty, (a, _) = following(10.0)
    penalty.receive("a", replace(a.report(10.0), **change))
    penalty.receive("a", a.report(11.0))
    shown = penalty.shown(11.1)
    assert isinstance(shown, str)
    assert said in shown


def test_a_silent_broker_is_named() -> None:
    penalty, (a, _) = following(10.0)
    for at in (11.0, 12.0, 13.0, 14.0, 15.0, 16.0):
        penalty.receive("a", replace(a.report(at), number=a.number))
    assert penalty.shown(17.0) == "broker b does not report its arrivals"


@pytest.mark.parametrize("told", [0, 10], ids=["never", "no-more"])
def test_a_broker_that_tells_nothing_fills_no_memory(told: int) -> None:
    times = QUIET + np.arange(0, 400, 0.1)
    a = Reporter("a", Arrivals(times, np.ones(times.size)), Part(25.0, 6.0), 0.01, 0.01)
    b = steady("b")
    penalty = Followed(CONTRACT, "ab")
    for at in np.arange(0.0, 400.0):
        for each in (a, b) if at < told else (a,):
            penalty.receive(each.name, each.report(float(at), with_waits=at > 1))
    kept = sum(part[0].size for each in penalty._of.values() for part in each.coming)
    kept += sum(each.times.size for each in penalty._levels._of.values())
    assert kept <= 2 * 10 * 20, "what came in 20 s, twice"
    assert "broker b does not report" in str(penalty.shown(400.0))


def test_more_than_r_for_ever_says_so() -> None:
    times = np.arange(0, 30, 0.01)
    many, none = Arrivals(times, np.ones(times.size)), Arrivals(times[:0], times[:0])
    penalty, now = told({"a": many, "b": none}, CONTRACT, np.zeros(2), 1.0, 30.0)
    assert "more came than r" in str(penalty.shown(now))
    tokens = penalty.stranded(now)
    assert tokens is not None, "that is known all the same"
    # What waits at the first report may be a batch, so that it is not counted until it has gone.
    assert 4.5 < tokens.least <= tokens.most
    assert tokens.most == pytest.approx(6)


def test_a_broker_that_tells_no_tokens_leaves_them_unknown() -> None:
    penalty, (a, b) = following(10.0)
    assert penalty.stranded(10.0) is not None
    for at in np.arange(10.0, 80.0):
        for each in (a, b):
            heard = each.report(float(at))
            assert heard.waits is not None
            if each is b:
                heard = replace(heard, waits=replace(heard.waits, tokens=None))
            penalty.receive(each.name, heard)
    assert penalty.stranded(80.0) is None
    assert isinstance(penalty.shown(80.0), Compared), "the penalty needs none"


def test_a_crowd_is_followed_in_groups() -> None:
    contract = Part(1e6, 1_000.0)
    times = QUIET + np.arange(10.0)
    crowd = Arrivals(times, np.full(times.size, 200_000.0))
    reporter = Reporter("a", crowd, contract, 0.0, 0.002)
    penalty = Followed(contract, "a")
    for at in np.arange(0.0, 18.0):
        heard = reporter.report(float(at), with_waits=at > 1)
        # They came one by one.
        penalty.receive("a", replace(heard, batches=np.zeros(heard.times.size, dtype=bool)))
    found = penalty.shown(18.0)
    assert isinstance(found, Compared)
    singles = waits_of(contract, Arrivals(np.zeros(200_000), np.ones(200_000)))
    assert abs(found.unsplit.mean - singles.mean()) <= found.error.mean
    assert found.error.mean < 0.01


def test_bins_are_those_of_the_sketch() -> None:
    from ddsketch.mapping import LogarithmicMapping

    mapping = LogarithmicMapping(0.01)
    for value in (1e-9, 3.3e-6, 0.5, 7.0, 1e4):
        [key] = bins_of(np.array([value * 1e9]), np.array([1]))
        assert abs(key - mapping.key(value)) <= 1
        assert seconds_of(key) == pytest.approx(value, rel=0.0101)
        assert seconds_of(key) == pytest.approx(mapping.value(key))
    assert nearest_rank(Bins({-3: 98, 5: 2}), 0.99) == pytest.approx(seconds_of(5))
    assert nearest_rank(Bins(), 0.99) == 0
