"""What the live run of `adaptor` says of what it measured."""

from dataclasses import replace

import numpy as np

from benchmarks.adaptor.live import POLICIES, SECONDS, SWAP, Live, by_second, live_bars
from benchmarks.adaptor.scenarios import CHOOSING, SCENARIOS

CALM = Live("srtm", 700.0, [], 650.0, [], 18_000, 0.0, False, 9)
RUNS = [replace(CALM, policy=name, p99_ms=8_000.0) for name in POLICIES if name != "srtm"]


def verdicts(*runs: Live) -> list[bool | None]:
    return [bar.met for bar in live_bars(runs)]


def test_what_is_over_the_contract_or_slower_than_both_rivals_misses_its_bar() -> None:
    assert verdicts(CALM, *RUNS) == [True, True]
    slower = replace(CALM, p99_ms=8_900.0)
    assert verdicts(slower, *RUNS) == [True, False]
    over = replace(CALM, excess=3.0, surely_exceeded=True)
    assert verdicts(over, *RUNS) == [False, True]
    assert verdicts(replace(over, surely_exceeded=False), *RUNS) == [True, True], (
        "the clocks' error"
    )


def test_a_second_is_that_of_arrival() -> None:
    found = by_second(np.array([0.2, 0.9, 3.5]), np.array([0.001, 0.005, 4.0]), SECONDS)
    assert found[:5].tolist() == [5.0, 0.0, 0.0, 4000.0, 0.0]
    assert len(found) == SECONDS


def test_the_traffic_changes_sides() -> None:
    arrivals = SWAP.arrivals(0)
    for name, first, last in (("b1", 0.85, 0.15), ("b2", 0.15, 0.85)):
        times = arrivals[name].times
        before, after = (
            np.mean(times < 20) * times.size / 20,
            np.sum((times >= 20) & (times < 45)) / 25,
        )
        assert abs(before - first * 400) < 30
        assert abs(after - last * 400) < 30


def test_settings_are_chosen_on_other_traffic_than_is_judged() -> None:
    assert not {each.name for each in SCENARIOS} & {each.name for each in CHOOSING}, "nor its seeds"
    for one in CHOOSING:
        for other in SCENARIOS:
            at = np.arange(0.5, 120.0)
            rates = [[rate(at).tolist() for rate in each.brokers.values()] for each in (one, other)]
            assert (rates[0], one.kind) != (rates[1], other.kind), (one.name, other.name)
