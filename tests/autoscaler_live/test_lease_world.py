"""No partition is ever used by two, whatever is lost, late, frozen or dead; and all of them are
used soon after nothing goes wrong any more."""

import pytest

from srtm.autoscaler.executors.executor import Abilities, Fleet, Wanted
from srtm.autoscaler.live import direct
from srtm.autoscaler.live.figures import document
from srtm.consumer import lease
from srtm.host.clock import NS
from tests.autoscaler_live.world import PARTITIONS, Consumer, World
from tests.support.cases import LONG


@pytest.mark.parametrize("seed", range(8 if LONG else 4))
def test_no_partition_is_used_by_two(seed: int) -> None:
    world = World(seed)
    world.run(40)
    world.settle()
    world.run(20)
    assert world.used() == set(range(PARTITIONS))


@pytest.mark.parametrize("seed", range(4 if LONG else 2))
def test_nor_where_the_living_are_fenced(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that takes everybody for silent at once costs hand-overs, and nothing else."""
    monkeypatch.setattr(direct, "SILENT_LEASES", 0.25)
    World(seed).run(40)


def _overlaps() -> bool:
    for seed in range(20):
        try:
            World(seed).run(40)
        except AssertionError:
            return True
    return False


def test_the_world_would_find_a_take_over_that_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct, "SILENT_LEASES", 0.25)
    monkeypatch.setattr(direct, "take_over_seconds", lambda seconds: 0.0)
    assert _overlaps()


def test_two_controllers_one_of_them_leads() -> None:
    world = World(1, loss=0.0)
    world.calm = True
    world.run(10)
    assert [each.controller.leads for each in world.leaders].count(True) == 1
    (other,) = [each.controller for each in world.leaders if not each.controller.leads]
    assert "leads; this one stands by" in other.fault
    assert lease.take_over_seconds(1.0) > 1.0


def test_who_nobody_launched_is_told_to_leave_where_an_executor_ends_the_others() -> None:
    world = World(1, loss=0.0)
    world.calm = True
    for leader in world.leaders:
        leader.led.abilities = Abilities(restarts=True)
        leader.launcher.fleet = Fleet(running=frozenset({"launched"}))
    launched, stray = Consumer(world, 1.0, launch="launched"), Consumer(world, 1.0)
    world.consumers += [launched, stray]
    world.run(10)
    (leading,) = (each for each in world.leaders if each.controller.leads)
    for _ in range(50):
        assert not leading.controller.dismiss()
        world.run(0.1)
    assert stray.dead
    assert not launched.dead


def test_what_starts_for_the_controller_before_is_waited_for() -> None:
    world = World(1, loss=0.0)
    world.calm = True
    for leader in world.leaders:
        leader.launcher.fleet = Fleet(running=frozenset({"slow"}))
    world.run(2)
    (leading,) = (each for each in world.leaders if each.controller.leads)
    assert "slow" in leading.controller.roster.launched
    world.consumers.append(Consumer(world, 1.0, launch="slow"))
    world.run(1)
    assert "slow" not in leading.controller.roster.launched
    assert "slow" in leading.controller.roster.parts


def test_nobody_is_left_once_the_executor_knows_nobody() -> None:
    """One still starts, and one is frozen and fenced: only the executor can end them."""
    world = World(1, loss=0.0)
    world.calm = True
    frozen = Consumer(world, 1.0, launch="frozen")
    world.consumers.append(frozen)
    for leader in world.leaders:
        leader.launcher.fleet = Fleet(running=frozenset({"frozen", "starting"}))
        leader.decide_at = 100 * NS
    world.run(2)
    (leading,) = (each for each in world.leaders if each.controller.leads)
    frozen.frozen_until = 100 * NS
    for _ in range(40):
        assert not leading.controller.dismiss()
        world.run(0.1)
    assert not leading.led.ledger.members
    assert leading.launcher.leavers == {"frozen", "starting"}
    leading.launcher.fleet = Fleet(leaving=frozenset({"frozen", "starting"}))
    world.run(0.1)
    assert not leading.controller.dismiss()
    leading.launcher.fleet = Fleet()
    world.run(0.1)
    assert leading.controller.dismiss()


def test_who_leads_no_more_wants_nothing_of_its_executor() -> None:
    """It would go on with the old term's launches, and KEDA with its count."""
    world = World(1, loss=0.0)
    world.calm = True
    world.run(10)
    (leading,) = (each for each in world.leaders if each.controller.leads)
    assert leading.controller._crew.count
    wanted: list[Wanted] = []
    leading.controller.executor.want = lambda at, what: wanted.append(what)
    leading.led.begin_anew()
    leading.controller.tick(leading.now)
    assert wanted == [Wanted()]


def test_what_a_policy_warns_of_is_told_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    world = World(1)
    world.settle()
    world.run(20)
    (leading,) = (each for each in world.leaders if each.controller.leads)
    assert document(leading.controller, leading.led)["notes"] == ["a whim cannot be met"]
    assert [each.message for each in caplog.records].count("a whim cannot be met") == 1
