"""What the benchmark of moves makes of what it saw, and the limit of its slow nsqds."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.harness.trial import Timing
from benchmarks.placement.moves import (
    AFTER,
    BEFORE,
    PUBLISHERS,
    WITH,
    WITHOUT,
    Move,
    Seen,
    bars,
    overtaken,
    schedule,
)
from benchmarks.placement.slow_nsqd import Throttle

MOVED = Seen(1_000, 0, 0, 0, 0, 20, 20, [], 1.0, [Move(15.0, 1.5)])
STAYED = replace(MOVED, late=40, surely_late=40, moves=[])


@pytest.mark.parametrize(
    ("ours", "theirs", "met"),
    [
        pytest.param(MOVED, STAYED, [True, True, True, True], id="moves-help"),
        pytest.param(replace(MOVED, late=41), STAYED, [True, True, True, False], id="they-harm"),
        pytest.param(replace(MOVED, lost=1), STAYED, [True, False, True, True], id="one-is-lost"),
        pytest.param(replace(MOVED, overtaken=1), STAYED, [True, True, False, True], id="order"),
        pytest.param(replace(MOVED, moves=[]), STAYED, [False, None, None, True], id="no-moves"),
        pytest.param(MOVED, replace(STAYED, late=0), [True, True, True, None], id="no-overload"),
        pytest.param(
            replace(MOVED, lag_ms=26.0),
            replace(STAYED, surely_late=15),
            [True, True, True, None],
            id="a-late-generator-may-have-made-it",
        ),
        pytest.param(
            replace(MOVED, lag_ms=26.0), STAYED, [True, True, True, True], id="too-late-anyway"
        ),
    ],
)
def test_what_moves_are_judged_by(ours: Seen, theirs: Seen, met: list[bool | None]) -> None:
    calm = {WITH: MOVED, WITHOUT: STAYED}
    rounds = [{WITH: ours, WITHOUT: theirs}] * 2 + [calm if ours.moves else {**calm, WITH: ours}]
    assert [bar.met for bar in bars(rounds, quick=False)] == met


def test_one_round_leaves_the_ratio_undecided() -> None:
    found = bars([{WITH: MOVED, WITHOUT: STAYED}], quick=True)
    assert [bar.met for bar in found] == [True, True, True, None]


def test_an_overtaken_message_is_one_stored_after_a_later_one() -> None:
    who = np.array([0, 1, 0, 1, 0])
    assert overtaken(who, np.array([10, 50, 20, 60, 30])) == 0, "publishers are apart"
    assert overtaken(who, np.array([30, 50, 20, 60, 40])) == 1
    assert overtaken(who, np.array([10, 50, 0, 60, 20])) == 0, "one was never stored"


def test_the_traffic_shifts_and_its_sum_stays() -> None:
    times, who = schedule(Timing(200.0, 100.0, 1), seed=0)
    assert (np.diff(times) >= 0).all()
    for after, rates in ((False, BEFORE), (True, AFTER)):
        for half, rate in enumerate(rates.values()):
            there = (times >= 100.0) == after
            count = np.count_nonzero(there & (who // (PUBLISHERS // 2) == half))
            assert count / 100 == pytest.approx(rate * PUBLISHERS / 2, rel=0.1)
    assert sum(BEFORE.values()) == sum(AFTER.values())


def test_bytes_pass_at_their_rate_in_their_order() -> None:
    throttle = Throttle(1_000.0)
    throttle.wait(10, now=5.0)
    assert throttle.wait(100, now=6.0) == pytest.approx(0.095), "an idle second is not saved up"
    assert throttle.wait(100, now=6.0) == pytest.approx(0.195)
    assert throttle.wait(100, now=6.1) == pytest.approx(0.195)
