"""Several leaders on one store: what the simulation finds, and at what size they are needed."""

from dataclasses import replace
from math import comb

import pytest

from benchmarks.control.shards.needed import CORE, GATEWAYS, needed, shards_of_gateway
from benchmarks.control.shards.rows import BOTH, Checks, Fenced, Placed, Rows, Stale
from benchmarks.control.shards.world import Case, simulate
from benchmarks.kept import RESULTS
from distributor.model import Publisher
from srtm.limits.contract import Contract
from srtm.report.result import read
from tests.support.cases import LONG

CASE = Case(shards=4, brokers=60, topics=400, load=0.85, seed=1)
SEEDS = range(1, 11 if LONG else 4)


@pytest.mark.parametrize("grouped", [False, True], ids=["hash", "groups"])
def test_sums_hold_and_everybody_finds_room(grouped: bool) -> None:
    for seed in SEEDS:
        found = simulate(replace(CASE, seed=seed, grouped=grouped))
        assert not found.violations
        assert found.is_over
        assert found.placed == found.offered


@pytest.mark.parametrize(
    ("checks", "kind"),
    [
        pytest.param(Checks(capacity=False), "over its capacity", id="no-capacity"),
        pytest.param(Checks(leader=False), "leads no more", id="no-leader"),
    ],
)
def test_without_a_check_the_violation_is_found(checks: Checks, kind: str) -> None:
    cases = [replace(CASE, load=0.97, shards=8, seed=seed, checks=checks) for seed in range(1, 6)]
    assert any(kind in each for case in cases for each in simulate(case).violations)


def test_a_case_has_one_outcome() -> None:
    assert simulate(CASE) == simulate(CASE)


def rows() -> Rows:
    made = Rows(2, {"b": 10}, BOTH)
    for shard in (0, 1):
        made.lead(shard)
    for topic in ("one", "two"):
        made.register(Contract(topic=topic, rate=6, burst=6), (Publisher("p", None, 6.0),))
    return made


SIX = Placed(0, {"p": "b"}, {"b": 6}, {})


def test_a_broker_s_capacity_is_one_for_all_shards() -> None:
    made = rows()
    made.place(0, 1, "one", SIX)
    with pytest.raises(Stale):
        made.place(1, 1, "two", SIX)
    made.place(0, 1, "one", replace(SIX, loads={"b": 4}))
    made.place(1, 1, "two", SIX)
    made.audit()
    assert made.allocated == {"b": [4, 6]}
    assert not made.violations


def test_a_drained_broker_gets_no_more_and_may_get_less() -> None:
    made = rows()
    made.place(0, 1, "one", SIX)
    made.draining.add("b")
    with pytest.raises(Stale):
        made.place(0, 1, "one", replace(SIX, loads={"b": 7}))
    made.place(0, 1, "one", replace(SIX, loads={"b": 5}))


def test_who_leads_no_more_writes_nothing() -> None:
    made = rows()
    made.lead(0)
    with pytest.raises(Fenced):
        made.place(0, 1, "one", SIX)
    made.place(1, 1, "two", SIX)


def test_a_gateway_is_in_nearly_all_of_few_shards_by_hash() -> None:
    topics, shards = 3, 2
    both = 1 - 2 / shards**topics  # not all three in the same one
    assert shards_of_gateway(shards, topics) == pytest.approx(1 + both)
    assert shards_of_gateway(1, topics) == 1
    assert shards_of_gateway(1_000, topics) == pytest.approx(topics - comb(3, 2) / 1_000, abs=1e-5)


def test_what_is_needed_carries_all_gateways_and_one_less_does_not() -> None:
    for each in needed(read(RESULTS / "control.json")):
        per_shard = GATEWAYS * each.report_seconds / CORE
        assert per_shard / each.groups <= 1 < per_shard / max(each.groups - 1, 0.5)
        assert each.groups == each.hash_least <= each.hash_most
