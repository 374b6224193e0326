"""The exact packing and the lower bounds, against all packings there are."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.autoscaler.packing import ALGORITHMS, Bin, Bins, Item, Packing, exact, lower_bound
from srtm.autoscaler.packing.bounds import martello_toth
from srtm.autoscaler.packing.problem import fits
from tests.autoscaler.test_packing_any_fit import (
    NONE,
    assert_sound,
    consumers,
    group,
    problems,
    shown,
)
from tests.support.cases import cases


def partitions_of(items: Sequence[Item]) -> Iterator[list[list[Item]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for groups in partitions_of(rest):
        yield [[first], *groups]
        for at in range(len(groups)):
            yield [*groups[:at], [first, *groups[at]], *groups[at + 1 :]]


def holds(room: Bin, items: Sequence[Item]) -> bool:
    return fits(math.fsum(i.rate for i in items), math.fsum(i.lag for i in items), room)


def exceeds_all(item: Item, bins: Bins) -> bool:
    return not any(holds(room, [item]) for room in (bins.new, *bins.existing))


def placements(
    groups: Sequence[list[Item]], bins: Bins, free: tuple[Bin, ...]
) -> Iterator[tuple[int, float]]:
    """(partitions in a bin that they exceed, rate moved) for each way to give groups to bins."""
    if not groups:
        yield 0, 0.0
        return
    first = groups[0]
    alone = exceeds_all(first[0], bins)
    for room in (bins.new, *free):
        misfit = not holds(room, first)
        if misfit and (len(first) > 1 or (not alone and room is not bins.new)):
            continue
        moved = math.fsum(i.rate for i in first if i.consumer not in (None, room.consumer))
        left = tuple(each for each in free if each is not room)
        for misfits, more in placements(groups[1:], bins, left):
            yield misfits + misfit, moved + more


def brute_force(items: Sequence[Item], bins: Bins) -> tuple[int, int, float]:
    """(bins, partitions in a bin that they exceed, rate moved), the least in this order."""
    best = (len(items) + 1, 0, 0.0)
    for groups in partitions_of(items):
        if len(groups) <= best[0]:
            for misfits, moved in placements(groups, bins, bins.existing):
                best = min(best, (len(groups), misfits, moved))
    return best


def found(packed: Packing) -> tuple[int, int]:
    return packed.count, len(packed.oversized)


@settings(max_examples=60)
@given(problem=problems(most=5))
def test_exact_is_the_best_of_all(problem: tuple[list[Item], Bins]) -> None:
    items, bins = problem
    packed = exact(items, bins)
    assert_sound(packed, items, bins)
    assert packed.exact
    if items:
        count, misfits, moved = brute_force(items, bins)
        assert found(packed) == (count, misfits)
        assert packed.moved_rate <= moved * (1 + 1e-5) + 1e-5
        if all(holds(bins.new, [i]) or exceeds_all(i, bins) for i in items):
            assert packed.moved_rate >= moved * (1 - 1e-5) - 1e-5


@settings(max_examples=15)
@given(rates=st.lists(st.integers(1, 11), min_size=6, max_size=7), limit=st.sampled_from([NONE, 9]))
def test_exact_with_seven_partitions(rates: list[int], limit: float) -> None:
    items = [Item(i, rate, 12 - rate if rate > 3 else 1, "c1") for i, rate in enumerate(rates)]
    bins = consumers(10, lag=limit)
    packed = exact(items, bins)
    count, misfits, moved = brute_force(items, bins)
    assert (*found(packed), packed.moved_rate) == pytest.approx((count, misfits, moved))


@settings(max_examples=cases(150))
@given(problem=problems(most=5))
def test_no_packing_has_fewer_bins_than_the_bound(problem: tuple[list[Item], Bins]) -> None:
    items, bins = problem
    if items:
        assert lower_bound(items, bins) <= brute_force(items, bins)[0]


@settings(max_examples=25)
@given(problem=problems(most=9))
def test_bound_exact_heuristic(problem: tuple[list[Item], Bins]) -> None:
    items, bins = problem
    best = exact(items, bins)
    for name, pack in ALGORITHMS.items():
        packed = pack(items, bins)
        assert packed.lower_bound == best.lower_bound <= best.count <= packed.count, name
        if packed.count == best.count:
            assert len(best.oversized) <= len(packed.oversized), name


def test_a_packing_that_no_heuristic_behind_it_finds() -> None:
    # Three bins of 20 are full to the brim: (7 10 3) (9 3 8) (6 9 5).
    items, bins = group(7, 10, 3, 9, 3, 8, 6, 9, 5), consumers(new=20)
    starts = ("best-fit-decreasing", "least-loaded", "mbfp", "mwf")
    assert [ALGORITHMS[name](items, bins).count for name in starts] == [4] * 4
    packed = exact(items, bins)
    assert (packed.count, packed.exact) == (3, True)


def test_a_partition_that_needs_no_room_needs_a_bin_all_the_same() -> None:
    """Its lag is no load where lag has no limit."""
    items = [Item(0, 3.0, 0.0), Item(1, 3.0, 0.0), Item(2, 11.0, 0.0), Item(3, 0.0, 1.0)]
    packed = exact(items, consumers(13, 5, new=10))
    assert (packed.count, packed.oversized) == (2, ())


def test_no_partition_is_in_a_bin_that_it_exceeds_without_need() -> None:
    """Three bins are proved to be the fewest by each heuristic that gives 12 one of 10."""
    packed = exact(group(2, 2, 4, 12, 6, owners="-4---"), consumers(8, 5, 5, 13))
    assert (packed.count, packed.oversized, packed.exact) == (3, (), True)


def test_consumers_come_before_moves_and_moves_before_balance() -> None:
    # All in c1 would be 12 of 10. Least moved with two bins: 2 goes; evenly: 6 + 2 and 4.
    packed = exact(group(6, 4, 2, owners="111"), consumers(10, 10))
    assert shown(packed) == [("c1", (0, 1)), ("c2", (2,))]
    # Two half empty consumers become one, though that moves 4.
    packed = exact(group(5, 4, owners="12"), consumers(10, 10))
    assert shown(packed) == [("c1", (0, 1))]
    # Nobody moves and two bins are needed: of all such, the most even one.
    packed = exact(group(6, 5, 2, 2, owners="12--"), consumers(10, 10))
    assert shown(packed) == [("c1", (0, 2)), ("c2", (1, 3))]


def test_evenness_is_the_share_of_each_consumer_s_own_rate() -> None:
    packed = exact(group(4, 4, 4), consumers(20, 7, new=8))
    assert shown(packed) == [("c1", (0, 1, 2))]
    packed = exact(group(7, 5, 5, owners="12-"), consumers(15, 10))
    assert shown(packed) == [("c1", (0, 2)), ("c2", (1,))]


def test_idle_consumers_are_used_before_new_ones() -> None:
    packed = exact(group(9, 9), consumers(10, 10, 10))
    assert [consumer for consumer, _ in shown(packed)] == ["c1", "c2"]


def test_a_partition_that_only_one_consumer_can_hold_has_it() -> None:
    # First fit lets the first one take c1, and 9 stands alone in a new consumer of 5.
    items, bins = group(4, 9, owners="1-"), consumers(10, new=5)
    assert ALGORITHMS["first-fit"](items, bins).oversized == (1,)
    packed = exact(items, bins)
    assert shown(packed) == [("c1", (1,)), (None, (0,))]
    assert packed.oversized == ()


def test_when_the_time_is_up_the_heuristic_s_answer_stays() -> None:
    items = [Item(i, 3 + (i * 37 % 100) / 19) for i in range(40)]
    packed = exact(items, consumers(), time_limit=1e-6)
    assert_sound(packed, items, consumers())
    best = min(ALGORITHMS[name](items, consumers()).count for name in ("mwf", "least-loaded"))
    assert packed.lower_bound <= packed.count <= best
    assert packed.exact == (packed.gap == 0)


# --- bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "bound"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([0, 0], 0, id="zeros"),
        pytest.param([5, 5, 5], 2, id="the-continuous-bound"),
        pytest.param([6, 6, 6], 3, id="each-over-half"),
        pytest.param([7, 6, 4, 4], 3, id="what-is-left-by-seven-holds-no-four"),
        pytest.param([5, 5, 5, 5], 2, id="halves-pair-up"),
        pytest.param([4, 4, 4], 2, id="rounded-up"),
    ],
)
def test_martello_and_toth_s_bound(sizes: list[float], bound: int) -> None:
    assert martello_toth(sizes, 10) == bound


@given(sizes=st.lists(st.integers(1, 10), max_size=12), room=st.just(10))
def test_it_is_at_least_the_continuous_bound(sizes: list[int], room: int) -> None:
    bound = martello_toth(sorted(sizes, reverse=True), room)
    assert bound >= math.ceil(sum(sizes) / room - 1e-6)
    assert bound >= sum(size > 5 for size in sizes)


@pytest.mark.parametrize(
    ("items", "bins", "bound"),
    [
        pytest.param([], consumers(), 0, id="nothing"),
        pytest.param(group(0, 0), consumers(), 1, id="idle-partitions-need-a-consumer"),
        pytest.param(group(10, 10), consumers(20), 1, id="a-large-consumer-counts"),
        pytest.param(group(9, 9, 9, 9), consumers(20), 3, id="large-ones-first-then-new-ones"),
        pytest.param(group(4, 4), consumers(5), 1, id="a-small-consumer-does-not"),
        pytest.param(group(30, 2, 2), consumers(), 2, id="oversized-ones-are-alone"),
        pytest.param(group(30, 40), consumers(), 2, id="nothing-but-oversized-ones"),
        pytest.param(group(1, 1, lags=[60, 60]), consumers(lag=100), 2, id="the-lag-decides"),
        pytest.param(group(8, 8, lags=[60, 1]), consumers(lag=100), 2, id="the-rate-decides"),
        pytest.param(group(15, 15), consumers(20, new=10), 1, id="weak-over-a-new-consumer-s-room"),
    ],
)
def test_the_lower_bound(items: list[Item], bins: Bins, bound: int) -> None:
    assert lower_bound(items, bins) == bound


def test_one_consumer_without_a_limit_lifts_the_bound_by_lag() -> None:
    bins = Bins(Bin(None, 10, 100), (Bin("c1", 10),))
    assert lower_bound(group(1, 1, lags=[90, 90]), bins) == 1


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_a_bin_that_is_full_but_for_rounding_is_one_bin(scale: float) -> None:
    items = [Item(i, 0.1 * scale) for i in range(10)]
    bins = Bins(Bin(None, math.fsum(pair[0] for pair in pairwise([0.1 * scale] * 11))))
    for name, pack in ALGORITHMS.items():
        assert pack(items, bins).count == 1, name
