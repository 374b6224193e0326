"""The bounded search for fewer consumers, against every way to share partitions out."""

import itertools

import numpy as np
import pytest

from srtm.autoscaler.packing import Bin, Bins, Item, few, least_loaded_ffd

NEW = Bins(Bin(None, 10.0))


def least(rates: list[float]) -> int:
    """By trying every way."""
    for count in range(1, len(rates) + 1):
        for owners in itertools.product(range(count), repeat=len(rates)):
            loads = np.bincount(owners, weights=rates, minlength=count)
            if loads.max() <= 10.0 + 1e-9:
                return count
    raise AssertionError


@pytest.mark.parametrize("seed", range(30))
def test_no_packing_has_fewer(seed: int) -> None:
    random = np.random.default_rng(seed)
    rates = [float(rate) for rate in random.uniform(1.0, 7.0, int(random.integers(2, 7)))]
    items = [Item(number, rate) for number, rate in enumerate(rates)]
    packing = few(items, NEW)
    assert packing.count == least(rates)
    assert sorted(n for each in packing.filled for n in each.items) == list(range(len(rates)))
    for each in packing.filled:
        assert sum(rates[n] for n in each.items) <= 10.0 + 1e-6


def test_it_finds_what_the_largest_first_do_not() -> None:
    """5 + 5, 4 + 3 + 3, 4 + 3 + 3; the largest first, each to the least loaded, need four."""
    rates = [5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 3.0, 3.0]
    items = [Item(number, rate, consumer="a") for number, rate in enumerate(rates)]
    assert few(items, NEW).count == 3
    bins = Bins(Bin(None, 10.0), (Bin("a", 10.0),))
    assert [each.bin.consumer for each in few(items, bins).filled] == ["a", None, None]


def test_consumers_that_differ_and_what_is_too_big_are_left_to_ffd() -> None:
    items = [Item(0, 5.0), Item(1, 12.0)]
    unequal = Bins(Bin(None, 10.0), (Bin("a", 8.0),))
    assert few(items, NEW) == least_loaded_ffd(items, NEW)
    assert few(items[:1], unequal) == least_loaded_ffd(items[:1], unequal)


def test_many_partitions_end_soon() -> None:
    random = np.random.default_rng(3)
    items = [Item(n, float(rate)) for n, rate in enumerate(random.uniform(2, 5, 200))]
    packing = few(items, NEW)
    assert packing.lower_bound <= packing.count <= least_loaded_ffd(items, NEW).count
