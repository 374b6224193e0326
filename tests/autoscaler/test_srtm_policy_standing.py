"""Groups of a fixed size, played beside the plan."""

import numpy as np
import pytest

from srtm.autoscaler.policies.srtm.standing import Standing
from srtm.autoscaler.policies.srtm.tuning import TUNING
from srtm.limits.slo import SLO

SLOW = SLO(0.99, 0.5)
PRICE = 0.14
"""replica-seconds of a late event: 28 of them at 200/s, with one in a hundred allowed"""


def played(
    standing: Standing,
    rates: list[float],
    size: int,
    late: int = 0,
    partitions: int = 6,
    begin: float = 0.0,
) -> float:
    """Each rate for a second, evenly, with a plan of `size` consumers; the time after it."""
    at = begin
    for rate in rates:
        slots = np.full((10, partitions), rate / 10 / partitions)
        standing.see(slots, 200.0, partitions, size, late)
        at += 1.0
        standing.look(at, PRICE)
    return at


def spikes(seconds: int) -> list[float]:
    """100/s, and 900/s for five seconds of each half minute."""
    return [900.0 if second % 30 < 5 else 100.0 for second in range(seconds)]


def test_a_plan_that_chases_spikes_gives_way_to_a_group_that_stands() -> None:
    standing = Standing(SLOW, 1.0)
    played(standing, spikes(80), size=4, late=60)
    assert standing.least == 0  # it is only watched
    played(standing, spikes(40), size=4, late=60)
    assert standing.least in (5, 6)


def test_a_plan_that_is_cheaper_is_free() -> None:
    standing = Standing(SLOW, 1.0)
    wave = [500 + 450 * np.sin(second / 60) for second in range(600)]
    at = 0.0
    for rate in wave:
        at = played(standing, [rate], size=1 + int(rate // 190), begin=at)
        assert standing.least == 0


def test_late_events_that_the_slo_allows_cost_nothing() -> None:
    """Eight of a hundred are late of a plan that nothing of a fixed size is cheaper than."""
    for percentile, held in ((0.9, False), (0.99, True)):
        standing = Standing(SLO(percentile, 0.5), 1.0)
        played(standing, [300.0] * 200, size=2, late=24)
        assert bool(standing.least) is held


def test_it_is_free_again_after_a_while_and_held_for_longer_the_next_time() -> None:
    standing = Standing(SLOW, 1.0)
    held = []
    at = 0.0
    for _ in range(2):
        while not standing.least:
            at = played(standing, spikes(30), 4, 60, begin=at)
        begun = at
        while standing.least:  # it stands by now, and costs what such a group does
            at = played(standing, [100.0], 1, begin=at)
            assert at < 20_000
        held.append(at - begun)
    assert held[0] >= TUNING.standing_hold_seconds - 30
    assert held[1] > held[0]


def test_its_late_events_are_those_of_a_fluid_queue() -> None:
    """Two consumers serve 400/s: of 600/s for ten seconds from the 30th on, the last waits 5 s."""
    standing = Standing(SLOW, 1.0)
    rates = [100.0] * 30 + [600.0] * 10 + [100.0] * 60
    played(standing, rates, size=6, partitions=4)
    late = dict(zip(standing._sizes.tolist(), standing._late.tolist(), strict=True))
    # 200/s too many fill half a second's work in a second; then all are late until the queue has
    # gone down to that again: 9 s of 600/s, and (2000 - 200) / 300 = 6 s of 100/s.
    assert late[2] == pytest.approx((9 * 600 + 6 * 100) * 0.5 ** (60 / 300), rel=0.1)
    assert late[3] == pytest.approx(0.0, abs=1.0) or late[3] > 0  # of four partitions one has two
    assert late[4] == 0.0


def test_many_partitions_are_played_by_a_few_sizes() -> None:
    standing = Standing(SLOW, 1.0)
    played(standing, [2000.0] * 3, size=20, partitions=300)
    assert len(standing._sizes) == TUNING.standing_sizes
    assert standing._sizes[[0, -1]].tolist() == [1, 300]
    for place, size in enumerate(standing._sizes):
        first = standing._firsts[place]
        counts = np.bincount(standing._owners[place] - first, minlength=size)
        assert len(counts) == size
        assert counts.max() - counts.min() <= 1


def test_another_number_of_partitions_begins_anew() -> None:
    standing = Standing(SLOW, 1.0)
    at = played(standing, spikes(120), 4, 60)
    assert standing.least
    played(standing, [100.0] * 5, 4, partitions=7, begin=at)
    assert len(standing._loads) == 7
