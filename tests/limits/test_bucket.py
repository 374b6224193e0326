"""The token bucket against its bound over every interval, an exact queue, and the sorted order."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from srtm.limits.bucket import TokenBucket
from srtm.limits.queueing import token_waits
from tests.support.cases import cases

NS = 1_000_000_000
YEAR = 365 * 86_400 * NS
TEN_YEARS = 10 * YEAR

# --- what every admission must keep to ----------------------------------------------------------


@dataclass
class Ledger:
    """Admissions in bucket time since the first limit, and the (r, b) that held when."""

    admissions: list[tuple[float, int]] = field(default_factory=list)
    limits: list[tuple[int, float, float]] = field(default_factory=list)
    largest: int = 1  # n_max: the largest batch that is not split

    def admit(self, first: int, count: int, step_ns: float = 0.0) -> None:
        first -= self.limits[0][0]  # as integers: ten years in ns are no exact floats
        if step_ns:
            self.admissions += [(first + k * step_ns, 1) for k in range(count)]
        else:
            self.admissions.append((first, count))

    def check(self) -> None:
        """At most max(b, n_max) + r*t over any interval: all O(n^2) pairs of admissions.

        While (r, b) changes: the b in force when the interval begins, r's integral, and the debt
        that a batch may leave under the b in force when it ends.
        """
        if not self.admissions:
            return
        times = np.array([at for at, _ in self.admissions], dtype=float)
        order = np.argsort(times, kind="stable")
        times = times[order]
        counts = np.array([count for _, count in self.admissions])[order]
        start = self.limits[0][0]
        since = np.array([at - start for at, _, _ in self.limits], dtype=float)
        rates = np.array([rate for _, rate, _ in self.limits])
        bursts = np.array([burst for _, _, burst in self.limits])
        earned = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(since) / 1e9)])
        after = np.searchsorted(since, times, side="right") - 1
        before = np.maximum(np.searchsorted(since, times, side="left") - 1, 0)
        tokens = earned[after] + rates[after] * (times - since[after]) / 1e9
        spans = list(zip(before, after + 1, strict=True))  # a rescale may fall on an admission
        room = np.array([bursts[first:last].max() for first, last in spans])
        debt = np.array(
            [max(0.0, self.largest - bursts[first:last].min()) for first, last in spans]
        )
        total = np.cumsum(counts)
        sums = total[None, :] - (total - counts)[:, None]  # [i, j]: all from i to j
        allowed = room[:, None] + debt[None, :] + tokens[None, :] - tokens[:, None]
        ns = np.maximum(rates[before], rates[after]) * 1e-9  # tokens: a time is rounded to one
        over = np.triu(sums - allowed - 1e-6 - 1.5 * (ns[:, None] + ns[None, :]))
        assert over.max() <= 0, (over.max(), np.unravel_index(over.argmax(), over.shape))


def bound(admissions: Sequence[tuple[int, int]], rate: float, burst: float) -> None:
    ledger = Ledger(limits=[(0, rate, burst)], largest=max(n for _, n in admissions or [(0, 1)]))
    for at, count in admissions:
        ledger.admit(at, count)
    ledger.check()


@dataclass
class Waiting:
    stamp: int
    count: int
    atomic: bool


class Queue:
    """What a topic does with its bucket: arrivals meet it, what it refuses waits in order."""

    def __init__(self, bucket: TokenBucket) -> None:
        self.bucket = bucket
        self.ledger = Ledger(limits=[(bucket.at, bucket.rate, bucket.burst)])
        self.held: deque[Waiting] = deque()

    def arrive(self, stamp: int, count: int, atomic: bool) -> None:
        bucket = self.bucket
        if atomic:
            self.ledger.largest = max(self.ledger.largest, count)
        if self.held:
            if stamp < bucket.at and bucket.insert(count, stamp):
                self.ledger.admit(stamp, count)
                return
        elif atomic or count <= bucket.burst:
            when = bucket.take(count, stamp)
            if when is not None:
                self.ledger.admit(when, count)
                return
        self.held.append(Waiting(stamp, count, atomic))

    def release(self, now: int) -> None:
        bucket = self.bucket
        while self.held:
            head = self.held[0]
            if head.atomic:
                when = max(bucket.ready_at(head.count), head.stamp)
                if when > now:
                    return
                taken = bucket.take(head.count, when)
                assert taken == when, "ready_at promised it"
                self.ledger.admit(when, head.count)
            else:
                while head.count:
                    got, first, step_ns = bucket.take_waiting(head.count, head.stamp, now)
                    if not got:
                        assert first > now
                        return
                    assert head.stamp <= first <= now
                    self.ledger.admit(first, got, step_ns)
                    head.count -= got
            self.held.popleft()

    def rescale(self, rate: float, burst: float, now: int) -> None:
        before = self.bucket.level(now)
        self.bucket.rescale(rate, burst, now)
        assert self.bucket.level(now) == min(before, burst)
        self.ledger.limits.append((max(now, self.ledger.limits[-1][0]), rate, burst))


RATES = st.sampled_from([0.001, 0.3, 1.0, 7.0, 1e3, 12_345.678, 1e6, 1e9])
BURSTS = st.sampled_from([1.0, 1.5, 2.0, 3.0, 10.0, 17.25, 100.0])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["one", "one", "one", "run", "batch", "poll", "poll", "rescale"]),
        st.sampled_from([0, 0, 1, 10, 100, 1000, 3000]),  # hundredths of a token's time
        st.sampled_from([0, 0, 0, 20, 100, 500]),  # how late it is read, in the same
        st.integers(1, 30),
        RATES,
        BURSTS,
    ),
    max_size=60,
)


@given(RATES, BURSTS, st.sampled_from([0, TEN_YEARS]), STEPS)
@settings(max_examples=cases(400))
def test_no_interval_admits_more_than_its_tokens(
    rate: float, burst: float, start: int, steps: list[tuple[str, int, int, int, float, float]]
) -> None:
    queue, now, unit = Queue(TokenBucket(rate, burst, start)), start, 1e7 / rate
    for what, ahead, late, count, new_rate, new_burst in steps:
        now += int(ahead * unit)
        stamp = max(start, now - int(late * unit))
        if what == "poll":
            queue.release(now)
        elif what == "rescale":
            queue.rescale(new_rate, new_burst, now)
            unit = 1e7 / new_rate
        else:
            queue.arrive(stamp, 1 if what == "one" else count, what == "batch")
        assert queue.bucket.level(now) <= queue.bucket.burst
    queue.ledger.check()


@given(RATES, BURSTS, st.lists(st.integers(1, 40), min_size=2, max_size=60))
def test_asking_again_and_again_brings_no_more(rate: float, burst: float, gaps: list[int]) -> None:
    """A hundred askers a token's time, each for one: b at once, and then r."""
    bucket, now, times = TokenBucket(rate, burst, 0), 0, []
    for gap in gaps:
        now += int(gap * 1e7 / rate)
        while bucket.take(1, now) is not None:
            times.append((now, 1))
    bound(times, rate, burst)
    assert len(times) >= math.floor(burst + rate * now / 1e9 - 2), "and no token is lost either"


