"""SRTM's experiments: scales, designs, verdicts; and one small run on real brokers."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments import live, paper
from benchmarks.experiments.experiment import AT_SAME, Experiment, Points, claims_table, draw, shown
from benchmarks.experiments.growth import world
from benchmarks.experiments.point import CURVE, Point
from benchmarks.experiments.scale import PAPER_CAPACITIES, paper_scale, scale_of
from benchmarks.experiments.scenario import SPARES, Scenario
from benchmarks.experiments.simulated import Effort, Simulated, place
from benchmarks.experiments.world import local_world
from benchmarks.gateway.drl_penalty import fig_6_bars, fig_6_table
from benchmarks.harness.bars import Bar
from benchmarks.harness.session import Session
from distributor.simulator.service import Service
from srtm.testbed.inventory import read_inventory
from srtm.testbed.state import SavedTestbed, digest, identity, save
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from tests.support.servers import program

LAB = """
[deployment]
name = "lab"
data-path = "d"
[[host]]
name = "h1"
[distributor]
[[broker]]
[[broker]]
tcp-address = "127.0.0.1:4250"
http-address = "127.0.0.1:4251"
"""
SMALL = Effort(2, 3_000)
EXPERIMENTS = [paper.CONCENTRATION, paper.MAX_MIN, paper.CORRELATION, paper.NOISY_CORRELATION]


def point(design: str, ratio: float, brokers: int = 1, lag: float = 0.0) -> Point:
    p99 = (ratio * 0.001,) * 2
    scenario = Scenario("s", 1_000)
    return Point(scenario, design, 0.001, brokers, 10.0, p99, p99, 0.0, (0.001,) * len(CURVE), lag)


def points(what: Experiment, of: Callable[[float, str], Point]) -> Points:
    return {
        (panel.label, x, design): of(x, design)
        for panel in what.panels
        for x in panel.scenarios
        for design in panel.designs
    }


def verdicts(bars: list[Bar]) -> set[bool | None]:
    return {bar.met for bar in bars}


# --- scale ------------------------------------------------------------------------------------


def test_the_paper_s_broker_holds_what_its_text_says() -> None:
    scale = paper_scale()
    for batch, rate in PAPER_CAPACITIES.items():
        assert scale.service.capacity(scale.slo, batch) == pytest.approx(rate, rel=1e-6)
    assert scale.service.latency(60_000, 1, 0.99) > scale.slo.target_seconds


@pytest.mark.parametrize("rate", [0.01, 4.0])
def test_another_scale_is_the_same_experiment_in_slow_motion(rate: float) -> None:
    scenario = Scenario("slow", 200, "poisson", 10, 10)
    there, here = (
        Simulated(scenario, scale, SMALL).point("srtm", 2)
        for scale in (paper_scale(), scale_of(rate))
    )
    assert here.ratio == pytest.approx(there.ratio, rel=1e-3)
    assert here.burst == there.burst


def test_few_connections_send_what_many_would() -> None:
    many = Scenario("many", 8_000)
    assert live.few(many).offered == many.offered
    assert live.few(many).publishers < many.publishers
    for kept in (replace(many, arrivals="periodic"), replace(many, group_size=5)):
        assert live.few(kept) is kept, "other publishers would be another experiment"


# --- designs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["lb", "conc", "max-min", "srtm"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_design_takes_as_many_brokers_as_it_is_told(design: str, count: int) -> None:
    scenario, scale = Scenario("d", 300, batch=10, group_size=5), paper_scale()
    everybody = scenario.everybody(scale)
    contract = scenario.contract(scale, scenario.traffic(scale, 20.0, 1))
    brokers = scenario.brokers(scale, 85_000)
    found = place(design, contract, brokers, everybody, count)
    assert len(found.brokers) == (6 if design == "lb" else count)
    assert not found.unplaced
    assert sum(each.publishers for each in found.brokers) == 300


def test_conc_levels_all_load_and_max_min_the_topic_s() -> None:
    scenario = Scenario("levels", 600, initial=(1_000.0, 4_000.0, 5_000.0, 9_999, 9_999, 9_999))
    scale = paper_scale()
    everybody = scenario.everybody(scale)
    contract = scenario.contract(scale, scenario.traffic(scale, 5.0, 1))
    brokers = scenario.brokers(scale, 6_000)
    rates = {
        design: {
            each.name: each.rate for each in place(design, contract, brokers, everybody, 3).brokers
        }
        for design in ("conc", "max-min")
    }
    assert rates["max-min"]["b3"] > rates["conc"]["b3"]
    assert rates["conc"]["b1"] > rates["max-min"]["b1"]


# --- simulated --------------------------------------------------------------------------------


def test_a_split_costs_waits_and_groups_apart_save_them() -> None:
    scale = paper_scale()
    topic = Simulated(Scenario("c", 1_000), scale, Effort(2, 20_000))
    assert topic.point("conc").met
    assert not topic.point("lb").met
    groups = Simulated(Scenario("g", 1_000, "periodic", 10, 25), scale, Effort(1, 30_000))
    apart = groups.point("srtm")
    assert apart.brokers > 1
    assert groups.point("max-min", apart.brokers).mean > apart.mean


def test_the_repetitions_that_choose_a_number_of_brokers_do_not_judge_it() -> None:
    scenario, scale = Scenario("c", 500), paper_scale()
    chosen = Simulated(scenario, scale, SMALL).point("conc")
    judged = Simulated(scenario, scale, SMALL).point("conc", chosen.brokers)
    assert chosen.p99 == judged.p99, "those of the seeds that everything is judged by"
    topic = Simulated(scenario, scale, SMALL)
    topic.point("conc")
    assert min(each for each in topic._sent if each) == 1
    assert max(topic._sent) >= 10_000, "others chose"


def test_b_is_srtm_s_and_twice_it() -> None:
    scenario, scale = Scenario("c", 500), paper_scale()
    one, twice = (Simulated(scenario, scale, SMALL, each).contract for each in SPARES.values())
    assert twice.burst == 2 * one.burst


def test_where_no_number_of_brokers_is_enough_the_best_is_shown() -> None:
    slow = replace(paper_scale(), service=Service(0.002, 0.0, 1e-5))
    found = Simulated(Scenario("slow", 500), slow, SMALL).point("conc")
    assert not found.met
    assert len(found.p99) == SMALL.repetitions


def test_cost_is_told_of_every_world() -> None:
    small = world(12, 24_000, "srtm", 0.02)
    assert (small.topics, small.publishers, small.brokers) == (2, 24_000, 12)
    assert small.messages > 0
    assert small.used == 3


# --- verdicts ---------------------------------------------------------------------------------


def as_the_paper(what: Experiment, x: float, design: str) -> Point:
    ratios = {"lb": 3.0, "conc": 0.9, "max-min": 0.8, "srtm": 0.5, AT_SAME: 2.0}
    if x == 16:  # ms of noise: nothing to gain
        return point(design, 0.5, 1)
    if what is paper.CORRELATION and design == "max-min":
        return point(design, 1.5, 2)
    return point(design, ratios[design], 6 if design == "max-min" else 4)


@pytest.mark.parametrize("what", EXPERIMENTS, ids=lambda each: each.name)
def test_what_the_paper_shows_meets_every_bar(what: Experiment) -> None:
    assert verdicts(what.bars(points(what, partial(as_the_paper, what)), "b", False)) == {True}


@pytest.mark.parametrize("what", EXPERIMENTS, ids=lambda each: each.name)
def test_the_opposite_misses(what: Experiment) -> None:
    def opposite(x: float, design: str) -> Point:
        ratios = {"lb": 0.9, "conc": 1.1, "max-min": 1.2, "srtm": 1.3, AT_SAME: 0.4}
        if x == 16:
            return point(design, 9.0 if design == AT_SAME else 1.3, 6)
        if what.name == "correlation" and design == "max-min":
            return point(design, 0.9, 2 if x == paper.SIZES[1] else 6)
        return point(design, ratios[design], 3)

    assert verdicts(what.bars(points(what, opposite), "b", False)) == {False}


@pytest.mark.parametrize("what", EXPERIMENTS, ids=lambda each: each.name)
def test_what_was_not_simulated_is_undecided(what: Experiment) -> None:
    assert verdicts(what.bars({}, "b", True)) == {None}


LIVE = [*live.PANELS.values()]


def measured(what: live.Live, of: Callable[[str], float], lag: float = 0.0) -> Points:
    """of: the ratio to the target by design; what groups gain fades where a panel says so."""
    found = {}
    for x in what.xs:
        for design in what.designs:
            ratio = of(design) if x == what.xs[0] else 0.9
            shown_ = point(design, ratio, lag=lag)
            found[what.panel.label, x, design] = replace(shown_, p99=(ratio * 0.001,) * 10)
    return found


def meets_the_paper(design: str) -> float:
    return {"lb": 3.0, "conc": 0.5, "max-min": 0.8, "srtm": 0.5, AT_SAME: 2.0}[design]


def opposite(design: str) -> float:
    return {"lb": 0.9, "conc": 1.1, "max-min": 1.2, "srtm": 1.3, AT_SAME: 0.4}[design]


@pytest.mark.parametrize("what", LIVE, ids=lambda each: each.panel.label)
def test_a_measured_panel_is_judged_as_the_paper_states_it(what: live.Live) -> None:
    first = replace(what, xs=what.xs[:1], fades=False)
    assert verdicts(live.bars(first, measured(first, meets_the_paper), False, "")) == {True}
    assert verdicts(live.bars(first, measured(first, opposite), False, "")) == {False}
    assert verdicts(live.bars(what, {}, False, "")) == {None}
    assert verdicts(live.bars(first, measured(first, opposite), False, "too busy")) == {None}
    if what.fades:
        *_, fades = live.bars(what, measured(what, meets_the_paper), False, "")
        assert (fades.value, fades.met) == (4.0, True)


def test_a_late_generator_decides_only_what_it_cannot_have_made_better() -> None:
    what = live.PANELS["7a"]
    found = live.bars(what, measured(what, meets_the_paper, lag=0.0005), False, "")
    assert {bar.name.partition(": 7a, 8000: ")[2]: bar.met for bar in found} == {
        "conc: p99 over the target": True,
        "srtm: p99 over the target": True,
        "lb: p99 over the target": None,
        "share of repetitions in which conc is better than lb": None,
        "share of repetitions in which srtm is better than lb": None,
    }


def test_a_better_design_needs_nine_of_ten_repetitions() -> None:
    what = live.PANELS["9a"]

    def better(wins: int, of: int) -> Bar:
        found = measured(what, meets_the_paper)
        worse = ("9a", 25, AT_SAME)
        p99 = (0.002,) * wins + (0.0001,) * (of - wins)
        found[worse] = replace(found[worse], p99=p99)
        return live.bars(what, found, False, "")[-1]

    assert [better(wins, 10).met for wins in (10, 9, 8)] == [True, True, False]
    assert better(9, 9).met is None


def test_fig_6_asks_for_its_shape() -> None:
    growing = [(0.0, 0.0, 0.001 * k) for k in range(1, 7)]
    best_at_two = [(0.0, 0.0, each) for each in (0.1, 0.001, 0.002, 0.003, 0.004, 0.005)]
    assert verdicts(fig_6_bars(growing, best_at_two)) == {True}
    assert verdicts(fig_6_bars(growing[::-1], growing)) == {False}
    assert fig_6_table(growing, best_at_two).row_count == 6


def test_figures_are_drawn_and_tabled(figure: Any) -> None:
    what = paper.CORRELATION
    panel = what.panels[0]
    found = points(what, partial(as_the_paper, what))
    made = panel.tabled(dict.fromkeys(SPARES, found))
    assert made.row_count == len(paper.SIZES)
    assert len(made.columns) == 1 + 2 * len(panel.designs) + 1 + 2
    judged = {of: what.bars(found, of, False) for of in SPARES}
    assert judged["2 b"][0].name.startswith("simulated, 2 b: 9a (poisson): SRTM's p99 over")
    assert claims_table(judged).row_count == len(judged["b"])
    assert shown(point("lb", 3.0, 6)) == "3 +- 0 (6) late"
    draw(figure, [panel], found)
    assert len(figure.axes) == 2
    assert point("lb", 3.0).document()["p99_mean_ms"] == pytest.approx(3.0)


# --- measured ---------------------------------------------------------------------------------


def test_a_case_is_measured_on_real_brokers(tmp_path: Path) -> None:
    """Two brokers, one with other load: all designs send every message, and what is measured is
    never faster than the buckets allow."""
    program("nsqd")
    scale = scale_of(0.02, Service(0.0, 0.0, 1e-6))
    scenario = Scenario("8a", 20, rate=1_000, initial=(5_000.0, 0.0))
    with local_world(tmp_path / "brokers", 2) as world_:
        for design in ("lb", "max-min"):
            found = world_.measure(scenario, scale, design, 1_000.0, 1.0, 1)
            assert len(found.placement.brokers) == (2 if design == "lb" else 1)
            assert found.placement.policy == design
            assert found.seen.latencies.size > 100
            assert found.worst >= found.seen.token_wait(0.99)
            assert found.overall > 0
        # Nobody finds room, and nothing of it is left.
        with pytest.raises(SrtmError, match="would place nobody"):
            world_.measure(replace(scenario, initial=()), scale, "max-min", 1.0, 1.0, 1)
        assert world_.topics() == []
    assert isinstance(Session(True, tmp_path).seconds_left, float)


def test_a_testbed_that_will_not_do_is_told_first(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(LAB.replace("[[broker]]", '[[broker]]\nhost = "h1"'))
    session = Session(True, tmp_path, hosts=file)
    with pytest.raises(UnavailableError, match=r"it is not up: srtm testbed up .*lab\.toml"):
        live.run(session, "8a")
    inventory = read_inventory(file)
    save(
        inventory.folder,
        SavedTestbed(
            id=identity(inventory),
            file=str(file),
            digest=digest(inventory),
            subnet=0,
            hosts=inventory.hosts,
        ),
    )
    with pytest.raises(UsageError, match=r"lab\.toml has 2 brokers, and \d are needed"):
        live.run(session, "8a")
