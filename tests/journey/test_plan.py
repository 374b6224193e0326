"""Which SLOs the parts of a journey get."""

from collections import Counter

import pytest

from srtm.autoscaler.decision import Handover
from srtm.journey.causes import Leg
from srtm.journey.plan import Group, planned
from srtm.journey.split import Impossible, Split
from srtm.limits.bins import Bins, key_of
from srtm.limits.slo import SLO

GROUP = Group(20.0, [0.5] * 2, Handover.DIRECT, 0.0, 1.0)
RATES = [30.0] * 15


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
    plan = planned(slo, legs, RATES, GROUP, done.append)
    assert isinstance(plan.found, Split)
    assert plan.consumers is not None
    assert plan.consumers >= 1.5  # 30/s at 20/s each
    assert list(plan.slos) == [Leg.BROKER, Leg.BRIDGE, Leg.CONSUMER]
    assert sum(each.seconds for each in plan.found.parts.values()) <= 2.0 + 1e-9
    assert sum(each.late_share for each in plan.found.parts.values()) <= 0.05 + 1e-9
    assert plan.slos[Leg.CONSUMER].window_seconds == 3600
    assert plan.slos[Leg.BROKER].window_seconds is None  # a contract's SLO has none
    assert done == sorted(done)
    assert done[0] == 0


def test_what_a_real_consumer_adds_is_added_to_what_is_simulated(slo: SLO) -> None:
    """The simulator serves a message in 50 ms; the median that was measured is 1.5 s."""
    plan = planned(slo, {Leg.BROKER: leg(2), Leg.CONSUMER: leg(1_500)}, RATES, GROUP)
    assert isinstance(plan.found, Split)
    assert plan.found.options["consumer"].frontier.seconds.min() > 1.4


def test_a_broker_that_takes_the_whole_target_is_named(slo: SLO) -> None:
    done: list[float] = []
    plan = planned(slo, {Leg.BROKER: leg(2_500), Leg.CONSUMER: leg(60)}, RATES, GROUP, done.append)
    assert not done  # nothing that consumers do would help
    assert isinstance(plan.found, Impossible)
    assert plan.found.leg == Leg.BROKER
    assert plan.slos == {}
    assert plan.found.needs_seconds is not None
    assert plan.found.needs_seconds > 2.5