# --- the exact queue -----------------------------------------------------------------------------


def exact(stamps: list[int], rate: float, burst: float) -> list[Fraction]:
    """Bucket times of unit messages in fractions: a counter of tokens, first come first served."""
    per_ns = Fraction(rate) / NS
    tokens, now, times = Fraction(burst), Fraction(0), []
    for stamp in stamps:
        start = max(now, Fraction(stamp))
        tokens = min(Fraction(burst), tokens + per_ns * (start - now))
        now = start + max(Fraction(0), 1 - tokens) / per_ns
        tokens = max(tokens, Fraction(1)) - 1
        times.append(now)
    return times


@given(
    RATES,
    BURSTS,
    st.lists(st.sampled_from([0, 0, 0, 1, 30, 50, 100, 101, 400, 2500]), min_size=1, max_size=80),
    st.lists(st.integers(0, 80), max_size=10),
    st.sampled_from([0, 1, 700, 100_000]),
)
@settings(max_examples=cases(300))
@example(1e3, 10.0, [0] * 40 + [100_000] + [0] * 40, [], 100_000)
def test_units_in_order_get_the_exact_queues_times_however_late_the_timer(
    rate: float, burst: float, gaps: list[int], polls: list[int], lateness: int
) -> None:
    stamps = np.cumsum([int(gap * 1e7 / rate) for gap in gaps]).tolist()
    queue = Queue(TokenBucket(rate, burst, 0))
    for number, stamp in enumerate(stamps):
        queue.arrive(stamp, 1, False)
        if number in polls:
            queue.release(stamp)
    end = int(queue.bucket.at + (len(stamps) + lateness) * 1e9 / rate) + stamps[-1]
    queue.release(end)
    got = sorted(at for at, _ in queue.ledger.admissions)
    expected = exact(stamps, rate, burst)
    waits = token_waits(np.array(stamps) / 1e9, rate, burst)
    assert len(got) == len(stamps)
    for at, stamp, should, wait in zip(got, stamps, expected, waits, strict=True):
        # Two roundings to a whole ns, float times, and what _EPSILON is worth at this rate.
        slack = 4 + 4e-16 * end + 3 * 1e-9 * 1e9 / rate
        assert abs(at - float(should)) <= slack
        assert abs(at - stamp - wait * 1e9) <= slack + 2 * 1e-9 * 1e9 / rate + 1e-15 * end
    queue.ledger.check()


