"""The controller of a pool with a played executor and a played channel; time is passed in."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.executors.executor import Abilities, Fleet, Wanted
from srtm.autoscaler.live.choice import LIVE, make_pool_policy
from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.figures import leg_of
from srtm.autoscaler.live.monitor import Monitor, Reading, Sample
from srtm.autoscaler.live.observe import LiveConsumer
from srtm.autoscaler.live.states import State
from srtm.autoscaler.observation import ConsumerState, Observation
from srtm.autoscaler.pool.sampler import PoolReading
from srtm.autoscaler.pool.shares import (
    change_of,
    pool_observation,
    share_count,
)
from srtm.autoscaler.pool.state import PoolState, read_state
from srtm.autoscaler.pool.world import PoolWorld
from srtm.consumer.pool_file import PoolTable
from srtm.host.clock import NS
from srtm.limits.ceiling import EXCEEDED
from srtm.limits.slo import SLO as Objective

SLO = "0.99@500ms"
MU = 100.0


@dataclass
class Played:
    """An executor. stuck: launches come to nothing; refused: they cannot even be begun"""

    abilities: Abilities = field(default_factory=Abilities)
    stuck: bool = False
    refused: str = ""
    there: list[str] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    died: dict[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    asked: int | None = None
    launches: int = 0

    def want(self, at: float, wanted: Wanted) -> None:
        self.asked = wanted.count
        self.there = [each for each in self.there if each not in wanted.leavers]
        self.died = {id_: why for id_, why in self.died.items() if id_ in wanted.launches}
        if self.stuck:
            self.died.update(dict.fromkeys(self.begun, "exceeded quota"))
            self.begun.clear()
        for id_ in wanted.launches:
            if id_ not in self.begun and id_ not in self.died:
                self.launches += 1
                if self.refused:
                    self.died[id_] = self.refused
                    continue
                self.begun.add(id_)
                if not self.stuck and not self.abilities.blind:
                    self.there.append(id_)

    def seen(self) -> Fleet:
        running = frozenset() if self.abilities.blind else frozenset(self.there)
        return Fleet(running=running, leaving=self.leaving, died=dict(self.died))

    def close(self) -> None:
        return None


@dataclass
class Channel:
    """One broker's channel, served as fast as those who are there can."""

    executor: Played
    controller: Controller
    world: PoolWorld
    arrived: float = 0.0
    served: float = 0.0
    at: float = 0.0
    paused: bool = False
    fails: bool = False  # consumers finish nothing
    counts: list[int] = field(default_factory=list)
    monitor: Monitor = field(default_factory=lambda: Monitor(0.5))

    def run(self, seconds: int, rate: float) -> None:
        for _ in range(seconds):
            self.controller.tick(round(self.at * NS))
            for _ in range(10):
                self.at += 0.1
                self.arrived += rate / 10
                speed = MU * len(self.executor.there) / 10
                self.served = min(
                    self.arrived, self.served + speed * (not self.paused and not self.fails)
                )
                self.monitor.see(
                    Sample(self.at, {0: int(self.arrived)}, {0: 0}, {0: int(self.served)})
                )
            ids = list(self.executor.there)
            clients = {f"{id_}@h#0": 0 for id_ in ids}
            reading = PoolReading(
                self.monitor.read(), ("b",), clients, frozenset(ids), 0, 0, self.paused
            )
            self.show(reading)

    def show(self, reading: PoolReading) -> None:
        self.world.seen = reading
        self.controller.decide(reading.reading, round(self.at * NS))
        self.counts.append(len(self.world.consumers))


Make = Callable[..., Channel]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(executor: Played | None = None, tells: bool = True, **keys: Any) -> Channel:
        group = PoolTable(**{"slo": SLO, "mu": MU, "policy": "linear", "max": 6, **keys})
        executor = executor or Played()
        world = PoolWorld(
            group=group,
            abilities=executor.abilities,
            state=PoolState(tmp_path / "x.json"),
            mu=lambda id_: None,
            mean_mu=lambda count: None,
            least_mu=lambda: None,
            tells=tells,
        )
        controller = Controller(
            group=group,
            world=world,
            executor=executor,
            make=lambda slo, mu: make_pool_policy(group.policy, group, mu, slo),
            startup_seconds=30.0,
            state=State.SENTINEL,
        )
        return Channel(executor, controller, world)

    return made


@pytest.mark.parametrize("policy", LIVE)
def test_each_policy_comes_to_rest_with_enough(make: Make, policy: str) -> None:
    channel = make(policy=policy, contract="rate=400,burst=50")
    channel.run(60, 330.0)
    assert channel.controller.fault == ""
    if policy == "flas":  # it takes one away as long as nothing is slow, and again
        return
    if policy != "keda":  # it lets lag stand up to its threshold
        assert math.ceil(330 / MU) <= channel.counts[-1] <= 6
    assert len(set(channel.counts[-15:])) == 1


