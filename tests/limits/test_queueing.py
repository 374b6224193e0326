"""queueing.py against the formula it replaces, slow exact buckets, and seeded simulation."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.limits.queueing import (
    BurstFit,
    Floats,
    drl_penalty,
    mean_token_wait,
    mean_token_wait_eq1,
    smallest_burst,
    split_token_waits,
    token_wait_quantile,
    token_waits,
    unfinished_work_exceeds,
)
from tests.support.cases import cases

# --- references: slow, and written another way -------------------------------------------------


def alternating_series(rho: float, x: float, digits: int = 300) -> Decimal:
    """P(U > x) by COST 242 section 15.1, with more digits than its terms cancel."""
    with localcontext() as context:
        context.prec = digits
        load, point, factorial, total = Decimal(rho), Decimal(x), Decimal(1), Decimal(0)
        step, power = load.exp(), (load * point).exp()
        for j in range(math.floor(x) + 1):
            factorial *= j or 1
            base = load * (j - point)
            total += (base**j if j else 1) / factorial * power
            power /= step
        return 1 - (1 - load) * total


def bucket_loop(
    batches: list[tuple[Fraction, int]], rate: Fraction, burst: Fraction
) -> list[Fraction]:
    """When each batch (time, messages) leaves: a counter of tokens, first come first served."""
    tokens, now, releases = burst, Fraction(0), []
    for time, messages in batches:
        start = max(now, time)
        tokens = min(burst, tokens + rate * (start - now))
        now = start + max(Fraction(0), messages - tokens) / rate
        tokens = max(tokens, Fraction(messages)) - messages
        releases.append(now)
    return releases


def units(times: list[Fraction]) -> list[tuple[Fraction, int]]:
    return [(time, 1) for time in times]


def split_loop(
    times: list[Fraction], owner: list[int], rates: list[Fraction], bursts: list[Fraction]
) -> list[Fraction]:
    releases = [Fraction(0)] * len(times)
    for broker, (rate, burst) in enumerate(zip(rates, bursts, strict=True)):
        mine = [i for i, who in enumerate(owner) if who == broker]
        left = bucket_loop(units([times[i] for i in mine]), rate, burst)
        for i, release in zip(mine, left, strict=True):
            releases[i] = release
    return releases


def waiting(times: list[Fraction], releases: list[Fraction], at: Fraction) -> int:
    """N(t) of SRTM appendix A, right-continuous: released at t no longer waits."""
    return sum(time <= at < release for time, release in zip(times, releases, strict=True))


def accrued(times: list[Fraction], releases: list[Fraction], at: Fraction) -> Fraction:
    """S(t) of SRTM appendix A."""
    return sum(
        (max(Fraction(0), min(at, out) - time) for time, out in zip(times, releases, strict=True)),
        Fraction(0),
    )


def floats(values: list[Fraction]) -> Floats:
    return np.array([float(value) for value in values], dtype=np.float64)


def poisson(seed: int, rate: float, count: int) -> Floats:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


quarters = st.integers(4, 28).map(lambda n: Fraction(n, 4))  # real bursts from 1 to 7
rates_of = st.integers(1, 12).map(lambda n: Fraction(n, 4))
gaps = st.one_of(st.just(0), st.integers(0, 12))  # many batches


@st.composite
def traces(draw: st.DrawFn) -> list[Fraction]:
    now, times = Fraction(0), []
    for gap in draw(st.lists(gaps, max_size=40)):
        now += Fraction(gap, 8)
        times.append(now)
    return times


@st.composite
def splits(
    draw: st.DrawFn,
) -> tuple[list[Fraction], list[int], list[Fraction], list[Fraction]]:
    times = draw(traces())
    brokers = draw(st.integers(1, 4))
    owner = draw(st.lists(st.integers(0, brokers - 1), min_size=len(times), max_size=len(times)))
    rates = draw(st.lists(rates_of, min_size=brokers, max_size=brokers))
    bursts = draw(st.lists(quarters, min_size=brokers, max_size=brokers))
    return times, owner, rates, bursts


# --- the M/D/1 queue ----------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.01, 0.1, 0.5, 0.9, 0.909, 0.99, 0.999])
def test_tail_equals_the_alternating_series(rho: float) -> None:
    points = [0.0, 0.3, 0.999, 1.0, 1.5, 2.0, 7.25, 20.0, 63.7, 100.0, 127.99, 128.0, 128.5, 160.1]
    exact = [float(alternating_series(rho, x, 500)) for x in points]
    assert unfinished_work_exceeds(rho, points) == pytest.approx(exact, rel=2e-13, abs=1e-290)


@pytest.mark.parametrize("x", [500.5, 1000.25])
def test_tail_equals_the_alternating_series_far_out_at_load_0_999(x: float) -> None:
    exact = float(alternating_series(0.999, x, 1100))
    assert float(unfinished_work_exceeds(0.999, x)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("rho", [1e-6, 0.3, 0.909, 0.999])
def test_tail_falls_from_one_to_zero_without_a_step(rho: float) -> None:
    points = np.arange(0, 20_000, 0.25)
    tail = unfinished_work_exceeds(rho, points)
    assert tail[0] == pytest.approx(rho, rel=1e-13)  # PASTA: a share rho finds it busy
    assert (np.diff(tail) <= 1e-15).all()
    assert (tail >= 0).all()
    assert tail[-1] < 1e-15
    edges = np.arange(1.0, 300.0)  # continuous where the formula changes its terms, 128 included
    above, below = (unfinished_work_exceeds(rho, edges + side) for side in (1e-12, -1e-12))
    assert above == pytest.approx(below, rel=1e-5, abs=1e-300)


def test_tail_keeps_shape_and_ends() -> None:
    tail = unfinished_work_exceeds(0.7, [[-1.0, 0.0, 1.0], [-np.inf, 1e9, np.inf]])
    assert tail.shape == (2, 3)
    assert tail[:, 0].tolist() == [1.0, 1.0]
    assert tail[1].tolist() == [1.0, 0.0, 0.0]
    assert unfinished_work_exceeds(0, [-1.0, 0.0]).tolist() == [1.0, 0.0]
    assert unfinished_work_exceeds(0.7, []).shape == (0,)


def replicated(
    rho: float, statistic: Callable[[Floats], list[float]], messages: int = 60_000
) -> tuple[Floats, Floats]:
    """Means and 4 standard errors (99.97 % of Student's t, 39 degrees) of 40 independent runs."""
    runs = [
        statistic(token_waits(poisson(seed, rho, messages), 1.0, 1.0)[messages // 6 :])
        for seed in range(40)
    ]
    return np.mean(runs, axis=0), 4 * np.std(runs, axis=0, ddof=1) / math.sqrt(len(runs))


@pytest.mark.parametrize("rho", [0.5, 1 / 1.1])
def test_theory_lies_in_the_interval_of_a_simulation(rho: float) -> None:
    bursts = [1.0, 1.5, 2.0, 5.0] + ([10.0, 20.0] if rho > 0.9 else [])
    points = np.array(bursts) - 1
    mean, error = replicated(rho, lambda u: [float(np.maximum(u - x, 0).mean()) for x in points])
    exact = np.array([mean_token_wait(rho, 1, burst) for burst in bursts])
    assert (np.abs(mean - exact) < error).all()
    share, error = replicated(rho, lambda u: [float((u > x).mean()) for x in points])
    assert (np.abs(share - unfinished_work_exceeds(rho, points)) < error).all()


def test_simulation_refutes_eq1_for_bursts_above_one() -> None:
    bursts = [2.0, 5.0]
    mean, error = replicated(
        0.5, lambda u: [float(np.maximum(u + 1 - burst, 0).mean()) for burst in bursts]
    )
    eq1 = np.array([mean_token_wait_eq1(0.5, 1, burst) for burst in bursts])
    assert (eq1 - mean > error).all()


@pytest.mark.parametrize(
    ("rho", "burst", "excess"),
    [
        pytest.param(0.5, 1, 0.0, id="half-load-burst-1-is-exact"),
        pytest.param(0.5, 2, 0.18100, id="half-load-burst-2"),
        pytest.param(0.5, 5, 0.25690, id="half-load-burst-5"),
        pytest.param(0.5, 20, 0.25643, id="half-load-burst-20"),
        pytest.param(0.5, 100, 0.25643, id="half-load-burst-100"),
        pytest.param(0.909, 1, 0.0, id="load-0.909-burst-1-is-exact"),
        pytest.param(0.909, 2, 0.02673, id="load-0.909-burst-2"),
        pytest.param(0.909, 5, 0.03231, id="load-0.909-burst-5"),
        pytest.param(0.909, 20, 0.03231, id="load-0.909-burst-20"),
        pytest.param(0.909, 100, 0.03231, id="load-0.909-burst-100"),
    ],
)
def test_how_far_eq1_is_above_the_exact_mean(rho: float, burst: float, excess: float) -> None:
    ratio = mean_token_wait_eq1(rho * 50, 50, burst) / mean_token_wait(rho * 50, 50, burst)
    assert ratio - 1 == pytest.approx(excess, abs=1e-5)


loads = st.floats(0.01, 0.999)
bursts_from_one = st.floats(1, 300)


@settings(deadline=None, max_examples=60)
@given(loads, bursts_from_one)
def test_mean_is_the_integral_of_the_tail(rho: float, burst: float) -> None:
    def above(edges: Floats) -> float:
        nodes, weights = np.polynomial.legendre.leggauss(24)
        middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
        return float(
            (unfinished_work_exceeds(rho, middle + np.outer(nodes, half)).T @ weights) @ half
        )

    # smooth between whole numbers only, and negligible after 40 more orders of e
    end = burst - 1 + 40 / -math.log(rho) + 40
    edges = np.concatenate([[burst - 1], np.arange(math.floor(burst), end)])
    assert mean_token_wait(rho * 7, 7, burst) == pytest.approx(
        above(edges) / 7, rel=1e-9, abs=1e-280
    )


@settings(deadline=None, max_examples=60)
@given(loads, bursts_from_one, st.floats(0, 50))
def test_mean_falls_with_the_burst_and_eq1_is_never_below_it(
    rho: float, burst: float, more: float
) -> None:
    mean = mean_token_wait(rho, 1, burst)
    assert mean_token_wait(rho, 1, burst + more) <= mean * (1 + 1e-9)
    assert mean_token_wait_eq1(rho, 1, burst) >= mean * (1 - 1e-9)


def test_large_bursts_are_valid_and_monotone() -> None:
    means = [mean_token_wait(999.0, 1000.0, burst) for burst in range(1, 12_000, 250)]
    assert (np.diff(means) < 0).all()
    assert means[0] == pytest.approx(0.999 / (2 * 0.001) / 1000)  # Pollaczek-Khinchine
    assert 0 < means[-1] < 1e-10
    assert mean_token_wait(999.0, 1000.0, 1e9) == 0.0


@settings(deadline=None, max_examples=60)
@given(loads, bursts_from_one, st.floats(0, 0.9999))
def test_quantile_inverts_the_tail(rho: float, burst: float, p: float) -> None:
    wait = token_wait_quantile(rho * 20, 20, burst, p)
    none = 1 - float(unfinished_work_exceeds(rho, burst - 1))
    if wait == 0:
        assert none >= p - 1e-12
    else:
        assert none < p
        tail = float(unfinished_work_exceeds(rho, burst - 1 + wait * 20))
        assert tail == pytest.approx(1 - p, rel=1e-9)
    assert token_wait_quantile(rho * 20, 20, burst, p / 2) <= wait
    assert token_wait_quantile(rho * 20, 20, burst + 1, p) <= wait


def test_quantile_lies_in_the_interval_of_a_simulation() -> None:
    percentiles = [0.5, 0.9, 0.99]
    waits, error = replicated(
        1 / 1.1, lambda u: [float(w) for w in np.quantile(np.maximum(u - 4, 0), percentiles)]
    )
    exact = [token_wait_quantile(1, 1.1, 5, p) * 1.1 for p in percentiles]
    assert (np.abs(waits - exact) < error + 1e-9).all()


def test_no_arrivals_no_wait() -> None:
    assert mean_token_wait(0, 10, 1) == mean_token_wait_eq1(0, 10, 1) == 0
    assert token_wait_quantile(0, 10, 1, 0.99) == 0
    assert token_wait_quantile(9, 10, 1, 0) == 0


# --- any arrivals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrivals", "rate", "burst", "waits"),
    [
        pytest.param([], 1, 1, [], id="nobody"),
        pytest.param([5.0], 1, 1, [0.0], id="the-bucket-starts-full"),
        pytest.param([0.0, 0.0, 0.0], 2, 1, [0, 0.5, 1], id="a-batch-waits-one-by-one"),
        pytest.param([0.0, 0.0, 0.0], 2, 3, [0, 0, 0], id="a-batch-of-the-burst-passes"),
        pytest.param([0.0, 0.0, 0.0], 2, 2.5, [0, 0, 0.25], id="half-a-token-halves-the-wait"),
        pytest.param([0.0, 0.5, 1.0], 2, 1, [0, 0, 0], id="exactly-the-rate"),
        pytest.param([0.0, 0.25, 9.0, 9.0], 2, 1, [0, 0.25, 0, 0.5], id="tokens-do-not-pile-up"),
        pytest.param([1.7e9, 1.7e9], 10, 1, [0, 0.1], id="unix-time"),
        pytest.param(
            [0.0, 2.0**23, 2.0**23 + 2.0**-18],
            1e5 / 7,
            1,
            [0, 0, 7e-5 - 2.0**-18],
            id="after-long-idle-no-digits-are-lost",
        ),
        pytest.param([-3.0, -3.0], 10, 1, [0, 0.1], id="negative-times"),
    ],
)
def test_waits_in_one_bucket(
    arrivals: list[float], rate: float, burst: float, waits: list[float]
) -> None:
    assert token_waits(np.array(arrivals), rate, burst).tolist() == pytest.approx(waits)


def test_a_trace_at_exactly_the_contract_has_no_wait_by_rounding() -> None:
    for gap in (0.1, 0.3, 0.7):
        arrivals = np.repeat(np.arange(10_000) * gap, 3)
        assert not token_waits(arrivals, 3 / gap, 3).any()


def test_unix_times_lose_nothing_that_they_hold() -> None:
    times = np.round(poisson(3, 10_000, 50_000) * 2**20) / 2**20  # exact at 1.7e9 as well
    waits = token_waits(times, 11_000, 1)
    assert token_waits(1.7e9 + times, 11_000, 1) == pytest.approx(waits, abs=1e-12)


@settings(deadline=None, max_examples=cases(200))
@given(splits())
def test_waits_equal_a_bucket_loop(
    case: tuple[list[Fraction], list[int], list[Fraction], list[Fraction]],
) -> None:
    times, owner, rates, bursts = case
    one = bucket_loop(units(times), sum(rates, Fraction(0)), sum(bursts, Fraction(0)))
    got = token_waits(floats(times), float(sum(rates)), float(sum(bursts)))
    assert got == pytest.approx(floats(one) - floats(times), abs=1e-12)
    brokers = np.array(owner, dtype=np.int64)
    split = split_token_waits(floats(times), brokers, floats(rates), floats(bursts))
    expected = floats(split_loop(times, owner, rates, bursts)) - floats(times)
    assert split == pytest.approx(expected, abs=1e-12)
    penalty = drl_penalty(floats(times), brokers, floats(rates), floats(bursts))
    assert penalty == pytest.approx(float((split - got).mean()) if times else 0.0, abs=1e-12)
    assert penalty >= -1e-12


@settings(deadline=None, max_examples=cases(200))
@given(splits(), st.integers(0, 4), st.integers(0, 4))
def test_proposition_1_at_every_instant(
    case: tuple[list[Fraction], list[int], list[Fraction], list[Fraction]],
    more_rate: int,
    more_burst: int,
) -> None:
    """Exact arithmetic: N(t), S(t) and the waits of the first m, with shares up to the whole."""
    times, owner, rates, bursts = case
    one = bucket_loop(
        units(times), sum(rates, Fraction(more_rate, 8)), sum(bursts, Fraction(more_burst, 3))
    )
    split = split_loop(times, owner, rates, bursts)
    instants = sorted({*times, *one, *split})
    for at in instants + [(a + b) / 2 for a, b in pairwise(instants)]:  # steps, and between them
        assert waiting(times, split, at) >= waiting(times, one, at)
        assert accrued(times, split, at) >= accrued(times, one, at)
    for m in range(len(times)):
        assert sum(split[: m + 1]) >= sum(one[: m + 1])


def test_what_proposition_1_does_not_say() -> None:
    # r = 2, b = 2 or twice (1, 1): three messages at once, the last one alone on its broker
    times, owner = np.zeros(3), np.array([0, 0, 1])
    split, one = split_token_waits(times, owner, [1, 1], [1, 1]), token_waits(times, 2, 2)
    assert split.tolist() == [0, 1, 0]
    assert one.tolist() == [0, 0, 0.5]  # single messages and percentiles can win
    assert drl_penalty(times, owner, [1, 1], [1, 1]) > 0  # their sum cannot
    # six messages, then an atomic batch of 5 (<= b_l): summed over messages, the split wins
    now = Fraction(0)
    whole = bucket_loop([*units([now] * 6), (now, 5)], Fraction(2), Fraction(10))
    first = bucket_loop(units([now] * 6), Fraction(1), Fraction(5))
    second = bucket_loop([(now, 5)], Fraction(1), Fraction(5))
    assert sum(whole[:6]) + 5 * whole[6] == Fraction(5, 2)
    assert sum(first) + 5 * second[0] == 1


def test_a_million_arrivals() -> None:
    times = poisson(1, 10_000, 1_000_000)
    waits = token_waits(times, 11_000, 10)
    idle_at, expected = -math.inf, []  # virtual scheduling, as in GCRA
    for time in times.tolist():
        idle_at = max(idle_at, time) + 1 / 11_000
        expected.append(max(0.0, idle_at - time - 10 / 11_000))
    assert waits == pytest.approx(np.array(expected), abs=1e-9)
    owner = np.arange(times.size) % 3
    assert drl_penalty(times, owner, [11_000 / 3] * 3, [10 / 3] * 3) > 0
    fit = smallest_burst(times)
    # the stationary queue agrees: `burst` is where P(U > burst - 1) falls to 1 %
    late = unfinished_work_exceeds(10_000 / fit.rate, fit.burst + np.array([-3.0, 1.0]))
    assert late[0] > 0.01 > late[1]


def test_poisson_penalty_grows_with_the_number_of_brokers() -> None:
    times = poisson(2, 100, 100_000)
    penalties = [
        drl_penalty(times, np.arange(times.size) % k, [110 / k] * k, [20 / k] * k)
        for k in (1, 2, 4, 8)
    ]
    assert penalties[0] == 0
    assert (np.diff(penalties) > 0).all()


# --- fitting a burst to a trace -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrivals", "burst"),
    [
        pytest.param(np.arange(0, 100, 0.1), 1, id="periodic-needs-one"),
        pytest.param(np.repeat(np.arange(100) / 7, 10), 10, id="batches-need-their-size"),
        pytest.param(1.7e9 + np.repeat(np.arange(100.0), 10), 10, id="batches-in-unix-time"),
    ],
)
def test_smallest_burst_of_a_regular_trace(arrivals: Floats, burst: int) -> None:
    fit = smallest_burst(arrivals)
    later = np.count_nonzero(arrivals > arrivals[0])
    assert fit.rate == pytest.approx(1.1 * later / (arrivals[-1] - arrivals[0]))
    assert (fit.burst, fit.proposed_burst, fit.late_share) == (burst, 2 * burst, 0)


@settings(deadline=None, max_examples=cases(200))
@given(traces().filter(lambda times: len(set(times)) > 1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_smallest_burst_is_smallest(times: list[Fraction], percentile: float) -> None:
    trace = floats(times)
    fit = smallest_burst(trace, percentile=percentile)

    def late(burst: int) -> float:
        return float((token_waits(trace, fit.rate, burst) > 0).mean())

    assert isinstance(fit, BurstFit)
    assert fit.late_share == late(fit.burst) <= 1 - percentile + 1e-12
    assert fit.burst == 1 or late(fit.burst - 1) > 1 - percentile + 1e-12


# --- bad input ----------------------------------------------------------------------------------

two = np.array([0.0, 1.0])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        pytest.param(lambda: mean_token_wait(1, 0, 1), "rate .*got 0", id="no-rate"),
        pytest.param(lambda: mean_token_wait(1, math.nan, 1), "rate .*got nan", id="nan-rate"),
        pytest.param(lambda: mean_token_wait(1, 2, 0.5), "burst .*got 0.5", id="burst-under-one"),
        pytest.param(lambda: mean_token_wait(1, 2, math.nan), "burst .*got nan", id="nan-burst"),
        pytest.param(lambda: mean_token_wait(2, 2, 5), "load .*got 1.0", id="mean-at-load-one"),
        pytest.param(lambda: mean_token_wait(-1, 2, 5), "load .*got -0.5", id="negative-load"),
        pytest.param(lambda: mean_token_wait_eq1(3, 2, 5), "load .*got 1.5", id="eq1-overload"),
        pytest.param(
            lambda: token_wait_quantile(3, 2, 5, 0.9), "load .*got 1.5", id="quantile-overload"
        ),
        pytest.param(lambda: token_wait_quantile(1, 2, 5, 1), "p must .*got 1", id="p-of-one"),
        pytest.param(
            lambda: token_wait_quantile(1, 2, 5, 99), "p must .*got 99", id="p-in-percent"
        ),
        pytest.param(lambda: unfinished_work_exceeds(1.0, 3), "load .*got 1.0", id="tail-overload"),
        pytest.param(lambda: unfinished_work_exceeds(math.nan, 3), "load .*got nan", id="nan-load"),
        pytest.param(
            lambda: unfinished_work_exceeds(0.5, [1, math.nan]), "x has a NaN", id="nan-x"
        ),
        pytest.param(lambda: token_waits(two, -1, 1), "rate .*got -1", id="negative-rate"),
        pytest.param(lambda: token_waits(two, math.inf, 1), "rate .*got inf", id="infinite-rate"),
        pytest.param(lambda: token_waits(two[::-1], 1, 1), "got 0.0 after 1.0 at", id="unsorted"),
        pytest.param(
            lambda: token_waits(np.array([0, math.nan]), 1, 1), "got nan .* index 1", id="nan-time"
        ),
        pytest.param(
            lambda: token_waits(np.array([math.inf]), 1, 1), "got inf at", id="infinite-time"
        ),
        pytest.param(lambda: token_waits(np.eye(2), 1, 1), "shape \\(2, 2\\)", id="matrix"),
        pytest.param(
            lambda: split_token_waits(two, np.array([0]), [1], [1]),
            "\\(1,\\) for 2",
            id="few-owners",
        ),
        pytest.param(
            lambda: split_token_waits(two, two, [1], [1]),
            "float64",
            id="fractional-owners",
        ),
        pytest.param(
            lambda: split_token_waits(two, np.array([0, 1]), [1], [1]),
            "0..0 .*got 0..1",
            id="unknown-broker",
        ),
        pytest.param(
            lambda: split_token_waits(two, np.array([0, -1]), [1], [1]), "got -1", id="minus-one"
        ),
        pytest.param(
            lambda: split_token_waits(two, np.array([0, 0]), [1, 1], [1]), "one length", id="ragged"
        ),
        pytest.param(
            lambda: split_token_waits(two, np.array([0, 0]), [1, 1], [1.5, 0.5]),
            r"burst .*got 0\.5\): .*fewer sub-buckets",
            id="more-brokers-than-burst",
        ),
        pytest.param(
            lambda: drl_penalty(two, np.array([0, 0]), [], []), "\\(0,\\)", id="no-buckets"
        ),
        pytest.param(lambda: smallest_burst(two, headroom=1), "headroom .*got 1", id="no-headroom"),
        pytest.param(lambda: smallest_burst(two, percentile=99), "got 99", id="percent"),
        pytest.param(lambda: smallest_burst(np.zeros(5)), "got 5 arrivals", id="no-time-spanned"),
        pytest.param(lambda: smallest_burst(np.array([])), "got 0 arrivals", id="empty-trace"),
        pytest.param(lambda: smallest_burst(two[::-1]), "sorted", id="unsorted-trace"),
    ],
)
def test_bad_input_is_one_clear_line(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert ":" in str(caught.value)  # what is wrong: how to mend it
