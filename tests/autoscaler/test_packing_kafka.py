"""Kafka's own assignors, and Landau's two figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.packing import (
    ALGORITHMS,
    Bins,
    Item,
    assign_range,
    assign_sticky,
    cardinal_bin_scores,
    rscore,
)
from tests.autoscaler.test_packing_any_fit import consumers, group

Assignment = dict[str, tuple[int, ...]]


@pytest.mark.parametrize(
    ("partitions", "names", "expected"),
    [
        pytest.param(4, "ab", {"a": (0, 1), "b": (2, 3)}, id="even"),
        pytest.param(5, "ab", {"a": (0, 1, 2), "b": (3, 4)}, id="the-first-takes-one-more"),
        pytest.param(7, "abc", {"a": (0, 1, 2), "b": (3, 4), "c": (5, 6)}, id="one-of-three"),
        pytest.param(8, "abc", {"a": (0, 1, 2), "b": (3, 4, 5), "c": (6, 7)}, id="two-of-three"),
        pytest.param(1, "ba", {"a": (0,), "b": ()}, id="by-name-and-one-has-nothing"),
        pytest.param(0, "a", {"a": ()}, id="no-partitions"),
    ],
)
def test_range(partitions: int, names: str, expected: Assignment) -> None:
    assert assign_range(range(partitions)[::-1], list(names)) == expected


@pytest.mark.parametrize(
    ("partitions", "names", "current", "expected"),
    [
        pytest.param(
            5, "ab", {}, {"a": (0, 2, 4), "b": (1, 3)}, id="nothing-assigned-yet-goes-in-turn"
        ),
        pytest.param(
            4, "ab", {"a": (0, 3), "b": (1, 2)}, {"a": (0, 3), "b": (1, 2)}, id="nothing-moves"
        ),
        pytest.param(4, "ab", {"a": (0, 1, 2, 3)}, {"a": (0, 1), "b": (2, 3)}, id="one-joins"),
        pytest.param(
            5, "ab", {"a": (0, 1, 2, 3, 4)}, {"a": (0, 1, 2), "b": (3, 4)}, id="one-more-stays"
        ),
        pytest.param(
            5,
            "abc",
            {"a": (0, 1, 2), "b": (3, 4)},
            {"a": (0, 1), "b": (3, 4), "c": (2,)},
            id="a-third-joins",
        ),
        pytest.param(
            4,
            "ab",
            {"a": (0,), "b": (1,), "c": (2, 3)},
            {"a": (0, 2), "b": (1, 3)},
            id="one-leaves",
        ),
        pytest.param(
            5,
            "ab",
            {"a": (0, 1), "b": (2, 3)},
            {"a": (0, 1, 4), "b": (2, 3)},
            id="a-partition-is-added",
        ),
        pytest.param(
            2, "ab", {"a": (0, 5), "b": (6,)}, {"a": (0,), "b": (1,)}, id="partitions-are-gone"
        ),
        pytest.param(
            2, "abc", {"b": (0,), "c": (1,)}, {"a": (), "b": (0,), "c": (1,)}, id="more-consumers"
        ),
        pytest.param(
            4,
            "abc",
            {"b": (0, 1), "c": (2, 3)},
            {"a": (3,), "b": (0, 1), "c": (2,)},
            id="only-one-may-have-one-more",
        ),
        pytest.param(0, "a", {"a": (1,)}, {"a": ()}, id="no-partitions"),
    ],
)
def test_sticky(partitions: int, names: str, current: Assignment, expected: Assignment) -> None:
    assert assign_sticky(range(partitions), list(names), current) == expected


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[int], list[str], Assignment]:
    partitions = draw(st.lists(st.integers(0, 40), unique=True, max_size=20))
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1))
    holders = draw(st.lists(st.sampled_from("abcdefghz-"), min_size=41, max_size=41))
    current = {
        name: tuple(p for p, holder in enumerate(holders) if holder == name) for name in "abcdefghz"
    }
    return partitions, names, current


@given(groups())
def test_assignments_are_even_and_whole(case: tuple[list[int], list[str], Assignment]) -> None:
    partitions, names, current = case
    for assignment in (assign_range(partitions, names), assign_sticky(partitions, names, current)):
        assert set(assignment) == set(names)
        assert sorted(p for each in assignment.values() for p in each) == sorted(partitions)
        sizes = [len(each) for each in assignment.values()]
        assert max(sizes) - min(sizes) <= 1


@given(groups())
def test_sticky_moves_no_more_than_evenness_needs(
    case: tuple[list[int], list[str], Assignment],
) -> None:
    partitions, names, current = case
    assignment = assign_sticky(partitions, names, current)
    least, more = divmod(len(partitions), len(names))
    owned = [len(set(current[name]) & set(partitions)) for name in names]
    over = sum(count > least for count in owned)
    could_stay = sum(min(count, least) for count in owned) + min(over, more)
    stay = sum(len(set(assignment[name]) & set(current[name])) for name in names)
    assert stay == could_stay
    assert assign_sticky(partitions, names, assignment) == assignment


@pytest.mark.parametrize(
    ("partitions", "names", "current", "said"),
    [
        pytest.param([1], [], {}, "no consumers", id="no-consumers"),
        pytest.param([1, 1], ["a"], {}, "a partition is given twice", id="a-partition-twice"),
        pytest.param([1], ["a", "a"], {}, "a consumer is given twice", id="a-consumer-twice"),
        pytest.param(
            [1, 2], ["a", "b"], {"a": (1,), "b": (1,)}, "more than one consumer", id="two-owners"
        ),
    ],
)
def test_what_cannot_be_assigned(
    partitions: list[int], names: list[str], current: Assignment, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        assign_sticky(partitions, names, current)
    if not current:
        with pytest.raises(ValueError, match=said):
            assign_range(partitions, names)


# --- Landau's figures -------------------------------------------------------------------------


def test_rscore_is_the_moved_rate_in_consumers() -> None:
    items, bins = group(6, 4, 3, owners="122"), consumers(10, 10)
    assert rscore(ALGORITHMS["best-fit"](items, bins), 20) == pytest.approx(4 / 20)
    assert rscore(ALGORITHMS["best-fit"]([Item(1, 5)], Bins(bins.new)), 20) == 0


def test_the_cardinal_bin_score() -> None:
    scores = cardinal_bin_scores({"a": [2, 4], "b": [3, 4], "c": [4, 5]})
    assert scores == {"a": 0, "b": 0.25, "c": pytest.approx((1 + 0.25) / 2)}


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({}, id="no-algorithms"),
        pytest.param({"a": []}, id="no-iterations"),
        pytest.param({"a": [1, 2], "b": [1]}, id="different-lengths"),
        pytest.param({"a": [1, 0]}, id="no-bins"),
    ],
)
def test_what_has_no_cardinal_bin_score(counts: dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match="cardinal bin score"):
        cardinal_bin_scores(counts)