@given(RATES, BURSTS, st.lists(st.tuples(st.integers(0, 300), st.integers(1, 30)), max_size=20))
def test_runs_are_served_like_their_messages_one_by_one(
    rate: float, burst: float, runs: list[tuple[int, int]]
) -> None:
    stamps = np.cumsum([int(gap * 1e7 / rate) for gap, _ in runs], dtype=np.int64).tolist()
    whole, single = Queue(TokenBucket(rate, burst, 0)), Queue(TokenBucket(rate, burst, 0))
    for stamp, (_, count) in zip(stamps, runs, strict=True):
        # As a topic does: what is there is taken at once, the rest of the run waits.
        there = 0 if whole.held else min(count, whole.bucket.available(stamp))
        if there:
            whole.arrive(stamp, there, False)
        if count > there:
            whole.held.append(Waiting(stamp, count - there, False))
        for _ in range(count):
            single.arrive(stamp, 1, False)
    end = int(1e11 / rate) + (stamps[-1] if stamps else 0) + int(600 * 1e9 / rate)
    for queue in (whole, single):
        queue.release(end)
        assert not queue.held
    times = [
        sorted(at for at, count in queue.ledger.admissions for _ in range(count))
        for queue in (whole, single)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-15, abs=4 + 4 / rate)


def test_a_burst_after_a_silence_is_held_to_the_bucket_although_the_timer_is_late() -> None:
    """One message waits; long after it has had its token 1,000 come, before anybody looks."""
    queue = Queue(TokenBucket(100, 10, 0, tokens=0))
    queue.arrive(0, 1, False)
    queue.held.append(Waiting(10 * NS, 1000, False))
    queue.release(10 * NS + NS // 10)
    admitted = sum(count for _, count in queue.ledger.admissions)
    assert admitted == 1 + 10 + 10  # its own, b at the stamp, and r for a tenth of a second
    queue.ledger.check()


# --- late stamps ------------------------------------------------------------------------------


def conformant(
    gaps: list[int], counts: list[int], rate: Fraction, burst: float, unit: int
) -> list[tuple[int, int]]:
    """Of these arrivals, in order, those that the bucket admits at once (exactly, in fractions)."""
    tokens, last, now = Fraction(burst), 0, 0
    kept = []
    for gap, count in zip(gaps, counts, strict=True):
        now += gap * unit
        level = min(Fraction(burst), tokens + rate * (now - last) / NS)
        if level >= count:
            tokens, last = level - count, now
            kept.append((now, count))
    return kept


@given(
    st.sampled_from([(1.0, NS // 4), (1e3, 250_000), (1e6, 250), (1e9, 1), (0.001, 250 * NS)]),
    st.sampled_from([1.0, 1.5, 2.0, 3.0, 5.0, 20.0]),
    st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 3, 4, 4, 5, 8, 40]), st.sampled_from([1, 1, 1, 2, 5])),
        max_size=120,
    ),
    st.integers(1, 60),
    st.randoms(use_true_random=False),
    st.sampled_from([0, 10 * YEAR]),
)
@settings(max_examples=cases(400))
def test_late_stamps_are_admitted_as_the_sorted_order_admits_them(
    clock: tuple[float, int],
    burst: float,
    arrivals: list[tuple[int, int]],
    window: int,
    random: object,
    idle: int,
) -> None:
    """A conformant sequence, read in any order within a window: each at its own stamp.

    Before it the bucket may have idled for years, which must not cost a digit.
    """
    rate, unit = clock
    gaps, counts = [gap for gap, _ in arrivals], [count for _, count in arrivals]
    sequence = conformant(gaps, counts, Fraction(rate), burst, unit)
    shuffled = sorted(
        range(len(sequence)),
        key=lambda i: i + random.random() * window,  # type: ignore[attr-defined]
    )
    late, ordered = TokenBucket(rate, burst, 0), TokenBucket(rate, burst, 0)
    for bucket in (late, ordered):
        # One admission long ago, so that all that overflowed in between is on record.
        assert bucket.take(1, 0) == 0
        assert bucket.take(1, idle + 1000 * unit) == idle + 1000 * unit
    start = idle + 2000 * unit
    for i in shuffled:
        stamp, count = sequence[i]
        assert late.take(count, start + stamp) == start + stamp
    for stamp, count in sequence:
        assert ordered.take(count, start + stamp) == start + stamp
    assert late.at == ordered.at
    assert late.tokens == pytest.approx(ordered.tokens, abs=1e-7)
    bound([(at, count) for at, count in sequence], rate, burst)


