"""The arithmetic of the two packing benchmarks; none of their times."""

from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from benchmarks.autoscaler import landau, packing
from benchmarks.autoscaler.landau import Point
from srtm.autoscaler.packing import ALGORITHMS


def test_a_stream_starts_anywhere_steps_by_delta_and_keeps_within_the_capacity() -> None:
    rates = list(landau.stream(50, 200, 5, seed=1))
    assert (len(rates), len(rates[0])) == (200, 50)
    assert 0.3 < sum(rates[0]) / 50 < 0.7
    steps = [abs(b - a) for x, y in pairwise(rates) for a, b in zip(x, y, strict=True)]
    assert 0.04 < max(steps) <= 0.05 + 1e-12
    assert all(0 <= rate <= 1 for each in rates for rate in each)
    assert rates == list(landau.stream(50, 200, 5, seed=1))
    assert rates != list(landau.stream(50, 200, 5, seed=2))


def test_a_stream_that_does_not_vary() -> None:
    rates = list(landau.stream(5, 3, 0, seed=1))
    assert rates == [rates[0]] * 3


def test_what_one_iteration_decides_the_next_one_finds() -> None:
    # Two consumers; then 1 fits to 0, whose consumer is open; then it needs one of its own again.
    rates = [[0.6, 0.5], [0.6, 0.3], [0.6, 0.5]]
    counts, scores = landau.follow(ALGORITHMS["first-fit"], rates)
    assert counts == [2, 1, 2]
    assert scores == pytest.approx([0, 0.3, 0.5])


POINTS = {"a": Point(0, 3), "b": Point(1, 1), "c": Point(1, 2), "d": Point(2, 1), "e": Point(0, 3)}


def test_the_front_has_what_nothing_beats() -> None:
    assert landau.front(POINTS) == {"a", "b", "e"}


def his(**changed: Point) -> landau.Points:
    """Points as his figures show them."""
    points = {name: Point(0.10, 5.0) for name in landau.LANDAU}
    points["next-fit"], points["next-fit-decreasing"] = Point(0.3, 4), Point(0.2, 3)
    points["best-fit-decreasing"] = Point(0.0, 4)
    points["first-fit-decreasing"] = points["worst-fit-decreasing"] = Point(0.02, 4)
    points["mwf"], points["mbf"] = Point(0.06, 1), Point(0.04, 2)
    points["mwfp"], points["mbfp"] = Point(0.05, 2.5), Point(0.02, 3)
    return points | {name.replace("_", "-"): point for name, point in changed.items()}


def test_his_orderings_hold_where_they_are_as_he_says() -> None:
    assert min(landau.orderings(his()).values()) >= 0


@pytest.mark.parametrize(
    ("changed", "missed", "by"),
    [
        pytest.param({"first_fit": Point(0.31, 5)}, "NF has the worst CBS", -0.01, id="nf"),
        pytest.param({"first_fit": Point(0.25, 5)}, "NFD has the next worst CBS", -0.05, id="nfd"),
        pytest.param(
            {"best_fit_decreasing": Point(0.03, 4)}, "BFD has the best CBS", -0.01, id="bfd"
        ),
        pytest.param(
            {"mbf": Point(0.015, 2)}, "MBFP has the best CBS of the modified", -0.005, id="mbfp"
        ),
        pytest.param({"worst_fit": Point(0.1, 0.9)}, "MWF has the best Rscore", -0.1, id="mwf"),
        pytest.param({"mwfp": Point(0.05, 0.9)}, "MWF is on the Pareto front", -1, id="front"),
        pytest.param({"mwfp": Point(0.05, 0.9)}, "MWFP is not on the Pareto front", -1, id="mwfp"),
        pytest.param(
            {"worst_fit": Point(0.01, 5)}, "FFD, BFD and WFD have the best CBS", -0.01, id="decr"
        ),
        pytest.param(
            {"next_fit_decreasing": Point(0.2, 4.5)},
            "the modified and NFD have the best Rscore",
            -0.5,
            id="nfd-rscore",
        ),
        pytest.param(
            {"mbfp": Point(0.07, 3)},
            "of the modified the best by Rscore is the worst by CBS",
            -0.01,
            id="trade",
        ),
    ],
)
def test_an_ordering_that_does_not_hold_says_by_how_much(
    changed: dict[str, Point], missed: str, by: float
) -> None:
    assert landau.orderings(his(**changed))[missed] == pytest.approx(by)


def test_the_bars_count_the_streams_that_vary() -> None:
    streams = {delta: his() for delta in landau.DELTAS}
    streams[0] = his(first_fit=Point(0.9, 0))
    seeds = dict.fromkeys((1, 2, 3), streams)
    assert [bar.met for bar in landau.bars(seeds)] == [True] * 12
    assert [bar.met for bar in landau.bars({1: streams})] == [None] * 12
    streams[25] = his(first_fit=Point(0.31, 5))
    missed = [bar for bar in landau.bars(seeds) if not bar.met]
    assert [bar.value for bar in missed] == [4, 4]
    assert landau.bars({1: {0: his()}})[0].met is None
    assert any("delta 25 %, seed 1, by 0.0100" in note for note in landau.misses({1: streams}))


def test_landau_s_twelve_and_ours() -> None:
    assert len(landau.LANDAU) == 12
    assert set(landau.SMALL) - set(landau.LANDAU) == {"least-loaded", "exact", "srtm"}


def test_a_short_comparison_is_shown(figure: Any) -> None:
    rates = list(landau.stream(6, 3, 10, seed=1))
    found = {10: landau.compare(landau.SMALL, rates)}
    Console(width=200, quiet=True).print(landau.table_of("some", found))
    landau.draw(figure, found, found)
    assert landau.document(found)[10]["exact"]["cbs"] == 0


@pytest.mark.parametrize("workload", packing.WORKLOADS)
def test_the_workloads(workload: str) -> None:
    items, bins = packing.WORKLOADS[workload].problem(100, seed=1)
    assert (len(items), len(bins.existing)) == (100, 25)
    assert all(item.rate <= packing.MU / 2 and item.lag <= packing.LAG / 2 for item in items)
    assert any(item.lag for item in items) == packing.WORKLOADS[workload].lag
    assert len({room.rate for room in bins.existing}) == (25 if workload == "unequal" else 1)


def timed(name: str, workload: str, size: int, cpu: float) -> packing.Timed:
    return packing.Timed(name, workload, size, (cpu,), 11, 10, 1.0, False)


def test_the_slowest_workload_is_judged(figure: Any) -> None:
    found = [
        timed("mwf", "rate", 1_000, 0.01),
        timed("mwf", "unequal", 1_000, 0.06),
        timed("mwf", "rate", 100_000, 4.9),
    ]
    assert [(bar.value, bar.met) for bar in packing.bars(found, ["mwf"])] == [
        (0.06, False),
        (4.9, True),
    ]
    assert [bar.met for bar in packing.bars([], ["mwf"])] == [None, None]
    Console(width=200, quiet=True).print(packing.table_of(found, "rate"))
    packing.draw(figure, found)
