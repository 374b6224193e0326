"""The worst interval: against all pairs of a brute force, and on streams whose answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.limits import excess
from srtm.limits.excess import Contracts, worst_interval

NS = 1_000_000_000


def contracts(*changes: tuple[int, float, float]) -> Contracts:
    since, rates, bursts = zip(*changes, strict=True)
    return Contracts(np.array(since), np.array(rates), np.array(bursts))


def by_all_pairs(times: list[int], counts: list[int], held: Contracts) -> float:
    """Of every interval that begins at a message or just before a change, and ends at a message."""
    limits = list(zip(held.since, held.rates, held.bursts, strict=True))

    def brought(begins: int, ends: int) -> float:
        total = 0.0
        for place, (since, rate, _) in enumerate(limits):
            first = begins if place == 0 else max(begins, since)
            last = ends if place == len(limits) - 1 else min(ends, limits[place + 1][0])
            total += rate * max(0, last - first) / NS
        return total

    def in_force(at: int, before: bool) -> float:
        found = limits[0][2]
        for since, _, burst in limits:
            if since < at or (since == at and not before):
                found = burst
        return found

    starts = [(at, max(in_force(at, True), in_force(at, False))) for at in times]
    starts += [(int(since), in_force(since, True)) for since in held.since[1:]]
    return max(
        sum(n for at, n in zip(times, counts, strict=True) if begins <= at <= ends)
        - burst
        - brought(begins, ends)
        for ends in times
        for begins, burst in starts
        if begins <= ends
    )


MESSAGES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=25)
CHANGES = st.lists(
    st.tuples(st.integers(1, 300), st.sampled_from([1.0, 7.5, 40.0]), st.sampled_from([1.0, 3, 9])),
    max_size=3,
    unique_by=lambda change: change[0],
)


@given(MESSAGES, CHANGES, st.sampled_from([1, 2, 3, 1 << 18]))
def test_it_is_that_of_all_pairs_however_it_is_cut_into_chunks(
    messages: list[tuple[int, int]], changes: list[tuple[int, float, float]], chunk: int
) -> None:
    times = list(np.cumsum([gap for gap, _ in messages]) * NS // 100)
    counts = [count for _, count in messages]
    held = contracts((0, 10.0, 2.0), *sorted((at * NS // 100, r, b) for at, r, b in changes))
    before, excess._CHUNK = excess._CHUNK, chunk
    try:
        worst = worst_interval(np.array(times), np.array(counts), held)
    finally:
        excess._CHUNK = before
    assert worst is not None
    assert worst.excess == pytest.approx(by_all_pairs(times, counts, held), abs=1e-6)
    inside = [n for at, n in zip(times, counts, strict=True) if worst.begins <= at <= worst.ends]
    assert worst.messages <= sum(inside)
    assert worst.messages >= sum(inside) - 10  # others at the very instants where it begins or ends


def test_its_place_and_its_length() -> None:
    times = np.array([0, 5 * NS, 5 * NS + NS // 10, 9 * NS])
    worst = worst_interval(times, np.array([1, 2, 2, 1]), contracts((0, 10.0, 2.0)))
    assert worst is not None
    assert (worst.begins, worst.ends, worst.messages) == (5 * NS, 5 * NS + NS // 10, 4)
    assert worst.allowed == pytest.approx(3.0)
    assert worst.excess == pytest.approx(1.0)


def test_nothing_came() -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert worst_interval(empty, empty, contracts((0, 1.0, 1.0))) is None


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param((10.0, 8.0), 5 - 2 - 0.0, id="a-greater-burst-brings-no-tokens"),
        pytest.param((10.0, 1.0), 5 - 2 - 0.0, id="a-smaller-one-leaves-those-of-before"),
    ],
)
def test_a_change_gives_away_nothing(after: tuple[float, float], expected: float) -> None:
    """All tokens go just before the change, and five messages come with it."""
    held = contracts((0, 10.0, 2.0), (10 * NS, *after))
    times, counts = np.array([10 * NS - 1, 10 * NS + 1]), np.array([2, 3])
    worst = worst_interval(times, counts, held)
    assert worst is not None
    assert worst.excess == pytest.approx(expected, abs=1e-6)


def test_a_day_at_a_high_rate_loses_no_message_to_rounding() -> None:
    """8.64e8 tokens in all, and one message too many at its end."""
    burst = np.full(1000, 86_400 * NS)
    times = np.concatenate([[0], burst, [86_400 * NS]])
    counts = np.concatenate([[1], np.full(1000, 40), [1]])
    worst = worst_interval(times, counts, contracts((0, 10_000.0, 40_000.0)))
    assert worst is not None
    assert worst.excess == pytest.approx(1.0, abs=1e-7)
