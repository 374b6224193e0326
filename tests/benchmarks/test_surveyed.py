"""The packings of Landau's chapter 3: every size once, no bin too full, and cases by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.autoscaler.surveyed import (
    SURVEYED,
    almost_worst_fit,
    bounded,
    harmonic,
    modified_first_fit_decreasing,
)

sizes = st.lists(st.integers(1, 100).map(lambda each: each / 100), max_size=40)


@given(sizes=sizes)
@pytest.mark.parametrize("name", list(SURVEYED))
def test_every_size_is_in_one_bin_that_holds_it(name: str, sizes: list[float]) -> None:
    bins = SURVEYED[name][0](sizes)
    assert sorted(size for held in bins for size in held) == sorted(sizes)
    assert all(held and sum(held) <= 1 + 1e-6 for held in bins)


@given(sizes=sizes)
def test_almost_worst_fit_leaves_no_two_bins_half_empty(sizes: list[float]) -> None:
    assert sum(sum(held) <= 0.5 for held in almost_worst_fit(sizes)) <= 1


def test_almost_worst_fit_takes_the_second_emptiest() -> None:
    assert almost_worst_fit([0.6, 0.7, 0.8, 0.2]) == [[0.6], [0.7, 0.2], [0.8]]
    assert almost_worst_fit([0.6, 0.7, 0.8, 0.4]) == [[0.6, 0.4], [0.7], [0.8]]


def test_a_fourth_bin_closes_the_oldest_or_the_fullest() -> None:
    four = [0.8, 0.9, 0.7, 0.95]
    assert bounded([*four, 0.2], best=True, close_fullest=True)[0] == [0.8, 0.2]
    assert bounded([*four, 0.2], best=True, close_fullest=False)[2] == [0.7, 0.2]


def test_harmonic_fit_keeps_intervals_apart() -> None:
    assert harmonic([0.6, 0.4, 0.5, 0.3, 0.1, 0.1]) == [[0.6], [0.4, 0.5], [0.3], [0.1, 0.1]]


def test_modified_first_fit_decreasing_by_its_steps() -> None:
    # A 0.6 with B 0.4; A 0.55 with the two of C, D and E; the rest first fit.
    found = modified_first_fit_decreasing([0.2, 0.6, 0.25, 0.55, 0.4, 0.3, 0.3])
    assert found == [[0.6, 0.4], [0.55, 0.2, 0.25], [0.3, 0.3]]
    # The two smallest do not fit beside 0.7; the largest that does goes there at the fourth step.
    assert modified_first_fit_decreasing([0.7, 0.2, 0.3]) == [[0.7, 0.3], [0.2]]
