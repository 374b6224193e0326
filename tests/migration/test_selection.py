"""The fewest publishers that relieve a broker."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.migration import Candidate, fewest


def anywhere(*rates: float, targets: str = "x") -> list[Candidate]:
    return [Candidate(rate, dict.fromkeys(targets, 0.0)) for rate in rates]


@pytest.mark.parametrize(
    ("candidates", "rooms", "need", "found"),
    [
        pytest.param(anywhere(5, 9, 2), {"x": 20}, 6, {1: "x"}, id="the-heaviest-is-enough"),
        pytest.param(anywhere(5, 9, 2), {"x": 8}, 6, {0: "x", 2: "x"}, id="it-has-to-fit"),
        pytest.param(anywhere(4, 3, 3), {"x": 6}, 5, {1: "x", 2: "x"}, id="the-heaviest-spoils-it"),
        pytest.param(anywhere(4, 4), {"x": 20}, 4, {0: "x"}, id="of-equal-ones-the-first"),
        pytest.param(anywhere(4, 3), {"x": 20}, 8, None, id="all-together-are-too-little"),
        pytest.param(anywhere(9), {"x": 8}, 1, None, id="no-room"),
        pytest.param(anywhere(), {}, 1, None, id="nobody"),
        pytest.param(anywhere(3), {"x": 9}, 0, {}, id="nothing-has-to-leave"),
        pytest.param(
            anywhere(6, 6, targets="xy"),
            {"x": 7, "y": 20},
            12,
            {0: "x", 1: "y"},
            id="the-fullest-target-first",
        ),
        pytest.param(
            [Candidate(6, {"x": 1.0, "y": 0.0})],
            {"x": 7, "y": 20},
            6,
            {0: "y"},
            id="the-wanted-one",
        ),
        pytest.param(
            [Candidate(6, {"y": 0.0}), Candidate(5, {"x": 0.0})],
            {"x": 20, "y": 1},
            4,
            {1: "x"},
            id="who-may-not-go-there-stays",
        ),
    ],
)
def test_selection(
    candidates: list[Candidate], rooms: dict[str, float], need: float, found: dict[int, str] | None
) -> None:
    assert fewest(candidates, rooms, need) == found


rates = st.lists(st.integers(1, 12), max_size=6)
maps = st.dictionaries(st.sampled_from("xyz"), st.just(0.0), max_size=3)


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[Candidate], dict[str, float], float]:
    candidates = [Candidate(rate, draw(maps)) for rate in draw(rates)]
    rooms = {name: float(draw(st.integers(0, 20))) for name in "xyz"}
    return candidates, rooms, float(draw(st.integers(1, 30)))


@given(instances())
def test_no_choice_of_fewer_does_it(
    instance: tuple[list[Candidate], dict[str, float], float],
) -> None:
    candidates, rooms, need = instance
    found = fewest(candidates, rooms, need)
    best = by_trying(candidates, rooms, need)
    assert (None if found is None else len(found)) == best
    if found is not None:
        assert does(candidates, rooms, need, found)


def does(
    candidates: list[Candidate], rooms: dict[str, float], need: float, found: dict[int, str]
) -> bool:
    fits = all(
        sum(candidates[at].rate for at, its in found.items() if its == name) <= room
        for name, room in rooms.items()
    )
    allowed = all(name in candidates[at].ranks for at, name in found.items())
    return fits and allowed and sum(candidates[at].rate for at in found) >= need


def by_trying(candidates: list[Candidate], rooms: dict[str, float], need: float) -> int | None:
    for count in range(len(candidates) + 1):
        for who in combinations(range(len(candidates)), count):
            for where in product(rooms, repeat=count):
                if does(candidates, rooms, need, dict(zip(who, where, strict=True))):
                    return count
    return None


def test_a_hard_choice_among_a_hundred_ends() -> None:
    """Rates that fit badly: the search is bounded, and what it gives is right."""
    candidates = anywhere(*(101.0 - number / 7 for number in range(100)), targets="xyz")
    rooms = {"x": 350.0, "y": 351.0, "z": 352.0}
    found = fewest(candidates, rooms, 900.0)
    assert found is None or does(candidates, rooms, 900.0, found)
