"""CLOSER's figures over time: which late events count with which steps of the group."""

import numpy as np
import pytest

from benchmarks.autoscaler.closer_figures import bars, late_near, quantiles, steps
from benchmarks.autoscaler.scaling import Case, Outcome
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of
from srtm.autoscaler.simulator.run import Run
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO

SETTING = Setting(SLO(0.99, 0.5), mu=200.0)


def a_run(latency: float = 0.1) -> Run:
    """Grows at 10 s and shrinks at 40 s; late are the events of seconds 12, 41 and 42."""
    arrived = np.arange(60.0)
    found = np.full(60, latency)
    found[[12, 41, 42]] = 1.0
    return Run("p", SETTING, 60, arrived, found, ((0.0, 1), (10.0, 3), (40.0, 2)), {}, 0, {})


def outcome(name: str, run: Run) -> dict[str, Outcome]:
    case = Case(name, "p", SETTING, lambda _: arrivals_of([1.0], [1.0], ArrivalModel.BURST, 0))
    return {name: Outcome(case, [run])}


def test_late_events_count_with_the_steps_that_they_are_near() -> None:
    run = a_run()
    assert steps(run, 1).tolist() == [10.0]
    assert steps(run, -1).tolist() == [40.0]
    assert late_near(run, steps(run, 1)) == pytest.approx(1 / 3)
    assert late_near(run, steps(run, -1)) == pytest.approx(2 / 3)
    assert late_near(run, np.array([])) == 0.0


def test_the_bars_of_the_figures() -> None:
    slow, quick = "first, skewed: linear", "first, skewed: Algorithm 2"
    outcomes = outcome("first: Algorithm 2", a_run())
    outcomes |= outcome(slow, a_run(0.3)) | outcome(quick, a_run(0.1))
    (near, below) = bars(outcomes)
    assert (near.value, near.met) == (pytest.approx(2.0), True)
    assert (below.value, below.met) == (0.0, True)
    assert quantiles(outcomes[slow].runs[0])[0] == 0.3
    swapped = outcome(slow, a_run(0.1)) | outcome(quick, a_run(0.3))
    assert [bar.met for bar in bars(swapped)] == [False]
