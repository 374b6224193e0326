"""The splits, loads and verdicts of the benchmark `journey`. Pure."""

from itertools import takewhile

import pytest

from benchmarks.journey.run import bars, best_equal
from benchmarks.journey.shapes import SHAPES, TIDE_SECONDS, Shape
from benchmarks.journey.splits import Arm, equal, equal_target
from benchmarks.journey.trial import Outcome, Trial
from srtm.journey.causes import Leg
from srtm.limits.slo import SLO

LEGS = [Leg.BROKER, Leg.BRIDGE, Leg.CONSUMER]


@pytest.mark.parametrize("split", [equal, equal_target])
@pytest.mark.parametrize("legs", [LEGS, [Leg.BROKER, Leg.CONSUMER]], ids=["three", "two"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda each: each.name)
def test_equal_splits_promise_the_whole(split: object, legs: list[Leg], shape: Shape) -> None:
    slos = split(shape.slo, legs)  # type: ignore[operator]
    seconds = sum(each.target_seconds for each in slos.values())
    late = sum(each.allowed_late_share for each in slos.values())
    assert 0.999 * shape.slo.target_seconds < seconds < shape.slo.target_seconds + 1e-9
    assert 0.99 * shape.slo.allowed_late_share < late < shape.slo.allowed_late_share + 1e-9


def test_only_consumers_have_a_window() -> None:
    slos = equal(SLO.parse("0.97@3s over 1h"), LEGS)
    assert slos[Leg.CONSUMER] == SLO.parse("0.99@1s over 1h")
    assert slos[Leg.BROKER] == slos[Leg.BRIDGE] == SLO.parse("0.99@1s")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda each: each.name)
def test_arrivals_are_those_of_the_rate_and_the_seed(shape: Shape) -> None:
    def times(seed: int) -> list[float]:
        return list(takewhile(lambda at: at < 10 * TIDE_SECONDS, shape.times(seed)))

    found = times(1)
    assert found == sorted(found)
    assert found == times(1)
    assert found != times(2)
    expected = sum(shape.rate(second, 1) for second in range(10 * TIDE_SECONDS))
    assert len(found) == pytest.approx(expected, rel=0.05)


STEADY = SHAPES[0]


def trial(**arms: tuple[float, float]) -> Trial:
    """By arm, in the order of `Arm`: share late, and consumers."""
    outcomes = {
        arm: Outcome({}, 100, late, 0.5, consumers, 0, 0.5, {})
        for arm, (late, consumers) in zip(Arm, arms.values(), strict=True)
    }
    return Trial(outcomes, {}, [], [])


def test_the_best_equal_split_is_the_cheapest_that_kept_the_slo_in_all_runs() -> None:
    first = trial(plan=(0.0, 3.0), equal=(0.0, 5.0), target=(0.01, 4.0))
    later = trial(plan=(0.02, 3.0), equal=(0.0, 5.0), target=(0.06, 4.0))
    assert best_equal(STEADY, [first]) == (Arm.EQUAL_TARGET, "")
    assert best_equal(STEADY, [first, later]) == (Arm.EQUAL, "")
    late, cost, lost = bars(STEADY, [first, later], 2, quick=False)
    assert late.value == pytest.approx(0.4)
    assert cost.value == pytest.approx(4 / 6)
    assert [each.met for each in (late, cost, lost)] == [True] * 3


def test_where_no_equal_split_keeps_the_slo_nothing_is_claimed() -> None:
    found = trial(plan=(0.06, 3.0), equal=(0.06, 5.0), target=(0.06, 4.0))
    late, cost, _ = bars(STEADY, [found, found], 2, quick=False)
    assert late.met is False
    assert (cost.met, cost.why) == (None, "no equal split kept the SLO")


def test_a_run_that_failed_leaves_its_shape_undecided() -> None:
    found = trial(plan=(0.0, 3.0), equal=(0.0, 5.0), target=(0.0, 4.0))
    assert [bar.met for bar in bars(STEADY, [found], 2, quick=False)] == [None] * 3
    assert [bar.met for bar in bars(STEADY, [], 2, quick=False)] == [None] * 3
