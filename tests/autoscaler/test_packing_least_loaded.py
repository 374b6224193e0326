"""Least-loaded packing against the printed algorithm, and who gets which group."""

import math
import sys
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.autoscaler.packing import Bin, Bins, Filled, Item, keep_owners, least_loaded_ffd
from srtm.autoscaler.packing import least_loaded as packed_by_share
from srtm.autoscaler.packing.problem import SLACK, fits, moved_rate
from srtm.autoscaler.packing.ranking import Ranking
from tests.autoscaler.test_packing_any_fit import (
    NONE,
    assert_sound,
    consumers,
    group,
    problems,
    shown,
)


def as_printed(items: list[Item], new: Bin) -> list[tuple[int, ...]]:
    """ICCBDC 2022, appendix: from one bin on, least loaded first, everything anew for each bin."""
    ordered = sorted(items, key=lambda item: (-item.rate, item.id))
    count = 1
    while True:
        groups: list[list[Item]] = [[] for _ in range(count)]
        for item in ordered:
            for each in sorted(groups, key=lambda each: math.fsum(i.rate for i in each)):
                rate = sum(i.rate for i in each) + item.rate
                lag = sum(i.lag for i in each) + item.lag
                if fits(rate, lag, new):
                    each.append(item)
                    break
            else:
                count += 1
                break
        else:
            return sorted(tuple(sorted(i.id for i in each)) for each in groups if each)


@given(
    drawn=st.lists(st.tuples(st.integers(0, 10), st.integers(0, 100)), min_size=1, max_size=14),
    limit=st.sampled_from([NONE, 100.0]),
)
def test_starting_at_the_lower_bound_changes_nothing(
    drawn: list[tuple[int, int]], limit: float
) -> None:
    items = [Item(i, rate, lag) for i, (rate, lag) in enumerate(drawn)]
    bins = Bins(Bin(None, 10, limit))
    packed = least_loaded_ffd(items, bins)
    assert sorted(i for _, i in shown(packed)) == as_printed(items, bins.new)


@pytest.mark.parametrize(
    ("items", "bins", "expected"),
    [
        pytest.param(group(3, 3, 3), consumers(), [(0, 1, 2)], id="one-is-enough"),
        pytest.param(group(6, 5, 3, 2), consumers(), [(0, 3), (1, 2)], id="the-least-loaded-takes"),
        pytest.param(
            group(1, 1, 1, lags=[60, 60, 30]), consumers(lag=100), [(0, 2), (1,)], id="by-the-lag"
        ),
        pytest.param(group(12, 3, 3), consumers(), [(1, 2), (0,)], id="one-exceeds-a-bin"),
        pytest.param(
            group(1, 1, lags=[300, 3]), consumers(lag=100), [(1,), (0,)], id="one-by-its-lag"
        ),
        pytest.param(group(7, 5, 1), consumers(12, 6), [(0, 2), (1,)], id="by-share-of-its-own"),
    ],
)
def test_least_loaded_by_hand(
    items: list[Item], bins: Bins, expected: list[tuple[int, ...]]
) -> None:
    assert [i for _, i in shown(least_loaded_ffd(items, bins))] == expected


def test_least_loaded_looks_at_both_rooms() -> None:
    """Shares of (rate, lag): 0: 40 % and 90 %, 1: 50 % and 0, 2: 30 % and 0, 3: 60 % and 0."""
    items = group(4, 5, 3, 6, lags=[90, 0, 0, 0])
    bins = consumers(lag=100)
    by_share = [i for _, i in shown(packed_by_share(items, bins))]
    by_rate = [i for _, i in shown(least_loaded_ffd(items, bins))]
    assert by_share == [(0, 1), (2, 3)]
    assert by_rate == [(2, 3), (0, 1)]


def test_oversized_partitions_are_named_and_alone() -> None:
    packed = least_loaded_ffd(group(12, 30, 1, owners="2-1"), consumers(10, 10))
    assert packed.oversized == (0, 1)
    assert shown(packed) == [("c1", (2,)), ("c2", (0,)), (None, (1,))]
    assert packed.exact


def test_one_that_fits_an_existing_consumer_only_does_not_loop() -> None:
    # 9 and 8 fit c1 alone, and only one of them can be there.
    packed = least_loaded_ffd(group(9, 8, 1), consumers(10, new=5))
    assert packed.oversized == (1,)
    assert packed.count == 2


@settings(max_examples=30)
@given(problem=problems(most=40), steps=st.sampled_from([0, 30, 100]))
def test_bisection_is_sound_too(problem: tuple[list[Item], Bins], steps: int) -> None:
    items, bins = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["srtm.autoscaler.packing.least_loaded"], "_STEPS", steps)
        packed = least_loaded_ffd(items, bins)
    assert_sound(packed, items, bins)
    assert packed.count <= 2 * least_loaded_ffd(items, bins).count + 1


