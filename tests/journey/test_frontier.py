"""What is promised of legs together."""

import itertools
import math
import random as randoms
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.journey.convolution import late_if_independent
from srtm.journey.frontier import (
    MOST_POINTS,
    any_of,
    frontier_of,
    least_late,
    together,
)
from srtm.limits.bins import GAMMA, Bins, bins_of, key_of
from tests.support.cases import cases

DURATIONS = st.dictionaries(
    st.integers(key_of(1e-4), key_of(1.0)), st.integers(1, 50), min_size=1, max_size=12
).map(Counter)
LEGS = st.lists(DURATIONS, min_size=1, max_size=3)


def binned(seconds: np.ndarray) -> Bins:
    return bins_of(seconds * 1e9, np.ones(len(seconds), dtype=np.int64))


def share_above(bins: Bins, seconds: float) -> float:
    """A duration counts as above where its bin ends above."""
    return sum(n for key, n in bins.items() if GAMMA**key > seconds) / sum(bins.values())


def test_a_sample_that_stands_for_many_promises_what_it_does_alone() -> None:
    alone = Counter({key_of(0.01): 990, key_of(0.5): 10})
    for_eight = Counter({key: 8 * count for key, count in alone.items()})
    found = frontier_of(for_eight, confidence=0.99, weight=8)
    assert found.late == pytest.approx(frontier_of(alone, confidence=0.99).late)
    assert (found.late >= frontier_of(for_eight, confidence=0.99).late).all()


@given(LEGS, st.floats(1e-3, 3.0))
@settings(max_examples=cases(300))
def test_no_split_of_the_target_promises_more(legs: list[Bins], target: float) -> None:
    """Against every split at the edges of the legs' bins."""
    found = together([frontier_of(bins) for bins in legs]).within(target)
    splits = [
        sum(share_above(bins, edge * (1 + 1e-9)) for bins, edge in zip(legs, edges, strict=True))
        for edges in itertools.product(*([GAMMA**key for key in bins] for bins in legs))
        if sum(edges) <= target
    ]
    assert bool(found) == bool(splits)
    if found:
        assert sum(each.seconds for each in found) <= target + 1e-12
        assert sum(each.late_share for each in found) == pytest.approx(min(splits), abs=1e-9)


@given(LEGS, st.floats(1e-3, 3.0), st.randoms(use_true_random=False))
@settings(max_examples=cases(300))
def test_the_promise_holds_whatever_depends_on_what(
    legs: list[Bins], target: float, random: randoms.Random
) -> None:
    """Each leg is drawn in its own order: sorted, reversed or shuffled against the others."""
    count = 600
    columns = []
    for bins in legs:
        drawn = sorted(GAMMA**key for key, n in bins.items() for _ in range(n))
        column = [drawn[number * len(drawn) // count] for number in range(count)]
        order = random.randrange(3)
        if order == 1:
            column.reverse()
        elif order == 2:
            random.shuffle(column)
        columns.append(np.array(column))
    frontiers = [frontier_of(binned(column * (1 - 1e-9))) for column in columns]
    found = together(frontiers).within(target)
    late = (sum(columns) > target * (1 + 1e-6)).mean()
    assert not found or late <= sum(each.late_share for each in found) + 1e-12


@given(LEGS.filter(lambda legs: len(legs) > 1), st.floats(1e-3, 3.0))
@settings(max_examples=cases(300))
def test_the_least_of_two_needs_not_all_points(legs: list[Bins], target: float) -> None:
    first, last = together([frontier_of(each) for each in legs[:-1]]), frontier_of(legs[-1])
    short, whole = least_late(first, last, target), together([first, last]).within(target)
    assert bool(short) == bool(whole)
    assert sum(each.late_share for each in short) == pytest.approx(
        sum(each.late_share for each in whole)
    )


def test_a_sample_promises_less_than_it_shows() -> None:
    """Of 1,000 messages none took longer than the longest; of all there are, some may."""
    bins = binned(np.linspace(0.001, 0.01, 1000))
    shown, promised = frontier_of(bins), frontier_of(bins, confidence=0.99)
    assert shown.late[-1, 0] == 0
    assert 0.004 < promised.late[-1, 0] < 0.03
    assert len(promised.seconds) <= len(shown.seconds)


def test_a_sample_breaks_its_promise_no_more_often_than_its_confidence_says() -> None:
    rng = np.random.default_rng(4)
    broken = 0
    for _ in range(200):
        drawn = 0.01 * rng.weibull(0.7, 300)
        frontier = frontier_of(binned(drawn), confidence=0.9)
        late = np.exp(-((frontier.seconds[:, 0] / 0.01) ** 0.7))  # Weibull's
        broken += bool((late > frontier.late[:, 0] + 1e-12).any())
    assert broken <= 20


def test_legs_with_many_bins_are_thinned_where_it_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    legs = [frontier_of(binned(rng.lognormal(-5, 2.5, 100_000))) for _ in range(2)]
    assert all(len(leg.seconds) > MOST_POINTS for leg in legs)
    thinned, exact = together(legs).within(2.0), least_late(*legs, 2.0)
    late, least = (sum(each.late_share for each in found) for found in (thinned, exact))
    assert least <= late <= least * 1.05


def test_any_of_several_is_at_least_as_good_as_each() -> None:
    quick, slow = (
        frontier_of(Counter({key_of(0.01): 99, key_of(1.0): 1})),
        frontier_of(Counter({key_of(0.1): 100})),
    )
    either = any_of([quick, slow])
    assert either.within(0.02) == quick.within(0.02)
    assert either.within(0.2) == slow.within(0.2)


def test_nothing_measured_promises_nothing() -> None:
    assert frontier_of(Counter()).within(1.0) == ()
    assert together([frontier_of(Counter()), frontier_of(Counter({0: 1}))]).within(9.0) == ()
    assert frontier_of(Counter({0: 1})).least_seconds(-1.0) is None


def test_a_convolution_is_that_of_independent_legs() -> None:
    rng = np.random.default_rng(6)
    legs = [rng.lognormal(np.log(median), 0.6, 200_000) for median in (0.003, 0.004, 0.05)]
    whole = sum(legs)
    for share in (0.5, 0.9, 0.99, 0.999):
        target = float(np.quantile(whole, share))
        found = late_if_independent([binned(leg) for leg in legs], target)
        assert (whole > 1.02 * target).mean() < found < (whole > 0.98 * target).mean()
    assert math.isnan(late_if_independent([binned(legs[0]), Counter()], 1.0))
    assert late_if_independent([binned(legs[2])], 0.05) == pytest.approx(0.5, abs=0.02)