def test_a_late_stamp_uses_what_overflowed_since() -> None:
    bucket = TokenBucket(1000, 2, 0)
    assert bucket.take(2, 0) == 0
    assert bucket.take(2, 10_000_000) == 10_000_000  # 8 tokens overflowed at 2 to 10 ms
    assert bucket.take(2, 5_000_000) == 5_000_000
    assert bucket.take(2, 7_000_000) == 7_000_000
    assert bucket.take(2, 3_000_000) == 3_000_000
    assert bucket.level(10_000_000) == pytest.approx(0)
    assert bucket.take(1, 6_000_000) is None, "not there, and none is left for now"


def test_a_late_stamp_takes_what_was_left_over() -> None:
    bucket = TokenBucket(1000, 10, 0)
    assert bucket.take(1, 1_000_000) == 1_000_000
    assert bucket.take(9, 500_000) == 500_000
    assert bucket.level(1_000_000) == pytest.approx(0.5)


def test_a_late_stamp_takes_nothing_from_an_admission_made() -> None:
    bucket = TokenBucket(1000, 10, 0, tokens=5)
    assert bucket.take(10, 5_000_000) == 5_000_000
    before = bucket.level(5_000_000)
    assert not bucket.insert(1, 4_000_000)
    assert bucket.level(5_000_000) == before
    assert bucket.take(1, 4_000_000) is None
    assert bucket.ready_at(1) == 6_000_000


def test_a_stamp_older_than_all_that_is_remembered_counts_as_come_with_the_last() -> None:
    bucket = TokenBucket(1e9, 10, NS)
    assert bucket.take(1, NS - 1) == NS
    for i in range(3000):
        assert bucket.take(1, 2 * NS + i) == 2 * NS + i
    assert not bucket.insert(1, 2 * NS - 1)
    assert bucket.take(1, 2 * NS - 1) == 2 * NS + 2999
    assert bucket.take(1, 2 * NS + 2500) is not None


@pytest.mark.parametrize("lateness", [0, 1, 1000])
def test_a_debt_is_not_paid_by_the_past(lateness: int) -> None:
    """A batch bigger than b went because the bucket was full: nobody may empty it before that."""
    bucket = TokenBucket(1000, 10, 0)
    assert bucket.take(25, NS) == NS
    assert not bucket.insert(1, NS - lateness - 1) or lateness == 1000 * 1000
    assert bucket.level(NS) == -15


# --- batches --------------------------------------------------------------------------------------


def test_a_batch_bigger_than_the_bucket_goes_when_it_is_full_and_leaves_a_debt() -> None:
    bucket = TokenBucket(1000, 10, 0, tokens=0)
    assert bucket.ready_at(25) == bucket.ready_at(10) == 10_000_000
    assert bucket.take(25, 9_999_000) is None
    assert bucket.take(25, 10_000_000) == 10_000_000
    assert bucket.level(10_000_000) == -15
    assert bucket.available(10_000_000) == 0
    assert bucket.ready_at(1) == 26_000_000
    assert bucket.ready_at(25) == 35_000_000
    assert bucket.take(1, 25_999_000) is None
    assert bucket.take(1, 26_000_000) == 26_000_000


