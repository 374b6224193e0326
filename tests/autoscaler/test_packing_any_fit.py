"""The packings that all have one signature: Landau's, least-loaded ones and the exact one."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.packing import ALGORITHMS, Algorithm, Bin, Bins, Item, Packing, exact
from srtm.autoscaler.packing.any_fit import AS_GIVEN, DECREASING
from srtm.autoscaler.packing.modified import MODIFIED

NONE = math.inf
FITTING = [
    name for name in AS_GIVEN | DECREASING if name not in ("next-fit", "next-fit-decreasing")
]
HEURISTICS = {name: pack for name, pack in ALGORITHMS.items() if name != "exact"}


def group(*rates: float, owners: str | None = None, lags: Sequence[float] = ()) -> list[Item]:
    """Partition i has rates[i]; owners "1-2" means that 0 is with c1, 1 with nobody, 2 with c2."""
    names = [None if each == "-" else f"c{each}" for each in owners or "-" * len(rates)]
    given_lags = lags or [0.0] * len(rates)
    return [
        Item(i, rate, lag, name)
        for i, (rate, lag, name) in enumerate(zip(rates, given_lags, names, strict=True))
    ]


def consumers(*rates: float, new: float = 10, lag: float = NONE) -> Bins:
    """c1, c2, ... with these rates; each and the new one with the same room for lag."""
    existing = tuple(Bin(f"c{i}", rate, lag) for i, rate in enumerate(rates, 1))
    return Bins(Bin(None, new, lag), existing)


def shown(packing: Packing) -> list[tuple[str | None, tuple[int, ...]]]:
    return [(each.bin.consumer, tuple(sorted(each.items))) for each in packing.filled]


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        pytest.param("next-fit", [(0,), (1, 2), (3, 4, 5)], id="next-looks-at-the-last-one-only"),
        pytest.param("first-fit", [(0, 2, 3, 5), (1, 4)], id="first"),
        pytest.param("best-fit", [(0, 3, 4), (1, 2, 5)], id="best-fills-the-fuller-one"),
        pytest.param("worst-fit", [(0, 2, 3, 5), (1, 4)], id="worst-fills-the-emptier-one"),
        pytest.param("next-fit-decreasing", [(1,), (0, 3, 4), (2, 5)], id="next-decreasing"),
        pytest.param("first-fit-decreasing", [(1, 4), (0, 2, 3, 5)], id="first-decreasing"),
        pytest.param("best-fit-decreasing", [(1, 4), (0, 2, 3, 5)], id="best-decreasing"),
        pytest.param("worst-fit-decreasing", [(1, 4), (0, 2, 3, 5)], id="worst-decreasing"),
    ],
)
def test_any_fit_by_hand(name: str, groups: list[tuple[int, ...]]) -> None:
    packed = ALGORITHMS[name](group(4, 8, 1, 4, 2, 1), consumers())
    assert [items for _, items in shown(packed)] == groups


def test_best_and_worst_fit_differ_where_two_bins_have_room() -> None:
    items = group(6, 7, 2, 4)
    assert [i for _, i in shown(ALGORITHMS["best-fit"](items, consumers()))] == [(0, 3), (1, 2)]
    assert [i for _, i in shown(ALGORITHMS["worst-fit"](items, consumers()))] == [
        (0, 2),
        (1,),
        (3,),
    ]


@pytest.mark.parametrize(
    ("items", "bins", "expected"),
    [
        pytest.param(
            group(6, 7, owners="12"),
            consumers(10, 10),
            [("c1", (0,)), ("c2", (1,))],
            id="its-own-consumer",
        ),
        pytest.param(
            group(6, 7, owners="21"),
            consumers(10, 10),
            [("c2", (0,)), ("c1", (1,))],
            id="its-own-consumer-before-the-lowest",
        ),
        pytest.param(
            group(6, 7, 8, owners="333"),
            consumers(10, 10, 10),
            [("c3", (0,)), ("c1", (1,)), ("c2", (2,))],
            id="else-the-lowest-that-is-not-open",
        ),
        pytest.param(
            group(6, 7, owners="11"),
            consumers(10),
            [("c1", (0,)), (None, (1,))],
            id="else-a-new-one",
        ),
        pytest.param(
            group(6, 7, owners="9-"),
            consumers(10),
            [("c1", (0,)), (None, (1,))],
            id="its-consumer-is-gone",
        ),
        pytest.param(
            group(8, owners="1"), consumers(5, 6, 9), [("c3", (0,))], id="the-lowest-that-it-fits"
        ),
        pytest.param(
            group(8, owners="1"), consumers(5, 6), [(None, (0,))], id="a-new-one-if-only-that-fits"
        ),
        pytest.param(
            group(12, 1, owners="2-"),
            consumers(10, 10),
            [("c2", (0,)), ("c1", (1,))],
            id="too-large-for-all-stays-alone-where-it-is",
        ),
        pytest.param(
            group(12, 0, owners="--"),
            consumers(10),
            [("c1", (0,)), (None, (1,))],
            id="nothing-joins-one-that-is-too-large",
        ),
    ],
)
def test_which_bin_is_opened(
    items: list[Item], bins: Bins, expected: list[tuple[str | None, tuple[int, ...]]]
) -> None:
    """Landau, Fig. 4.7 (the first four), and what unequal consumers add."""
    assert shown(ALGORITHMS["first-fit"](items, bins)) == expected


def test_the_lag_has_to_fit_as_well() -> None:
    items = group(1, 1, 1, lags=[60, 50, 40])
    packed = ALGORITHMS["first-fit"](items, consumers(lag=100))
    assert [i for _, i in shown(packed)] == [(0, 2), (1,)]
    assert ALGORITHMS["first-fit"](items, consumers()).count == 1


@pytest.mark.parametrize("name", MODIFIED)
def test_a_small_consumer_is_emptied_into_a_large_one(name: str) -> None:
    packed = ALGORITHMS[name](group(6, 3, 1, owners="122"), consumers(10, 10))
    assert shown(packed) == [("c1", (0, 1, 2))]
    assert packed.moved_rate == 4


@pytest.mark.parametrize("name", MODIFIED)
def test_a_group_that_still_fits_stays(name: str) -> None:
    packed = ALGORITHMS[name](group(6, 3, 5, 2, 4, owners="1122-"), consumers(10, 10))
    assert shown(packed) == [("c1", (0, 1)), ("c2", (2, 3)), (None, (4,))]
    assert packed.moved_rate == 0


@pytest.mark.parametrize("name", MODIFIED)
def test_the_smallest_leave_a_consumer_that_is_too_full(name: str) -> None:
    # c1 has 12 of 10: from the largest on 6 and 4 stay, and 2 is left over.
    packed = ALGORITHMS[name](group(6, 4, 2, 5, owners="1112"), consumers(10, 10))
    assert shown(packed) == [("c1", (0, 1)), ("c2", (2, 3))]
    assert packed.moved_rate == 2


@pytest.mark.parametrize("name", MODIFIED)
def test_what_is_left_over_is_added_largest_first(name: str) -> None:
    # 4 is too much for c1; were 3, which has no consumer, first, it would take the room there.
    packed = ALGORITHMS[name](group(7, 4, 3, 3, owners="11--"), consumers(10))
    groups = [(0, 2), (1, 3)] if name in ("mbf", "mbfp") else [(0, 3), (1, 2)]
    assert [i for _, i in shown(packed)] == groups


@pytest.mark.parametrize(
    ("name", "first"),
    [
        pytest.param("mbf", "c2", id="by-the-sum"),
        pytest.param("mwf", "c2", id="by-the-sum-worst"),
        pytest.param("mbfp", "c1", id="by-the-largest-partition"),
        pytest.param("mwfp", "c1", id="by-the-largest-partition-worst"),
    ],
)
def test_which_consumer_is_first(name: str, first: str) -> None:
    packed = ALGORITHMS[name](group(7, 5, 4, owners="122"), consumers(10, 10))
    assert packed.filled[0].bin.consumer == first


def test_modified_best_and_worst_fit_differ_in_where_the_smallest_go() -> None:
    # By the sum: c1 (8), c2 (7), c3 (2). 2 fits both: best fit takes c1, worst fit c2.
    items, bins = group(8, 7, 2, owners="123"), consumers(10, 10, 10)
    assert shown(ALGORITHMS["mbf"](items, bins)) == [("c1", (0, 2)), ("c2", (1,))]
    assert shown(ALGORITHMS["mwf"](items, bins)) == [("c1", (0,)), ("c2", (1, 2))]


@pytest.mark.parametrize("name", MODIFIED)
def test_no_consumer_is_opened_for_one_that_exceeds_it(name: str) -> None:
    assert shown(ALGORITHMS[name](group(8, owners="1"), consumers(5))) == [(None, (0,))]
    packed = ALGORITHMS[name](group(12, 3, owners="11"), consumers(5))
    assert shown(packed) == [("c1", (0,)), (None, (1,))]
    assert packed.oversized == (0,)


# --- whatever the input -----------------------------------------------------------------------

RATES = st.one_of(st.integers(0, 12).map(float), st.floats(0, 12, width=32))
ROOMS = st.sampled_from([5.0, 8.0, 10.0, 10.0, 13.0])


@st.composite
def problems(draw: st.DrawFn, most: int = 25, hetero: bool = True) -> tuple[list[Item], Bins]:
    count = draw(st.integers(0, 5))
    limit = draw(st.sampled_from([NONE, 100.0]))
    rooms = [draw(ROOMS) if hetero else 10.0 for _ in range(count)]
    bins = consumers(*rooms, lag=limit)
    owner = st.sampled_from([None, "gone", *(f"c{i + 1}" for i in range(count))])
    item = st.tuples(RATES, st.one_of(st.just(0.0), st.floats(0, 110, width=32)), owner)
    drawn = draw(st.lists(item, max_size=most))
    ids = draw(st.permutations(range(len(drawn))))
    return [Item(i, *each) for i, each in zip(ids, drawn, strict=True)], bins


def assert_sound(packed: Packing, items: Sequence[Item], bins: Bins) -> None:
    by_id = {item.id: item for item in items}
    packed_ids = [number for each in packed.filled for number in each.items]
    assert sorted(packed_ids) == sorted(by_id)
    assert all(each.items for each in packed.filled)
    names = [each.bin.consumer for each in packed.filled if each.bin.consumer is not None]
    assert len(set(names)) == len(names)
    exceeding = []
    for each in packed.filled:
        assert each.bin == bins.new or each.bin in bins.existing
        rate = math.fsum(by_id[i].rate for i in each.items)
        lag = math.fsum(by_id[i].lag for i in each.items)
        if rate > each.bin.rate * (1 + 2e-9) or lag > each.bin.lag * (1 + 2e-9):
            assert len(each.items) == 1
            exceeding.append(each.items[0])
    assert packed.oversized == tuple(sorted(exceeding))
    owners = {i: each.bin.consumer for each in packed.filled for i in each.items}
    moved = [item.rate for item in items if item.consumer not in (None, owners[item.id])]
    assert packed.moved_rate == pytest.approx(math.fsum(moved))
    assert packed.lower_bound <= packed.count
    assert packed.exact or packed.gap > 0


@pytest.mark.parametrize("name", HEURISTICS)
@given(problem=problems())
def test_every_packing_is_sound(name: str, problem: tuple[list[Item], Bins]) -> None:
    items, bins = problem
    assert_sound(HEURISTICS[name](items, bins), items, bins)


@pytest.mark.parametrize("name", ["best-fit", "first-fit", "worst-fit", "mbf", "least-loaded-ffd"])
@pytest.mark.parametrize("two", [False, True], ids=["rate", "rate-and-lag"])
def test_hundreds_of_bins_are_sound(name: str, two: bool) -> None:
    draw = random.Random(7)
    items = [
        Item(i, 6 * draw.random(), 60 * draw.random() if two else 0.0, f"c{draw.randrange(1, 999)}")
        for i in range(2_000)
    ]
    bins = consumers(
        *[draw.choice([8.0, 10.0, 12.0]) for _ in range(600)], lag=100 if two else NONE
    )
    packed = HEURISTICS[name](items, bins)
    assert_sound(packed, items, bins)
    assert packed.count <= 1.35 * packed.lower_bound


@pytest.mark.parametrize("name", FITTING)
@given(problem=problems(hetero=False))
def test_any_fit_opens_no_bin_without_need(name: str, problem: tuple[list[Item], Bins]) -> None:
    """The partition that opened a bin does not fit into any bin opened before it."""
    items, bins = problem
    packed = HEURISTICS[name](items, bins)
    by_id = {item.id: item for item in items}
    loads = [
        (
            math.fsum(by_id[i].rate for i in each.items),
            math.fsum(by_id[i].lag for i in each.items),
            each,
        )
        for each in packed.filled
    ]
    for at, (rate, lag, earlier) in enumerate(loads):
        for _, _, later in loads[at + 1 :]:
            opener = by_id[later.items[0]]
            assert rate + opener.rate > earlier.bin.rate * (
                1 - 1e-6
            ) or lag + opener.lag > earlier.bin.lag * (1 - 1e-6)


@given(problem=problems(hetero=False))
def test_next_fit_fills_two_bins_with_more_than_one(problem: tuple[list[Item], Bins]) -> None:
    """Each bin and the first partition of the next one exceed a room."""
    items, bins = problem
    packed = ALGORITHMS["next-fit"](items, bins)
    by_id = {item.id: item for item in items}
    for this, following in zip(packed.filled, packed.filled[1:], strict=False):
        opener = by_id[following.items[0]]
        rate = math.fsum(by_id[i].rate for i in this.items) + opener.rate
        lag = math.fsum(by_id[i].lag for i in this.items) + opener.lag
        assert rate > this.bin.rate * (1 - 1e-6) or lag > this.bin.lag * (1 - 1e-6)


@pytest.mark.parametrize("name", [*DECREASING, *MODIFIED, "least-loaded", "least-loaded-ffd"])
@given(problem=problems(most=12), seed=st.randoms(use_true_random=False))
def test_the_order_of_the_partitions_does_not_matter(
    name: str, problem: tuple[list[Item], Bins], seed: random.Random
) -> None:
    items, bins = problem
    shuffled = seed.sample(items, len(items))
    one, other = HEURISTICS[name](items, bins), HEURISTICS[name](shuffled, bins)
    assert shown(one) == shown(other)


@pytest.mark.parametrize("name", HEURISTICS)
@given(problem=problems(most=12))
def test_other_names_give_the_same_groups(name: str, problem: tuple[list[Item], Bins]) -> None:
    items, bins = problem
    renamed = [
        Item(i.id + 100, i.rate, i.lag, None if i.consumer is None else "x" + i.consumer)
        for i in items
    ]
    others = tuple(Bin(f"x{room.consumer}", room.rate, room.lag) for room in bins.existing)
    one = HEURISTICS[name](items, bins)
    other = HEURISTICS[name](renamed, Bins(bins.new, others))
    assert [i for _, i in shown(one)] == [tuple(n - 100 for n in i) for _, i in shown(other)]
    assert other.moved_rate == one.moved_rate


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", ALGORITHMS.values(), ids=ALGORITHMS)
class TestBadInput:
    def test_no_partitions_need_no_consumer(self, pack: Algorithm) -> None:
        assert pack([], consumers(10)) == Packing((), 0, 0.0, (), True)

    def test_a_partition_given_twice(self, pack: Algorithm) -> None:
        with pytest.raises(ValueError, match="partition 3 is given twice"):
            pack([Item(3, 1), Item(4, 1), Item(3, 2)], consumers())

    def test_a_consumer_given_twice(self, pack: Algorithm) -> None:
        bins = Bins(Bin(None, 10), (Bin("a", 10), Bin("a", 5)))
        with pytest.raises(ValueError, match="consumer a is given twice"):
            pack([Item(1, 1)], bins)

    def test_names_that_cannot_be(self, pack: Algorithm) -> None:
        with pytest.raises(ValueError, match="has no name"):
            pack([Item(1, 1)], Bins(Bin(None, 10), (Bin(None, 10),)))
        with pytest.raises(ValueError, match="is called a; its name must be None"):
            pack([Item(1, 1)], Bins(Bin("a", 10)))


@pytest.mark.parametrize(
    ("rate", "lag"),
    [
        pytest.param(math.nan, 0, id="rate-nan"),
        pytest.param(-1, 0, id="rate-negative"),
        pytest.param(math.inf, 0, id="rate-infinite"),
        pytest.param(1, math.nan, id="lag-nan"),
        pytest.param(1, -1, id="lag-negative"),
    ],
)
def test_a_partition_that_cannot_be(rate: float, lag: float) -> None:
    with pytest.raises(ValueError, match=r"partition 1: .* must be 0 or more"):
        Item(1, rate, lag)


@pytest.mark.parametrize("room", [(0, 1), (math.nan, 1), (math.inf, 1), (1, 0), (1, math.nan)])
def test_a_consumer_that_cannot_be(room: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="both must be more than 0"):
        Bin("a", *room)


def test_a_time_limit_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="must be more than 0"):
        exact([Item(1, 1)], consumers(), time_limit=0)
