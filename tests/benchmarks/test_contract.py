"""The benchmark `contract`: its arrivals, its pool and what no policy beats."""

import numpy as np
import pytest

from benchmarks.autoscaler.contract import least
from benchmarks.autoscaler.contract.admissible import Stretch, arrivals_by, struck_at
from benchmarks.autoscaler.contract.cases import Drawn, drawn
from benchmarks.autoscaler.contract.pool import run_pool
from benchmarks.autoscaler.contract.run import result_of
from srtm.autoscaler.decision import Action, Decision
from srtm.autoscaler.observation import Observation
from srtm.limits.ceiling import Ceiling
from srtm.limits.excess import worst_excess

CEILING = Ceiling(40.0, 12.0)


@pytest.mark.parametrize("seed", range(20))
def test_what_comes_keeps_to_the_contract_and_uses_it_up(seed: int) -> None:
    case = drawn(seed, 1 + seed % 6)
    ceiling = case.ceiling
    for stretches in (case.stretches, struck_at(case.stretches, 15.0, 28.0)):
        arrivals = arrivals_by(stretches, ceiling, case.shares, 28)
        times = np.sort(np.concatenate(arrivals.times))
        assert worst_excess(times, ceiling.rate, ceiling.burst) <= 1e-6
        for own, share in zip(arrivals.times, case.shares, strict=True):
            assert worst_excess(own, share * ceiling.rate, share * ceiling.burst) <= 1e-6


def test_a_strike_brings_all_that_the_bucket_has() -> None:
    stretches = struck_at([Stretch(5.0, "rate"), Stretch(20.0, "idle")], 8.0, 10.0)
    (times,) = arrivals_by(stretches, CEILING, (1.0,), 10).times
    assert int((times == 8.0).sum()) == 12
    assert int((times > 8.0).sum()) == pytest.approx(80, abs=1)
    assert int(((times >= 5.0) & (times < 8.0)).sum()) == 0


class Fixed:
    name = "fixed"

    def decide(self, seen: Observation) -> Decision:
        return Decision(Action.NONE, reason="fixed")


def test_a_pool_gives_the_next_event_to_whoever_is_free() -> None:
    run = run_pool(Fixed(), np.array([0.0, 0.0, 0.0, 5.0]), 10, 2.0, 1.0, initial=2)
    assert run.latency.tolist() == pytest.approx([0.5, 0.5, 1.0, 0.5])
    assert run.counts[-1][1] == 2


def case_of(target: float, burst: float, shares: tuple[float, ...] = (1.0,)) -> Drawn:
    return Drawn(0, Ceiling(20.0, burst), shares, 10.0, target, 2.0, 0.1, [])


@pytest.mark.parametrize(
    ("case", "pooled", "for_ever", "idle"),
    [
        pytest.param(case_of(0.5, 9.0), True, 2, 2, id="the-rate"),
        pytest.param(case_of(0.5, 17.0), True, 4, 4, id="the-burst"),
        # 10 and 20/s come, 10/s are served for 3 s: the one after the 30th came at 1 s.
        pytest.param(case_of(2.5, 10.0), True, 2, 1, id="launched-in-time"),
        pytest.param(case_of(0.5, 5.0, (0.4, 0.3, 0.3)), False, 3, 3, id="partitions-are-whole"),
        pytest.param(case_of(4.0, 5.0, (0.5, 0.5)), False, 2, 1, id="divided-in-time"),
    ],
)
def test_the_fewest_of_any_policy(case: Drawn, pooled: bool, for_ever: int, idle: int) -> None:
    assert least.for_ever(case, pooled) == for_ever
    assert least.idle(case, pooled) == idle


def test_the_evenest_split_is_found() -> None:
    assert least.fullest((0.4, 0.3, 0.2, 0.1), 2) == pytest.approx(0.5)
    assert least.fullest((0.7, 0.2, 0.1), 2) == pytest.approx(0.7)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_case_is_held_against_the_fewest(seed: int) -> None:
    result = result_of(seed)
    assert result.pooled is bool(seed % 2)
    assert result.for_ever >= result.least_for_ever
    assert sum(each.late for each in result.played) == 0
