"""Latency sketches: every quantile within 1 % of the exact one, whatever was put in and how."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.limits.sketch import (
    RELATIVE_ACCURACY,
    WINDOW_SECONDS,
    LatencySketch,
    quantiles_of,
)

SECOND = 1_000_000_000
RANKS = (0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)


def exact(values_ns: np.ndarray, rank: float) -> float:
    """The lower quantile in seconds, as DDSketch defines it; under a nanosecond is nothing."""
    value = float(np.sort(values_ns)[math.floor(rank * (len(values_ns) - 1))])
    return value / 1e9 if value >= 1 else 0.0


def check(sketch: LatencySketch, values_ns: np.ndarray, now: int = 0) -> None:
    for found in (sketch.total(now), sketch.recent(now)):
        assert found.count == len(values_ns)
        for rank in RANKS:
            should = exact(values_ns, rank)
            got = found.get_quantile_value(rank)
            assert got == pytest.approx(should, rel=RELATIVE_ACCURACY * (1 + 1e-9)), rank


RANDOM = np.random.default_rng(7)
DISTRIBUTIONS = {
    "exponential": RANDOM.exponential(1e6, 20_000),
    "log-normal": RANDOM.lognormal(math.log(1e6), 2, 20_000),
    "heavy-tailed": 1e4 * (1 + RANDOM.pareto(1.1, 20_000)),
    "uniform": RANDOM.uniform(1, 1e9, 20_000),
    "two-humps": np.concatenate([RANDOM.normal(1e5, 1e3, 9_900), RANDOM.normal(5e9, 1e6, 100)]),
    "constant": np.full(1000, 123_456.0),
    "one-value": np.array([1.0]),
    "nanoseconds": np.arange(1, 200, dtype=float),
    "hours": RANDOM.uniform(1e12, 1e14, 1000),
    "fifteen-decades": 10.0 ** RANDOM.uniform(0, 15, 20_000),
    "mostly-nothing": np.concatenate([np.zeros(9_000), RANDOM.exponential(1e6, 1000)]),
    "nothing": np.zeros(10),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_quantiles_are_within_one_percent(name: str) -> None:
    values = DISTRIBUTIONS[name].astype(np.int64)
    sketch = LatencySketch()
    half = len(values) // 2
    sketch.add_many(values[:half].tolist(), [1] * half)
    for value in values[half:].tolist():
        sketch.add(value, 1)
    check(sketch, values)


@given(
    st.lists(st.tuples(st.integers(0, 10**15), st.integers(1, 5)), max_size=40),
    st.integers(0, 20),
    st.lists(
        st.tuples(st.integers(0, 10**10), st.floats(-1e8, 1e8), st.integers(1, 20)), max_size=4
    ),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_weights_zeros_and_ramps_count_as_their_messages(
    weighted: list[tuple[int, int]],
    zeros: int,
    ramps: list[tuple[int, float, int]],
    folds: list[int],
) -> None:
    sketch = LatencySketch()
    values = [0.0] * zeros
    sketch.add_zeros(zeros)
    for number, (value, count) in enumerate(weighted):
        sketch.add(value, count)
        values += [value] * count
        if number in folds:
            sketch.fold(0)
    for first, step, count in ramps:
        sketch.add_ramp(first, step, count)
        values += [first + step * k for k in range(count)]
    if values:
        check(sketch, np.array(values))
    else:
        assert sketch.total(0).count == 0


def test_a_ramp_is_a_queue_that_gets_its_tokens_one_by_one() -> None:
    ramp, single = LatencySketch(), LatencySketch()
    ramp.add_ramp(5_000_000, 1e6, 1000)
    single.add_many([5_000_000 + k * 1_000_000 for k in range(1000)], [1] * 1000)
    assert ramp.quantiles(0) == single.quantiles(0)
    falling = LatencySketch()
    falling.add_ramp(5_000_000 + 999_000_000, -1e6, 1000)
    assert falling.quantiles(0) == ramp.quantiles(0)


def test_what_lies_under_a_nanosecond_is_nothing() -> None:
    sketch = LatencySketch()
    sketch.add(-5_000_000, 3)  # a clock that was corrected
    sketch.add(0, 2)
    sketch.add_ramp(10, -10.0, 5)
    assert sketch.total(0).count == 10
    assert sketch.quantiles(0).p50 == 0.0
    assert sketch.quantiles(0).p99 == 0.0


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=50),
    st.lists(st.integers(0, 10**12), min_size=1, max_size=50),
)
def test_merging_two_sketches_is_the_sketch_of_all(left: list[int], right: list[int]) -> None:
    one, two, both = LatencySketch(), LatencySketch(), LatencySketch()
    for sketch, values in ((one, left), (two, right), (both, left + right)):
        sketch.add_many(values, [1] * len(values))
    merged, other = one.total(0), two.total(0)
    before = [other.get_quantile_value(rank) for rank in RANKS]
    merged.merge(other)
    assert merged.count == len(left) + len(right)
    for rank in RANKS:
        assert merged.get_quantile_value(rank) == both.total(0).get_quantile_value(rank)
    assert [other.get_quantile_value(rank) for rank in RANKS] == before
    assert one.total(0).count == len(left), "what is handed out is a copy"


def test_the_window_rolls_and_the_total_stays() -> None:
    sketch = LatencySketch()
    counts = {}
    for second in range(0, 200, 5):
        now = second * SECOND
        sketch.add(1_000_000 * (second + 1), 1)
        sketch.fold(now)
        counts[second] = sketch.recent(now).count
        assert sketch.total(now).count == second // 5 + 1
        oldest = sketch.recent(now).get_quantile_value(0)
        begin = max(0, (second // 10 - WINDOW_SECONDS // 10 + 1) * 10)  # to a slice of ten seconds
        assert oldest == pytest.approx((begin + 1) * 1e-3, rel=RELATIVE_ACCURACY)
    assert max(counts.values()) == WINDOW_SECONDS // 5
    assert counts[195] == 12


@pytest.mark.parametrize(
    ("later", "count"),
    [
        pytest.param(0, 1, id="at-once"),
        pytest.param(WINDOW_SECONDS - 10, 1, id="within-the-window"),
        pytest.param(WINDOW_SECONDS, 0, id="past-it-without-anything-new"),
        pytest.param(86_400 * 365, 0, id="a-year-later"),
    ],
)
def test_what_is_old_leaves_the_window_without_a_tick(later: int, count: int) -> None:
    sketch = LatencySketch()
    sketch.add(5_000_000, 1)
    sketch.fold(7 * SECOND)
    assert sketch.recent((7 + later) * SECOND).count == count
    assert sketch.quantiles((7 + later) * SECOND).count == count
    assert sketch.total((7 + later) * SECOND).count == 1


def test_looking_counts_what_has_not_been_folded() -> None:
    for look in (LatencySketch.total, LatencySketch.recent):
        sketch = LatencySketch()
        sketch.add(1_000_000, 2)
        sketch.add_zeros(1)
        sketch.add_ramp(1_000_000, 0.0, 3)
        assert look(sketch, 0).count == 6
        assert look(sketch, 0).count == 6, "once"


def test_nothing_recorded_has_no_quantiles() -> None:
    nothing = LatencySketch().quantiles(0)
    assert (nothing.count, nothing.mean, nothing.p50, nothing.p99) == (0, None, None, None)
    json.dumps(nothing.document(), allow_nan=False)


def test_quantiles_as_a_document() -> None:
    sketch = LatencySketch()
    sketch.add_many([1_000_000, 2_000_000, 3_000_000], [1, 1, 98])
    quantiles = quantiles_of(sketch.total(0))
    assert quantiles.count == 100
    assert quantiles.mean == pytest.approx(0.00297, rel=0.01)
    assert quantiles.p95 == pytest.approx(0.003, rel=0.01)
    document = json.loads(json.dumps(quantiles.document(), allow_nan=False))
    assert document["count"] == 100
    assert document["p99"] == quantiles.p99


def test_a_million_values_keep_no_more_than_their_bins() -> None:
    sketch = LatencySketch()
    for second in range(20):
        values = (10.0 ** RANDOM.uniform(0, 12, 50_000)).astype(np.int64).tolist()
        sketch.add_many(values, [1] * len(values))
        sketch.fold(second * SECOND)
    total = sketch.total(0)
    assert total.count == 1_000_000
    assert len(total._store.bins) <= 2048
