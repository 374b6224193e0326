"""The benchmark `chain`: the splits that it gives out, and what it judges; no figures."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from benchmarks.autoscaler.chain import bars, draw, table_of
from benchmarks.autoscaler.chain_runs import (
    WAYS,
    WHOLE,
    Allotment,
    Traffic,
    Trial,
    Way,
    equal_part,
    plans,
    trials,
)
from srtm.autoscaler.simulator.workload import web_like
from srtm.journey.frontier import Allowance

PART = Allowance(0.25, 0.005)
SHORT = Traffic("short", lambda seed: web_like(12, 120.0, seed))


def trial(
    late: float, *by_service: float, way: Way = Way.EQUAL, minutes: float = 10.0, note: str = ""
) -> Trial:
    services = len(by_service)
    plan = Allotment((equal_part(services),) * services, (PART,) * services, note)
    return Trial("iot", "srtm", way, 1, plan, late, by_service, minutes)


KEPT = trial(0.004, 0.004, 0.005)
BROKEN = trial(0.02, 0.03, 0.0)


@pytest.mark.parametrize("services", [2, 3, 7])
def test_equal_parts_allow_no_more_than_the_whole(services: int) -> None:
    part = equal_part(services)
    assert services * part.target_seconds <= WHOLE.target_seconds + 1e-9
    assert services * part.allowed_late_share <= WHOLE.allowed_late_share + 1e-9
    assert services * part.target_seconds == pytest.approx(WHOLE.target_seconds, rel=0.01)
    assert services * part.allowed_late_share == pytest.approx(WHOLE.allowed_late_share, rel=0.01)


@pytest.mark.parametrize("policy", ["srtm", "closer2"])
def test_the_parts_of_a_plan_add_up(policy: str) -> None:
    for services, ways in plans(SHORT, policy, (2, 3)).items():
        assert list(ways) == list(Way)
        for plan in ways.values():
            assert len(plan.slos) == len(plan.parts) == services
            assert sum(part.seconds for part in plan.parts) <= WHOLE.target_seconds + 1e-9
            late = sum(part.late_share for part in plan.parts)
            assert late <= WHOLE.allowed_late_share + 1e-9


def test_every_policy_runs_each_way_and_the_bound_holds() -> None:
    found = [each for policy in WAYS for each in trials(SHORT, policy, (2,), (1, 2))]
    assert len(found) == (3 + 3 + 1) * 2
    assert all(each.late <= sum(each.by_service) + 1e-9 for each in found)
    assert all(each.keeps for each in found if each.keeps_parts)
    assert all(each.minutes > 0 for each in found)
    again = trials(SHORT, "closer2", (2,), (1, 2))
    assert again == [each for each in found if each.policy == "closer2"]


def test_the_bars_count_what_should_not_be() -> None:
    impossible = trial(0.02, 0.004, 0.005)
    assert [bar.met for bar in bars([KEPT, BROKEN])[:3]] == [True, True, False]
    assert [bar.value for bar in bars([KEPT, impossible, impossible])[:2]] == [2.0, 2.0]
    (kept,) = bars([KEPT, KEPT, BROKEN])[2:-1]
    assert kept.value == pytest.approx(200 / 3)
    assert [bar.met for bar in bars([BROKEN])] == [True, None, False, None]
    assert [bar.met for bar in bars([KEPT], "short")] == [True, True, None, None]


def test_the_cost_is_of_splits_that_were_promised() -> None:
    dear, cheap = (trial(0.0, 0.0, way=Way.PLANNED, minutes=m) for m in (12.0, 8.0))
    equal = trial(0.0, 0.0)
    assert bars([cheap, equal])[-1].value == pytest.approx(0.8)
    assert bars([dear, equal])[-1].met is False
    stays = trial(0.02, 0.03, way=Way.PLANNED, note="no split is promised")
    cost = bars([stays, equal])[-1]
    assert (cost.met, cost.why) == (None, "no split is promised")
    assert bars([equal, stays])[3].why == "no split is promised"


def test_a_report_shows_every_case(figure: Any) -> None:
    shown = [KEPT, BROKEN, trial(0.0, 0.0, 0.0, 0.0, way=Way.PLANNED)]
    made = table_of(shown)
    Console(width=200, quiet=True).print(made)
    assert made.row_count == 2
    json.dumps([asdict(each) for each in shown], allow_nan=False)
    draw(figure, shown)