# --- who gets which group ---------------------------------------------------------------------


def filled(*groups: tuple[int, ...], room: float = 10) -> list[Filled]:
    return [Filled(Bin(None, room), each) for each in groups]


@pytest.mark.parametrize(
    ("groups", "items", "bins", "expected"),
    [
        pytest.param(
            filled((0,), (1,)),
            group(5, 4, owners="21"),
            consumers(10, 10),
            [("c1", (1,)), ("c2", (0,))],
            id="not-by-index",
        ),
        pytest.param(
            filled((0, 1), (2, 3)),
            group(5, 1, 4, 2, owners="1221"),
            consumers(10, 10),
            [("c1", (0, 1)), ("c2", (2, 3))],
            id="the-larger-rate-stays",
        ),
        pytest.param(
            filled((0, 1), (2,)),
            group(5, 4, 6, owners="121"),
            consumers(10, 10),
            [("c1", (2,)), ("c2", (0, 1))],
            id="not-greedily",
        ),
        pytest.param(
            filled((0,), (1,)),
            group(5, 4, owners="9-"),
            consumers(10),
            [("c1", (0,)), (None, (1,))],
            id="idle-ones-before-new-ones",
        ),
        pytest.param(
            filled((0,)),
            group(8, owners="1"),
            consumers(5, 9),
            [("c2", (0,))],
            id="only-where-it-fits",
        ),
        pytest.param(
            filled((0,), (1,)),
            group(30, 4, owners="2-"),
            consumers(5, 9),
            [("c1", (1,)), ("c2", (0,))],
            id="what-exceeds-all-stays",
        ),
        pytest.param([], [], consumers(5), [], id="nothing"),
    ],
)
def test_keep_owners(
    groups: list[Filled],
    items: list[Item],
    bins: Bins,
    expected: list[tuple[str | None, tuple[int, ...]]],
) -> None:
    assert [(f.bin.consumer, f.items) for f in keep_owners(groups, items, bins)] == expected


def test_a_group_that_only_one_consumer_can_hold_is_not_pushed_out() -> None:
    # 0 could win c1 by its rate, but 1 fits nowhere else.
    bins = Bins(Bin(None, 5), (Bin("c1", 10), Bin("c2", 6)))
    items = group(5, 8, owners="1-")
    groups = [Filled(Bin(None, 5), (0,)), Filled(Bin("c1", 10), (1,))]
    assert [(f.bin.consumer, f.items) for f in keep_owners(groups, items, bins)] == [
        ("c1", (1,)),
        ("c2", (0,)),
    ]


@settings(max_examples=60)
@given(
    drawn=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from("123-"), st.integers(0, 2)), max_size=9
    )
)
@pytest.mark.parametrize("cells", [10**6, 0], ids=["dense", "sparse"])
def test_no_other_choice_moves_less(drawn: list[tuple[int, str, int]], cells: int) -> None:
    items = group(*(rate for rate, _, _ in drawn), owners="".join(owner for _, owner, _ in drawn))
    groups = [tuple(i for i, each in enumerate(drawn) if each[2] == at) for at in range(3)]
    used = filled(*(each for each in groups if each), room=40)
    bins = consumers(40, 40, 40, new=40)
    by_id = {item.id: item for item in items}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srtm.autoscaler.packing.matching._DENSE_CELLS", cells)
        kept = keep_owners(used, items, bins)
    assert sorted(f.items for f in kept) == sorted(f.items for f in used)
    least = min(
        moved_rate([Filled(b, f.items) for b, f in zip(order, used, strict=False)], by_id)
        for order in permutations(bins.existing)
    )
    assert moved_rate(kept, by_id) == least


# --- ranking ----------------------------------------------------------------------------------


@given(
    rooms=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 9)), min_size=1),
    asked=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))),
    small=st.sampled_from([2, 4, 256]),
)
def test_a_ranking_finds_what_a_scan_finds(
    rooms: list[tuple[int, int, int]], asked: list[tuple[int, int, int]], small: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srtm.autoscaler.packing.ranking._BLOCK", small)
        ranking = Ranking()
        keys: dict[int, float] = {}
        for key, rate, lag in rooms:
            keys[ranking.open(key, rate * (1 + SLACK), lag)] = key
        for rate, lag, key in asked:
            fitting = [
                (each, number)
                for number, each in keys.items()
                if each >= key and ranking.rates[number] >= rate and ranking.lags[number] >= lag
            ]
            entry = ranking.first(rate, lag, key)
            assert entry == min(fitting, default=None)
            if entry is not None:
                keys[entry[1]] = (entry[0] * 7 + rate) % 10
                ranking.take(entry, rate, lag, keys[entry[1]])
