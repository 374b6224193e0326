"""The arithmetic of the benchmarks of the policy `srtm`; none of their figures."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.autoscaler import clairvoyant
from benchmarks.autoscaler.landau import balanced_packing
from benchmarks.autoscaler.rivals import Rivalry, contest, play_for, rivalries_table
from benchmarks.autoscaler.scaling import Case, Outcome, play
from benchmarks.harness.session import Session
from srtm.autoscaler.packing import Bin, Bins, Item
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of, even_shares
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO

SETTING = Setting(SLO(0.99, 0.5))


def rival(policy: str, rate: float, seconds: int = 20) -> Outcome:
    arrivals = arrivals_of([rate] * seconds, even_shares(2), ArrivalModel.SMOOTH, 1)
    case = Case("the rival", policy, SETTING, lambda seed: arrivals, cooldown_seconds=30.0)
    return play(case, [1, 2])


@pytest.mark.parametrize(
    ("rate", "asked"),
    [pytest.param(20.0, 0.9995, id="all-in-time"), pytest.param(395.0, 0.50, id="most-late")],
)
def test_ours_is_asked_for_what_the_rival_attained_within_reason(rate: float, asked: float) -> None:
    other = rival("linear", rate)
    ours = play_for(other)
    assert [run.setting.slo.percentile for run in ours.runs] == [asked, asked]
    assert {run.setting.slo.target_seconds for run in ours.runs} == {0.5}
    assert [run.setting.seed for run in ours.runs] == [1, 2]
    assert ours.case.policy == "srtm"
    assert {run.policy for run in ours.runs} == {"srtm"}


def test_a_share_in_between_is_asked_for_as_it_is() -> None:
    other = rival("linear", 20.0)
    latency = other.runs[0].latency.copy()
    latency[: len(latency) // 10] = 9.0
    other.runs[0] = replace(other.runs[0], latency=latency)
    assert play_for(other).runs[0].setting.slo.percentile == pytest.approx(0.9)


def test_the_bars_are_the_rival_s_share_and_its_price() -> None:
    cheap, dear = rival("linear", 20.0), rival("linear", 395.0)
    same = Rivalry(cheap, cheap)
    assert [bar.met for bar in same.bars("here")] == [True, True]
    assert same.bars("here")[0].name == "here: srtm against the rival, SLA points"
    worse = Rivalry(rival=cheap, ours=dear)
    assert [bar.met for bar in worse.bars("here")] == [False, False]
    assert worse.points[0] < -0.1
    assert worse.ratios[0] > 1
    assert len(worse.document()["ours"]["runs"]) == 2
    json.dumps([worse.document(), *(bar.document() for bar in worse.bars("here"))])
    Console(width=200, quiet=True).print(rivalries_table("here", [same, worse]))


def test_a_contest_plays_every_case_and_ours_against_the_rivals_named(tmp_path: Path) -> None:
    cases = [replace(rival("linear", 20.0).case, name=name) for name in ("one", "two")]
    outcomes, rivalries = contest(Session(True, tmp_path), cases, ["two"], [1, 2, 3])
    assert list(outcomes) == ["one", "two"]
    assert [len(outcome.runs) for outcome in outcomes.values()] == [3, 3]
    assert [each.rival for each in rivalries] == [outcomes["two"]]
    assert [run.setting.seed for run in rivalries[0].ours.runs] == [1, 2, 3]


# --- the clairvoyant -----------------------------------------------------------------------------


def test_every_bar_of_the_comparison_is_there() -> None:
    found = {m.name: m for m in clairvoyant.matched([1.0], [1.0], quick=False)}
    assert {name: match.at_most for name, match in found.items() if match.at_most} == {
        "first, 50 ms, burst": 1.10,
        "first, 50 ms, poisson": 1.20,
        "first, 500 ms, burst": 1.10,
        "first, 500 ms, poisson": 1.20,
        "first, 2 s, burst": 1.10,
        "first, 2 s, poisson": 1.30,
        "second, 500 ms, burst": 1.25,
        "second, 500 ms, poisson": 1.10,
    }
    assert found["first, 2 s, poisson"].setting.slo.percentile == 0.994
    assert len(found["first, 2 s, poisson"].seeds) >= 3
    assert len(clairvoyant.matched([1.0], [1.0], quick=True)[1].seeds) == 1


def test_ours_and_the_plan_meet_the_same_arrivals(figure: Any) -> None:
    rates = [60.0 + 2 * second for second in range(30)]
    match = clairvoyant.Match("short", rates, ArrivalModel.BURST, clairvoyant.DIRECT, 1.1, (1,))
    result = clairvoyant.Result(match)
    undecided = clairvoyant.bars(result, quick=False)
    assert [bar.met for bar in undecided] == [None, None]
    result.pairs.append(clairvoyant.play(match, 1, effort=0.01))
    ours, theirs = result.pairs[0]
    assert theirs.setting == ours.setting
    assert result.ratios() == [ours.replica_minutes / theirs.replica_minutes]
    ratio, kept = clairvoyant.bars(result, quick=False)
    assert ratio.at_most == 1.1
    assert kept.at_least == 99.0
    assert kept.value == 100 * ours.sla_share
    near = clairvoyant.Result(replace(match, at_most=1.01 * result.ratios()[0]), result.pairs)
    assert [bars[0].met for bars in (clairvoyant.bars(near, quick) for quick in (False, True))] == [
        True,
        None,
    ]
    json.dumps([result.document(), ratio.document(), kept.document()], allow_nan=False)
    Console(width=200, quiet=True).print(clairvoyant.table_of([result]))
    clairvoyant.draw(figure, [result])
    assert result.document()["runs"][0]["clairvoyant"]["replica_minutes"] == theirs.replica_minutes


# --- our groups as a packing ---------------------------------------------------------------------


@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=10),
    owners=st.lists(st.integers(0, 3), min_size=10, max_size=10),
)
def test_balanced_groups_are_a_packing_that_fits(rates: list[float], owners: list[int]) -> None:
    items = [Item(p, rate, consumer=f"c{owners[p]}") for p, rate in enumerate(rates)]
    bins = Bins(Bin(None, 1.0), tuple(Bin(f"c{i}", 1.0) for i in range(4)))
    packed = balanced_packing(items, bins)
    assert sorted(p for filled in packed.filled for p in filled.items) == list(range(len(rates)))
    for filled in packed.filled:
        assert sum(rates[p] for p in filled.items) <= 1 + 1e-6
    assert packed.lower_bound <= packed.count <= len(rates)


def test_balanced_groups_keep_their_partitions_where_they_fit() -> None:
    items = [Item(0, 0.5, consumer="a"), Item(1, 0.4, consumer="a"), Item(2, 0.7, consumer="b")]
    packed = balanced_packing(items, Bins(Bin(None, 1.0), (Bin("a", 1.0), Bin("b", 1.0))))
    assert [(filled.bin.consumer, filled.items) for filled in packed.filled] == [
        ("a", (0, 1)),
        ("b", (2,)),
    ]
    assert packed.moved_rate == 0


def test_a_partition_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="partition 1 exceeds every consumer"):
        balanced_packing([Item(0, 0.0), Item(1, 1.1)], Bins(Bin(None, 1.0)))
