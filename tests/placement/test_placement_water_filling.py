"""Water-filling and sub-buckets: exact sums, and the largest smallest share."""

from itertools import permutations, product
from math import fsum, ulp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.placement.sub_buckets import sub_buckets
from distributor.placement.water_filling import water_fill, whole_shares


@pytest.mark.parametrize(
    ("total", "rooms", "bases", "shares"),
    [
        pytest.param(80, [52, 22, 12], [0, 0, 0], [46, 22, 12], id="srtm-figure-8-max-min"),
        pytest.param(80, [52, 22, 12], [10, 40, 50], [50, 20, 10], id="srtm-figure-8-conc"),
        pytest.param(9, [5, 5, 5], [0, 0, 0], [3, 3, 3], id="fair-shares-where-all-have-room"),
        pytest.param(10, [5, 5, 5], [0, 0, 0], [4, 3, 3], id="the-last-unit-goes-to-the-first"),
        pytest.param(4, [9, 9], [0, 7], [4, 0], id="the-higher-one-gets-nothing"),
        pytest.param(20, [5, 0, 5], [0, 0, 0], [5, 0, 5], id="more-than-all-rooms"),
        pytest.param(0, [5, 5], [3, 0], [0, 0], id="nothing-to-pour"),
        pytest.param(3, [], [], [], id="no-vessel"),
    ],
)
def test_water_filling(total: int, rooms: list[int], bases: list[int], shares: list[int]) -> None:
    assert water_fill(total, rooms, bases) == shares


vessels = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8)


@given(st.integers(0, 200), vessels)
def test_nobody_rises_but_by_lowering_one_that_is_no_higher(
    total: int, found: list[tuple[int, int]]
) -> None:
    rooms, bases = [room for room, _ in found], [base for _, base in found]
    shares = water_fill(total, rooms, bases)
    assert sum(shares) == min(total, sum(rooms))
    for (share, room, base), (other, other_room, other_base) in permutations(
        zip(shares, rooms, bases, strict=True), 2
    ):
        assert 0 <= share <= room
        if share < room and other > 0:  # it could take one from the other
            assert base + share + 1 >= other_base + other
        del other_room


@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3),
)
def test_whole_shares_have_the_best_minimum(
    count: int, weight: int, found: list[tuple[int, int]]
) -> None:
    rooms, bases = [room for room, _ in found], [base for _, base in found]
    ways = [
        counts
        for counts in product(range(count + 1), repeat=len(rooms))
        if sum(counts) == count
        and all(each * weight <= room for each, room in zip(counts, rooms, strict=True))
    ]
    shares = whole_shares(count, weight, rooms, bases)
    if not ways:
        assert shares == [room // weight * weight for room in rooms]
        return
    assert sum(shares) == count * weight
    assert all(
        share % weight == 0 and share <= room for share, room in zip(shares, rooms, strict=True)
    )
    assert min(b + s for b, s in zip(bases, shares, strict=True)) == max(
        min(b + n * weight for b, n in zip(bases, counts, strict=True)) for counts in ways
    )


# --- sub-buckets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("r", "b", "rates", "back", "buckets"),
    [
        pytest.param(110.0, 20.0, [60.0, 40.0], 0.0, [(66.0, 12.0), (44.0, 8.0)], id="by-rate"),
        pytest.param(110.0, 20.0, [50.0], 50.0, [(55.0, 10.0)], id="the-unplaced-part-is-kept"),
        pytest.param(10.0, 4.0, [9.0, 1.0], 0.0, [(9.0, 3.0), (1.0, 1.0)], id="b-at-least-one"),
        pytest.param(8.0, 2.0, [7.0, 1.0], 0.0, [(7.0, 1.0), (1.0, 1.0)], id="b-equals-brokers"),
        pytest.param(8.0, 2.0, [1.0, 1.0], 98.0, [(0.08, 1.0)] * 2, id="b-lifted-out-of-the-rest"),
        pytest.param(8.0, 2.0, [], 1.0, [], id="nobody-is-placed"),
    ],
)
def test_sub_buckets(
    r: float, b: float, rates: list[float], back: float, buckets: list[tuple[float, float]]
) -> None:
    found = sub_buckets(r, b, rates, back)
    assert [share for bucket in found for share in bucket] == pytest.approx(
        [share for bucket in buckets for share in bucket], rel=1e-14
    )


offered = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30)


@given(st.floats(1e-3, 1e9), st.floats(0, 1e9), offered, st.randoms())
def test_shares_sum_up_exactly_in_any_order(
    r: float, b: float, rates: list[float], order: object
) -> None:
    b = len(rates) + b
    found = sub_buckets(r, b, rates)
    assert all(share[0] > 0 and share[1] >= 1 for share in found)
    order.shuffle(found)  # type: ignore[attr-defined]
    assert sum(share[0] for share in found) == r == fsum(share[0] for share in found)
    assert sum(share[1] for share in found) == b == fsum(share[1] for share in found)


@given(st.floats(1.0, 1e6), st.floats(1e3, 1e6), offered)
def test_shares_are_in_proportion_where_b_allows(r: float, b: float, rates: list[float]) -> None:
    whole = fsum(rates)
    for (r_l, b_l), rate in zip(sub_buckets(r, b, rates), rates, strict=True):
        assert r_l == pytest.approx(r * rate / whole, rel=1e-6, abs=1e-8)
        if min(rates) * b >= whole:
            assert b_l == pytest.approx(b * rate / whole, rel=1e-6)


@given(st.floats(1.0, 1e6), offered, st.floats(1e-3, 1e6))
def test_what_is_unplaced_is_never_given_away(r: float, rates: list[float], back: float) -> None:
    b = 30.0
    found = sub_buckets(r, b, rates, back)
    due = r * fsum(rates) / fsum([*rates, back])
    assert sum(share[0] for share in found) <= due * (1 + 1e-12) + len(rates) * ulp(r)
    assert sum(share[1] for share in found) <= b


def test_a_fitted_broker_keeps_its_share_to_the_last_digit() -> None:
    first = sub_buckets(0.7, 33.3, [1.0, 3.0], 7.0)
    second = sub_buckets(0.7, 33.3, [1.0, 3.0, 7.0], kept={0: first[0], 1: first[1]})
    assert second[:2] == first
    assert sum(share[0] for share in second) == 0.7
    assert sum(share[1] for share in second) == 33.3


def test_a_fitted_broker_gives_way_where_a_new_one_would_hold_no_message() -> None:
    first = sub_buckets(10.0, 2.0, [9.0], 1.0)
    assert first == [(9.0, pytest.approx(1.8))]
    assert sub_buckets(10.0, 2.0, [9.0, 1.0], kept={0: first[0]})[1] == (1.0, 1.0)


def test_more_brokers_than_b_are_refused() -> None:
    with pytest.raises(ValueError, match="burst 2 cannot be split over 3 brokers"):
        sub_buckets(10.0, 2.0, [1.0, 1.0, 1.0])


def test_a_broker_without_publishers_is_refused() -> None:
    with pytest.raises(ValueError, match="must all be more than 0"):
        sub_buckets(10.0, 2.0, [1.0, 0.0])