@pytest.mark.parametrize(
    ("tokens", "count", "taken"),
    [
        pytest.param(10, 10, True, id="all-of-it"),
        pytest.param(10, 11, True, id="one-more-than-it-holds"),
        pytest.param(9.5, 11, False, id="more-than-it-holds-and-not-full"),
        pytest.param(9.5, 10, False, id="half-a-token-short"),
        pytest.param(9.5, 9, True, id="what-is-there"),
        pytest.param(-5, 1, False, id="in-debt"),
    ],
)
def test_a_batch_is_taken_whole_or_not_at_all(tokens: float, count: int, taken: bool) -> None:
    bucket = TokenBucket(1000, 10, 0, tokens=tokens)
    assert (bucket.take(count, 0) is not None) is taken
    assert bucket.level(0) == (tokens - count if taken else tokens)


@given(
    st.sampled_from([0.001, 1.0, 333.333, 1e6, 1e9]),
    st.sampled_from([1.0, 3.3, 1e3, 1e6 + 0.1, 1e9]),
    st.floats(-2e9, 1e9),
    st.integers(1, 2_000_000_000),
    st.integers(0, TEN_YEARS),
    st.integers(0, 1000),
)
@settings(max_examples=cases(300))
def test_what_ready_at_promises_take_gives(
    rate: float, burst: float, tokens: float, count: int, at: int, later: int
) -> None:
    """At whatever size of bucket, batch and debt; else a held batch would be asked for for ever."""
    bucket = TokenBucket(rate, burst, at, tokens)
    when = bucket.ready_at(count)
    needed = min(count, burst)
    early = when - 2 - int(1e-14 * (abs(tokens) + burst) / (rate / 1e9))
    if early > at:
        assert bucket.level(early) < needed, "and not long after they are there"
    assert bucket.take(count, when + later) == when + later


# --- rescale and split ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "burst", "expected"),
    [
        pytest.param(10, 100, 10, id="a-bigger-bucket-gets-no-tokens"),
        pytest.param(4, 100, 4, id="nor-one-that-was-not-full"),
        pytest.param(10, 5, 5, id="a-smaller-bucket-caps-them"),
        pytest.param(3, 5, 3, id="what-fits-stays"),
        pytest.param(-20, 100, -20, id="a-debt-stays"),
        pytest.param(-20, 1, -20, id="a-debt-bigger-than-the-new-bucket-stays"),
    ],
)
def test_a_rescale_keeps_tokens_and_debt(tokens: float, burst: float, expected: float) -> None:
    bucket = TokenBucket(1000, 10, 0, tokens=tokens)
    bucket.rescale(1, burst, 0)
    assert bucket.level(0) == expected
    assert (bucket.rate, bucket.burst) == (1, burst)
    assert bucket.level(NS) == min(burst, expected + 1)


@pytest.mark.parametrize(
    ("tokens", "left"),
    [pytest.param(7.0, 0.0, id="tokens"), pytest.param(-3.0, -2.0, id="a-debt-stays")],
)
def test_an_emptied_bucket_has_no_tokens(tokens: float, left: float) -> None:
    bucket = TokenBucket(1, 10, 0, tokens)
    bucket.empty(NS)
    assert bucket.level(NS) == left
    assert bucket.level(4 * NS) == left + 3
    assert not bucket.insert(1, NS // 2), "tokens of before are gone for who is read late, too"


def test_a_rescale_counts_the_old_rate_until_now() -> None:
    bucket = TokenBucket(1000, 10, 0, tokens=0)
    bucket.rescale(1, 100, 5_000_000)
    assert bucket.level(5_000_000) == pytest.approx(5)
    assert bucket.level(5_000_000 + NS) == pytest.approx(6)


def test_a_rescale_from_before_the_last_admission_takes_no_time_back() -> None:
    bucket = TokenBucket(1000, 10, 0)
    bucket.take(10, 5_000_000)
    bucket.rescale(1000, 20, 3_000_000)
    assert bucket.level(5_000_000) == 0
    assert bucket.level(6_000_000) == pytest.approx(1)


def test_a_refused_rescale_changes_nothing() -> None:
    bucket = TokenBucket(1000, 10, 0)
    with pytest.raises(ValueError, match="at least 1 message"):
        bucket.rescale(500, 0.5, NS)
    assert (bucket.rate, bucket.burst, bucket.at, bucket.level(0)) == (1000, 10, 0, 10)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(-50, 100), st.integers(0, NS))