@pytest.mark.parametrize("policy", ["linear", "contract", "srtm"])
def test_more_than_the_contract_is_warned_of_once(
    make: Make, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel = make(policy=policy, contract="rate=100,burst=20")
    channel.run(10, 90)
    assert EXCEEDED not in caplog.text
    channel.run(20, 300)
    assert caplog.text.count(EXCEEDED) == 1
    assert EXCEEDED in channel.controller.warned.now
    channel.run(80, 50)
    assert EXCEEDED not in channel.controller.warned.now


def test_what_a_contract_needs_too_much_for_is_warned_of(make: Make) -> None:
    channel = make(policy="contract", contract="rate=100,burst=20", slo="0.99@5ms")
    channel.run(5, 50)
    assert "allow a longer latency" in " ".join(channel.controller.warned.now)


def test_it_follows_up_and_down_and_notes_what_it_did(make: Make) -> None:
    channel = make()
    for rate in (50.0, 250.0, 20.0):
        channel.run(10, rate)
    assert channel.counts[5] == 2
    assert channel.counts[15] == 6
    assert channel.counts[-1] == 1
    decisions = channel.world.state.decisions.values()
    assert [each["action"] for each in decisions] == ["up", "up", "up", "down"]
    assert all("took_seconds" in each for each in list(decisions)[2:])
    again = PoolState(channel.world.state.path)
    assert len(again.decisions) == 4
    assert again.startup is not None


def test_a_quota_makes_no_flapping(make: Make) -> None:
    channel = make(Played(stuck=True))
    channel.run(40, 250.0)
    assert channel.executor.launches <= 6 * 9  # later each time: 0.4 s and more, then twice that
    assert channel.counts[-1] == 0
    assert channel.controller.fault == "exceeded quota"
    channel.executor.stuck = False
    channel.run(65, 250.0)
    assert channel.counts[-1] == 6
    assert channel.controller.fault == ""


def test_a_paused_channel_is_left_alone(make: Make) -> None:
    channel = make()
    channel.run(5, 50.0)
    channel.paused = True
    channel.run(20, 500.0)
    assert channel.counts[-1] == 2
    assert "paused" in channel.controller.fault


def test_mu_that_nobody_knows_keeps_the_least(make: Make) -> None:
    channel = make(mu=None, min=2)
    channel.run(10, 500.0)
    assert channel.counts[-1] == 2
    assert "mu is not known" in channel.controller.fault


def test_an_estimate_that_is_too_low_is_no_trap(make: Make) -> None:
    """It was made while something was wrong; what consumers do in the time with work says more."""
    channel = make()
    channel.world.mean_mu = lambda count: 20.0
    channel.run(5, 100.0)
    assert channel.counts[-1] == 6
    channel.world.least_mu = lambda: MU
    channel.run(5, 100.0)
    assert channel.counts[-1] == 3


def test_what_cannot_be_launched_is_told_at_once(make: Make) -> None:
    channel = make(Played(refused="command none: No such file or directory"))
    channel.run(1, 0)
    assert channel.controller.fault == "command none: No such file or directory"


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param('{"decisions": {"a": {"number": "abc"}}}', id="a-number-that-is-none"),
        pytest.param('{"decisions": {"a": {"number": true}}}', id="a-truth"),
        pytest.param('{"decisions": {"a": {"number": 1e400}}}', id="infinite"),
        pytest.param('{"decisions": [1]}', id="a-list"),
    ],
)
def test_a_file_that_no_controller_wrote_begins_anew(tmp_path: Path, kept: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(kept)
    assert read_state(path) == {}


def test_a_policy_that_fails_decides_nothing(make: Make) -> None:
    channel = make(min=2)

    class Failing:
        name = "failing"

        def decide(self, seen: Observation) -> Decision:
            raise RuntimeError("no idea")

    channel.controller._adviser.make = lambda mu: Failing()
    channel.run(5, 500.0)
    assert channel.counts[-1] == 2
    assert channel.controller.fault == "policy linear: no idea"


def test_a_consumer_that_is_gone_is_replaced(make: Make) -> None:
    channel = make()
    channel.run(10, 120.0)
    before = list(channel.executor.there)
    channel.executor.there = before[1:]
    channel.run(3, 120.0)
    assert len(channel.executor.there) == len(before)


def test_a_launch_that_was_given_up_is_no_consumer_while_it_goes(make: Make) -> None:
    channel = make(min=2)
    channel.executor.leaving = frozenset({"hangs"})
    channel.run(5, 10.0)
    assert channel.counts[-1] == 2
    assert "hangs" not in channel.controller.roster.parts
    assert len(channel.executor.there) == 2


def test_nothing_is_done_by_what_was_seen_before_a_pause(make: Make) -> None:
    channel = make()
    channel.at = 60.0
    channel.show(PoolReading(_quiet(), ("b",), {}, frozenset()))
    channel.controller.tick(round(channel.at * NS))
    assert channel.executor.launches == 0


def test_consumers_that_nobody_launched_count(make: Make) -> None:
    """They are clients of the channel that are not ours: no more are launched beside them."""
    executor = Played()
    channel = make(executor)
    clients = {"x@h#0": 0, "y@h#0": 0}
    reading = PoolReading(_quiet(), ("b",), clients, frozenset({"x", "y"}))
    channel.show(reading)
    assert executor.launches == 0
    assert [each.ours for each in channel.world.consumers] == [False, False]


def _quiet() -> Reading:
    monitor = Monitor(0.5)
    monitor.see(Sample(0.0, {0: 0}, {0: 0}, {0: 0}))
    return monitor.read()


def test_keda_is_told_how_many_and_starts_them(make: Make) -> None:
    """Who is there is known by their clients; nobody can be ended by name."""
    executor = Played(Abilities(restarts=True, anonymous=True, blind=True))
    channel = make(executor)
    channel.run(3, 150.0)
    assert executor.asked == 4
    assert channel.counts[-1] == 4  # all of them still start
    executor.there = ["a", "b", "c", "d"]
    channel.run(3, 150.0)
    assert not channel.controller.roster.launched
    channel.run(5, 20.0)
    assert executor.asked == 1
    assert channel.counts[-1] == 4
    executor.there = ["c"]
    channel.run(2, 20.0)
    assert (executor.asked, channel.counts[-1]) == (1, 1)


# --- shares -----------------------------------------------------------------------------------


@given(
    most=st.integers(1, 1000),
    mu=st.lists(st.one_of(st.none(), st.floats(1, 1000)), max_size=8),
    rate=st.floats(0, 1e5),
)
@settings(max_examples=50)
def test_shares_are_the_whole_load_each_once(
    most: int, mu: list[float | None], rate: float
) -> None:
    shares = share_count(max(most, len(mu)))
    assert shares >= most
    monitor = Monitor(0.5)
    monitor.see(Sample(0.0, {0: 0, 1: 0}, {}, {}))
    monitor.read()
    monitor.see(Sample(1.0, {0: int(rate), 1: 7}, {}, {}))
    consumers = [LiveConsumer(f"c{n}", mu=each) for n, each in enumerate(mu)]
    seen = pool_observation(monitor.read(), consumers, 50.0, shares, 1.0)
    assert seen.rate == pytest.approx(int(rate) + 7)
    assert seen.lag == pytest.approx(int(rate) + 7)
    if consumers:
        assert sorted(seen.owners) == list(range(shares))
        whole = sum(each or 50.0 for each in mu)
        for each, given_ in zip(seen.consumers, mu, strict=True):
            assert abs(len(each.partitions) - shares * (given_ or 50.0) / whole) <= 1


def test_who_leaves() -> None:
    consumers = [
        LiveConsumer("a"),
        LiveConsumer("b"),
        LiveConsumer("foreign", ours=False),
        LiveConsumer("s", state=ConsumerState.STARTING),
    ]

    def down(*kept: str) -> tuple[str, ...]:
        members = tuple(Member(each, ()) for each in kept)
        return change_of(Decision(Action.DOWN, members), consumers).leavers

    assert down("a", "b", "s") == ("s",)
    assert down("b", "foreign") == ("s", "a")
    assert down("a") == ("s", "b", "a")  # a foreign one cannot be ended
    up = Decision(Action.UP, tuple(Member(each, ()) for each in ("a", "b", "foreign", "s", None)))
    assert change_of(up, consumers).launches == 1
    assert change_of(Decision(Action.REASSIGN, up.members[:4]), consumers).launches == 0


def test_a_pool_that_serves_nothing_is_not_well(make: Make) -> None:
    channel = make()
    channel.run(5, 10)
    assert channel.controller.fault == ""
    channel.fails = True
    channel.run(15, 10)
    assert "nothing is served, and events have waited" in channel.controller.fault
    assert channel.controller.oldest_wait > 10


def test_another_slo_is_kept_with_what_was_seen(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    channel = make(policy="srtm", slo="0.99@500ms")
    channel.run(60, 100.0)
    controller = channel.controller
    before = controller.budget
    controller.aim(Objective.parse("0.99@500ms over 1h"))
    assert controller.budget is before
    assert "from now on" not in caplog.text
    controller.aim(Objective.parse("0.9@20s over 1h"))
    channel.monitor.aim(20.0)
    assert controller.budget.served == 0
    assert "SLO 0.9@20s over 1h from now on; it was 0.99@500ms over 1h" in caplog.text
    channel.run(3, 100.0)
    assert len(controller.seen) == 63
    channel.run(200, 100.0)
    assert channel.counts[-1] == math.ceil(100 / MU)
    leg = leg_of(controller, topic="t", channel="c")
    assert leg["slo"] == "0.9@20s over 1h"
    assert sum(leg["shares"]) == pytest.approx(100.0, rel=0.1)
    assert leg["mu"] == MU
    assert leg["startup_seconds"] > 0
