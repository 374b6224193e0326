"""What moves takes its part of the contract along."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.migration import shares_after
from tb_adaptor.share import Part

HELD = {"b1": Part(300.0, 30.0), "b2": Part(100.0, 10.0)}


@pytest.mark.parametrize(
    ("rates", "moves", "left", "found"),
    [
        pytest.param(
            {"b1": 200.0}, [("b1", "b2", 100.0)], [], {"b1": (150, 15), "b2": (250, 25)}, id="half"
        ),
        pytest.param(
            {"b1": 200.0},
            [("b1", "b3", 50.0), ("b1", "b2", 50.0)],
            [],
            {"b1": (150, 15), "b2": (175, 17.5), "b3": (75, 7.5)},
            id="to-two-brokers-one-of-them-new",
        ),
        pytest.param(
            {"b1": 200.0}, [("b1", "b2", 50.0)], ["b1"], {"b2": (400, 40)}, id="nobody-stays"
        ),
        pytest.param(
            {"b1": 0.0},
            [("b1", "b2", 50.0)],
            [],
            {"b1": (10, 1), "b2": (390, 39)},
            id="who-stays-is-quiet-and-keeps-a-floor",
        ),
    ],
)
def test_shares(
    rates: dict[str, float],
    moves: list[tuple[str, str, float]],
    left: list[str],
    found: dict[str, tuple[float, float]],
) -> None:
    after = shares_after(HELD, rates, moves, left)
    assert {name: pytest.approx(tuple(part)) for name, part in after.items()} == found


def test_more_brokers_than_b_are_refused() -> None:
    with pytest.raises(ValueError, match="less than one message on each of 3 brokers"):
        shares_after({"b1": Part(9, 1.5), "b2": Part(9, 1)}, {}, [("b1", "b3", 1.0)], [])


amounts = st.floats(1e-3, 1e6)


@given(
    st.lists(st.tuples(amounts, st.floats(2, 1e6), st.floats(0, 1e6)), min_size=2, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), amounts), min_size=1, max_size=6),
)
def test_the_sums_never_grow(
    held: list[tuple[float, float, float]], moves: list[tuple[int, int, float]]
) -> None:
    parts = {f"b{at}": Part(rate, burst) for at, (rate, burst, _) in enumerate(held)}
    came = {f"b{at}": rate for at, (_, _, rate) in enumerate(held)}
    found = [
        (f"b{source % len(held)}", f"b{target}", rate)
        for source, target, rate in moves
        if source % len(held) != target
    ]
    try:
        after = shares_after(parts, came, found, [])
    except ValueError:
        assert len(parts.keys() | {to for _, to, _ in found}) > fsum(b for _, b in parts.values())
        return
    for at in (0, 1):
        held_sum = fsum(part[at] for part in parts.values())  # as it rounds: not above r or b
        assert fsum([*(part[at] for part in after.values()), -held_sum]) <= 0
    assert all(part.burst >= 1 and part.rate > 0 for part in after.values())
