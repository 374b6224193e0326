"""Which SLOs the parts of a journey get."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from srtm.consumer.pool_file import PoolFile
from srtm.journey.apart import planned_apart
from srtm.journey.causes import Leg
from srtm.journey.file import read_journeys
from srtm.journey.plan import planned
from srtm.journey.planning import inputs
from srtm.journey.simulated import Group, Simulated, simulated, sobered
from srtm.journey.split import Impossible, Split
from srtm.limits.bins import Bins, key_of, seconds_of
from srtm.limits.slo import SLO
from srtm.text.errors import UnavailableError, UsageError

POOL = PoolFile.model_validate(
    {
        "nsq": {
            "topic": "t",
            "channel": "c",
            "nsqd": ["127.0.0.1:1"],
            "nsqd-http": ["127.0.0.1:2"],
        },
        "group": {"slo": "0.95@1s"},
    }
)
GROUP = Group(POOL, 20.0, [0.5] * 2, 0.0, 1.0)
RATES = [30.0] * 8


def leg(milliseconds: float, tail_ms: float = 0.0) -> Bins:
    """20,000 messages of which one in a thousand takes the longer time."""
    bins = Counter({key_of(milliseconds / 1e3): 19_980})
    bins[key_of((tail_ms or milliseconds) / 1e3)] += 20
    return bins


@pytest.fixture(scope="module")
def slo() -> SLO:
    return SLO.parse("0.95@2s over 1h")


def test_the_parts_keep_the_whole(slo: SLO) -> None:
    done: list[float] = []
    legs = {Leg.BROKER: leg(2, 40), Leg.BRIDGE: leg(5, 100), Leg.CONSUMER: leg(60)}
    plan = planned(slo, legs, RATES, GROUP, progress=done.append)
    assert isinstance(plan.found, Split)
    assert plan.consumers is not None
    assert plan.consumers >= 1.5  # 30/s at 20/s each
    assert list(plan.slos) == [Leg.BROKER, Leg.BRIDGE, Leg.CONSUMER]
    assert sum(each.seconds for each in plan.found.parts.values()) <= 2.0 + 1e-9
    assert sum(each.late_share for each in plan.found.parts.values()) <= 0.05 + 1e-9
    assert plan.equal is None or plan.consumers <= plan.equal
    assert plan.slos[Leg.CONSUMER].window_seconds == 3600
    assert plan.slos[Leg.BROKER].window_seconds is None  # a contract's SLO has none
    assert done == sorted(done)
    assert done[0] == 0


def test_what_a_real_consumer_adds_is_added_to_what_is_simulated(slo: SLO) -> None:
    """The simulator serves a message in 50 ms; the median that was measured is 1.5 s."""
    plan = planned(slo, {Leg.BROKER: leg(2), Leg.CONSUMER: leg(1_500)}, RATES, GROUP)
    assert isinstance(plan.found, Split)
    assert plan.found.options["consumer"].frontier.seconds.min() > 1.4


def test_no_slo_is_below_what_each_message_waits_for(slo: SLO) -> None:
    """With room to spare, a stricter SLO costs nothing in the simulation."""
    legs, rates = {Leg.BROKER: leg(2), Leg.CONSUMER: leg(700)}, [40.0] * 15
    plan = planned(slo, legs, rates, replace(GROUP, mu=500.0))
    assert plan.slos[Leg.CONSUMER].target_seconds > 0.7


def test_a_queue_that_is_simulated_is_not_added_again(slo: SLO) -> None:
    """Consumers that kept a loose SLO had a queue, which is of no other SLO."""
    loose, rates = SLO.parse("0.5@10s over 1h"), [39.0] * 15
    legs = {Leg.BROKER: leg(2), Leg.CONSUMER: leg(800)}
    blind = planned(slo, legs, rates, GROUP, loose)
    told = planned(slo, legs, rates, GROUP, loose, kept=loose)
    assert isinstance(blind.found, Split)
    assert isinstance(told.found, Split)
    least = [each.found.options["consumer"].frontier.seconds.min() for each in (blind, told)]
    assert least[1] < least[0]


def test_a_policy_has_seen_the_traffic_before() -> None:
    """It began with 3 consumers, and 1,500 messages came in 15 s: a policy that did not know of
    the crowd would be late for a seventh of them."""
    rates = [10.0] * 15 + [100.0] * 15 + [10.0] * 15
    found = simulated(SLO.parse("0.99@1s"), rates, GROUP)
    assert sum(found.latency.values()) == pytest.approx(sum(rates), rel=0.1)  # they count once
    assert max(map(seconds_of, found.latency)) < 1
    assert found.consumers == POOL.group.max


def test_a_looser_slo_is_not_taken_for_a_quicker_one() -> None:
    strict, loose, other = map(SLO.parse, ("0.99@1s", "0.95@2s", "0.999@3s"))
    runs = [
        Simulated(strict, 5.0, Counter({1: 8, 50: 2})),
        Simulated(loose, 3.0, Counter({1: 7, 20: 3})),
        Simulated(other, 4.0, Counter({90: 10})),
    ]
    found = [sobered(each, runs) for each in runs]
    assert found[0] == runs[0]
    assert found[1].consumers == 3.0
    assert +found[1].latency == {1: 7, 20: 1, 50: 2}
    assert found[2] == runs[2]  # looser in one, stricter in the other: nothing is known of the two


def test_a_broker_that_takes_the_whole_target_is_named(slo: SLO) -> None:
    done: list[float] = []
    legs = {Leg.BROKER: leg(2_500), Leg.CONSUMER: leg(60)}
    plan = planned(slo, legs, RATES, GROUP, progress=done.append)
    assert not done  # nothing that consumers do would help
    assert isinstance(plan.found, Impossible)
    assert plan.found.leg == Leg.BROKER
    assert plan.slos == {}
    assert plan.found.needs_seconds is not None
    assert plan.found.needs_seconds > 2.5


def test_the_groups_own_slo_is_a_choice_too(slo: SLO) -> None:
    legs = {Leg.BROKER: leg(2), Leg.CONSUMER: leg(60)}
    plan = planned(slo, legs, RATES, GROUP, SLO.parse("0.97@1s over 1h"))
    assert plan.now is not None
    assert plan.consumers is not None
    assert plan.consumers <= plan.now
    plan = planned(slo, legs, RATES, GROUP, SLO.parse("0.5@1500ms over 1h"))
    assert plan.consumers is not None


def test_only_a_stricter_slo_takes_the_place_of_one_that_did_not_do(slo: SLO) -> None:
    legs = {Leg.BROKER: leg(2), Leg.CONSUMER: leg(60)}
    loose, strict = SLO.parse("0.96@1500ms over 1h"), SLO.parse("0.9999@200ms over 1h")
    rates = [38.0, 20.0] * 15
    plan = planned(slo, legs, rates, GROUP, loose, stricter_than=loose)
    found = plan.slos[Leg.CONSUMER]
    assert found.target_seconds <= loose.target_seconds
    assert found.percentile >= loose.percentile
    assert plan.consumers is not None
    assert plan.now is None or plan.consumers > plan.now
    fixed = POOL.group.model_copy(update={"min": 3, "max": 3})
    group = replace(GROUP, file=POOL.model_copy(update={"group": fixed}))
    for each, of in ((strict, GROUP), (loose, group)):
        plan = planned(slo, legs, RATES, of, each, stricter_than=each)
        assert plan.slos[Leg.CONSUMER] == each  # no other would take more


def test_a_group_never_exceeds_its_bounds(slo: SLO) -> None:
    table = POOL.group.model_copy(update={"min": 3, "max": 3})
    group = replace(GROUP, file=POOL.model_copy(update={"group": table}), shares=[0.25] * 4)
    plan = planned(slo, {Leg.BROKER: leg(2), Leg.CONSUMER: leg(60)}, RATES, group)
    assert plan.consumers == pytest.approx(3.0, abs=0.05)


def test_a_plan_is_made_in_a_process_of_its_own(slo: SLO) -> None:
    legs = {Leg.BROKER: leg(2, 40), Leg.CONSUMER: leg(60)}
    given = {"slo": slo, "legs": legs, "rates": RATES, "group": GROUP}
    found = asyncio.run(planned_apart(given))
    assert found.slos == planned(**given).slos
    with pytest.raises(UnavailableError, match="has ended"):
        asyncio.run(planned_apart({"slo": slo}))


def test_what_a_controller_told_is_planned_by(tmp_path: Path) -> None:
    told = {
        "rates": [30.0] * 75,
        "bins": {"broker": {5: 10}, "consumer": {7: 10}},
        "weights": {"broker": 4, "consumer": 1},
        "told": {
            "consumer": {
                "slo": "0.97@1s over 1h",
                "mu": 45.0,
                "startup_seconds": 1.5,
                "rebalance_seconds": 0.2,
                "shares": [30.0, 10.0],
            }
        },
    }
    (tmp_path / "pool.toml").write_text(
        '[nsq]\ntopic = "t"\nchannel = "c"\nlookupd = ["127.0.0.1:1"]\n[group]\nslo = "0.9@2s"'
    )
    path = tmp_path / "journeys.toml"
    path.write_text('[[journey]]\ntopic = "t"\nslo = "0.9@3s"\nconsumers = "pool.toml"')
    [journey] = read_journeys(path).all
    given = inputs(journey, told)
    group = given["group"]
    assert (group.mu, group.startup_seconds, list(group.shares)) == (45.0, 1.5, [0.75, 0.25])
    assert group.rebalance_seconds == 0  # in a pool nothing is handed over
    assert str(given["now"]) == "0.97@1s over 1h"
    assert given["weights"][Leg.BROKER] == 4
    assert inputs(journey, told, mu=7.0, startup=0.5)["group"].mu == 7.0
    untold = inputs(journey, told | {"told": {}}, mu=7.0)
    assert str(untold["now"]) == "0.9@2s over 1h"
    assert list(untold["group"].shares) == pytest.approx([1 / 12] * 12)
    with pytest.raises(UsageError, match="give --mu, or start the controller"):
        inputs(journey, told | {"told": {}})