def test_a_split_divides_rate_burst_tokens_and_debt(
    weights: list[int], tokens: float, now: int
) -> None:
    bucket = TokenBucket(1000, 100, 0, tokens)
    parts = bucket.split([weight / sum(weights) for weight in weights], now)
    assert math.fsum(part.rate for part in parts) == pytest.approx(1000)
    assert math.fsum(part.burst for part in parts) == pytest.approx(100)
    assert math.fsum(part.level(now) for part in parts) == pytest.approx(bucket.level(now))
    for weight, part in zip(weights, parts, strict=True):
        assert part.at == now
        assert part.level(now) == pytest.approx(bucket.level(now) * weight / sum(weights))


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        pytest.param([], "sum to 1", id="none"),
        pytest.param([0.5, 0.4], "sum to 1", id="less-than-all"),
        pytest.param([0.6, 0.6], "sum to 1", id="more-than-all"),
        pytest.param([1.5, -0.5], "positive", id="a-negative-one"),
        pytest.param([1.0, 0.0], "positive", id="nothing-for-one"),
        pytest.param([float("nan")], "nan", id="nan"),
        pytest.param([0.95, 0.05], "at least 1 message", id="less-than-a-message-for-one"),
    ],
)
def test_a_split_that_cannot_be_is_refused(shares: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenBucket(1000, 10, 0).split(shares, 0)


# --- bad values, and very large and small ones ----------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "burst"),
    [
        pytest.param(0, 10, id="rate-0"),
        pytest.param(-1, 10, id="rate-negative"),
        pytest.param(float("nan"), 10, id="rate-nan"),
        pytest.param(float("inf"), 10, id="rate-infinite"),
        pytest.param(1e-300, 10, id="rate-of-which-a-nanosecond-brings-nothing"),
        pytest.param(5e-324, 10, id="rate-smallest-float"),
        pytest.param(10, 0, id="burst-0"),
        pytest.param(10, 0.999, id="burst-under-a-message"),
        pytest.param(10, -5, id="burst-negative"),
        pytest.param(10, float("nan"), id="burst-nan"),
        pytest.param(10, float("inf"), id="burst-infinite"),
    ],
)
def test_a_bucket_that_admits_nothing_or_everything_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(ValueError):
        TokenBucket(rate, burst, 0)
    with pytest.raises(ValueError):
        TokenBucket(10, 10, 0).rescale(rate, burst, 0)


def test_a_new_bucket_is_full_or_has_what_it_is_given_up_to_its_size() -> None:
    assert TokenBucket(5, 10, 0).level(0) == 10
    assert TokenBucket(5, 10, 0, 0.0).level(0) == 0
    assert TokenBucket(5, 10, 0, 99.0).level(0) == 10
    assert TokenBucket(5, 10, 0, -3.0).level(0) == -3


@pytest.mark.parametrize("start", [0, TEN_YEARS], ids=["at-0", "after-ten-years"])
@pytest.mark.parametrize("rate", [1e-9, 0.001, 1.0, 1e6, 1e9])
@pytest.mark.parametrize("burst", [1.0, 40.0, 1e9])
def test_the_extremes_of_time_rate_and_burst(rate: float, burst: float, start: int) -> None:
    bucket = TokenBucket(rate, burst, start)
    assert bucket.take(1, start) == start
    assert bucket.level(start + TEN_YEARS) <= burst
    assert bucket.take(int(burst), start + TEN_YEARS) in (None, start + TEN_YEARS)
    now = bucket.at + TEN_YEARS
    when = bucket.ready_at(int(burst))
    assert when >= bucket.at
    assert bucket.take(int(burst), when) == when
    taken, first, _ = bucket.take_waiting(5, when, max(now, when))
    assert 0 <= taken <= 5
    assert first >= when


def test_time_that_stands_still_or_goes_back_brings_nothing() -> None:
    bucket = TokenBucket(1000, 2, NS)
    assert bucket.take(2, NS) == NS
    assert bucket.level(NS) == bucket.level(0) == 0
    assert bucket.take(1, NS) is None
    assert bucket.take(1, 0) is None
    assert bucket.take_waiting(1, 0, 0) == (0, NS + 1_000_000, 0.0)
    assert bucket.ready_at(1) == NS + 1_000_000


def test_a_share_of_a_rate_too_small_for_whole_steps_is_not_lost() -> None:
    """Ten thousand takes, each a third of a token apart: rounding must not add up."""
    bucket, taken = TokenBucket(3, 2, 0, tokens=0), 0
    for i in range(1, 10_001):
        taken += bucket.take(1, i * NS // 9) is not None
    assert taken in (3333, 3334)
