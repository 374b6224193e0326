"""What a controller keeps for the next one: policies and budgets go on as if nothing had been."""

from dataclasses import replace
from typing import Any

import pytest

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.live.adviser import Adviser
from srtm.autoscaler.live.choice import make_policy
from srtm.autoscaler.live.memory import KEPT, Keeper, read, written
from srtm.autoscaler.live.weights import Weights
from srtm.autoscaler.observation import ConsumerSeen, ConsumerState, Observation, PartitionSeen
from srtm.consumer.file import GroupTable
from srtm.consumer.wire import Memory
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO

GROUP = GroupTable.model_validate(
    {"topic": "t", "id": "g", "slo": "0.99@500ms", "mu": 100.0, "min": 1, "max": 4}
)


def seen(second: int, clock: float = 0.0) -> Observation:
    """A rate that rises and falls, on two consumers."""
    rate = 40.0 + 30.0 * ((second // 20) % 3)
    return Observation(
        at=clock + second,
        partitions=tuple(
            PartitionSeen(p, rate, 5.0 * p, tuple(round(rate / 10) for _ in range(10)))
            for p in range(4)
        ),
        consumers=(
            ConsumerSeen("a", 100.0, (0, 1)),
            ConsumerSeen("b", 90.0, (2, 3), ConsumerState.STARTING if second % 50 == 7 else
                         ConsumerState.RUNNING),
        ),
        new_mu=100.0,
        rebalance_seconds=0.05,
        startup_seconds=2.0,
        stopped_seconds=0.04,
        staying_seconds=0.1,
        served=160,
        late=second % 3,
    )  # fmt: skip


class Topic:
    """Keeps the last record of each key."""

    def __init__(self) -> None:
        self.kept: dict[str, Memory] = {}
        self.wall = 1_000_000.0

    def keeper(self) -> Keeper:
        return Keeper(lambda word: self.kept.update({word.name: word}), lambda: self.wall)


def decided(adviser: Adviser, observations: list[Observation]) -> list[Decision]:
    return [adviser.ask(each) for each in observations]


def adviser(name: str) -> Adviser:
    return Adviser(name, lambda mu: make_policy(name, GROUP, mu))


@pytest.mark.parametrize("name", ["srtm", "keda", "closer2", "li-ku"])
def test_a_policy_goes_on_where_the_controller_before_it_stopped(name: str) -> None:
    """On a machine whose clock shows another time."""
    topic, first = Topic(), adviser(name)
    keeper = topic.keeper()
    for second in range(120):
        first.ask(seen(second))
        keeper.keep(seen(second))
        topic.wall += 1.0
    second = adviser(name)
    recalled = topic.keeper().recall(topic.kept.values(), GROUP.slo, 5120.0, 1.0)
    assert [each.at for each in recalled.past] == [5000.0 + n for n in range(120)]
    second.recall(recalled.past)
    rest = range(120, 180)
    before = decided(first, [seen(each) for each in rest])
    after = decided(second, [seen(each, 5000.0) for each in rest])
    same = [(a.action, len(a.members)) == (b.action, len(b.members))
            for a, b in zip(before, after, strict=True)]  # fmt: skip
    assert all(same[2:])  # what is kept is shown in parts, the first two without an answer
    fresh = decided(adviser(name), [seen(each) for each in rest])
    if name == "srtm":  # or the test could not fail
        assert [each.reason for each in fresh] != [each.reason for each in after]


def test_an_observation_comes_back_as_it_was() -> None:
    for each in (seen(7), replace(seen(8), staying_seconds=None, stopped_seconds=None)):
        assert read(written(each)) == each


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"number": "x", "wall": 0},
        {"number": 1, "wall": 0.0, "partitions": 7},
        {"number": 1, "wall": 0.0, **written(seen(1)), "partitions": [[0, -1.0, 0.0]]},
        {"number": 1, "wall": 0.0, **written(seen(1)), "new_mu": 0.0},
        {"number": 1, "wall": 0.0, **written(seen(1)), "consumers": [["a", 1.0, "asleep"]]},
        {"number": 10**400, "wall": 0.0, **written(seen(1)), "at": 10**400},
        {"number": 1, "wall": 0.0, **written(seen(1)), "served": 10**400},
        {"number": 1, "wall": 0.0, **written(seen(1)), "late": -1},
        {"number": 1, "wall": float("nan"), **written(seen(1))},
    ],
)
def test_what_is_not_understood_is_passed_over(document: dict[str, Any]) -> None:
    keeper = Topic().keeper()
    found = keeper.recall([Memory(name="0001", document=document)], GROUP.slo, 0.0, 1.0)
    assert found.past == ()
    for wall, cells in ((0.0, [[1, "x"]]), (0.0, [[1, 10**400, 0]]), (float("nan"), [[1, 2, 0]])):
        odd = Memory(name="budget", document={"number": 1, "wall": wall, "cells": cells})
        assert keeper.recall([odd], GROUP.slo, 0.0, 1.0).budget is None


def test_a_budget_goes_on() -> None:
    """The last cells stand in the observations that came after it was written."""
    topic, slo = Topic(), SLO.parse("0.99@500ms over 1h")
    keeper, budget = topic.keeper(), RollingBudget(slo)
    for second in range(1000):
        budget.add(float(second), 160, second % 3)
        keeper.keep(seen(second))
        keeper.keep_budget(float(second), budget)
        topic.wall += 1.0
    topic.wall += 60.0
    found = topic.keeper().recall(topic.kept.values(), slo, 50.0, 1.0).budget
    assert found is not None
    assert (found.served, found.late) == (budget.served, budget.late)
    assert found.left == pytest.approx(budget.left)
    for second in range(3600):
        found.add(51.0 + second, 10, 0)
    assert found.late == 0  # what was before has left the window


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_a_clock_that_was_stepped_makes_it_forget_at_most(step: float) -> None:
    topic = Topic()
    keeper, budget = topic.keeper(), RollingBudget(GROUP.slo)
    for second in range(100):
        budget.add(float(second), 160, 1)
        keeper.keep(seen(second))
        keeper.keep_budget(float(second), budget)
    topic.wall += step
    found = topic.keeper().recall(topic.kept.values(), GROUP.slo, 100.0, 1.0)
    assert len(found.past) in (0, 100)
    if found.budget is not None:
        assert found.budget.served <= budget.served


def test_the_ring_is_bounded() -> None:
    topic = Topic()
    keeper = topic.keeper()
    for second in range(KEPT + 50):
        keeper.keep(seen(second))
    assert len(topic.kept) == KEPT
    recalled = topic.keeper().recall(topic.kept.values(), GROUP.slo, 0.0, 1.0)
    assert recalled.past[-1].served == 160
    assert len(recalled.past) == KEPT


def test_bytes_of_an_event_follow_what_comes_and_not_what_is_deleted() -> None:
    weights = Weights()
    weights.see({0: 10_000, 1: 0}, {0: 0, 1: 0}, {0: 100, 1: 0})
    assert weights.weight(0) == 100
    assert weights.weight(1) == 100  # as the others
    weights.see({0: 60_000}, {0: 0}, {0: 350})
    assert 100 < weights.weight(0) < 200
    before = weights.weight(0)
    weights.see({0: 5_000}, {0: 340}, {0: 365})  # retention took the rest
    assert weights.weight(0) == 200
    assert before != 200
