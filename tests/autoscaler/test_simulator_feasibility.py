"""What cannot be met is said before it is seen in the figures, with its remedy."""

import pytest

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import (
    ArrivalModel,
    Arrivals,
    arrivals_by_partition,
    arrivals_of,
    even_shares,
)
from srtm.autoscaler.simulator.feasibility import what_cannot_be_met
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO

SMOOTH, BURST = ArrivalModel.SMOOTH, ArrivalModel.BURST


def setting(**changes: object) -> Setting:
    given = {"slo": SLO(0.99, 0.5), "handover": Handover.DIRECT} | changes
    return Setting(**given)  # type: ignore[arg-type]


CALM = arrivals_of([100.0] * 20, even_shares(2), SMOOTH, 1)
HOT = arrivals_by_partition([[250.0] * 20, [10.0] * 20], SMOOTH, 1)


def test_nothing_is_said_where_all_can_be_met() -> None:
    assert what_cannot_be_met(CALM, setting()) == ()


def test_a_partition_above_mu() -> None:
    peak, share = what_cannot_be_met(HOT, setting())
    assert peak == (
        "partition 0 gets 250 events/s at its peak, one consumer serves 200/s: split the topic "
        "over more partitions or make consumers faster"
    )
    assert share.startswith("a consumer for each partition from the start keeps ")
    assert "no policy can keep it" in share


def test_the_worst_of_several_partitions_is_named() -> None:
    arrivals = arrivals_by_partition([[250.0] * 20, [300.0] * 20, [220.0] * 20], SMOOTH, 1)
    assert what_cannot_be_met(arrivals, setting())[0].startswith(
        "partition 1 gets 300 events/s at its peak, one consumer serves 200/s (3 partitions get "
        "more than that)"
    )


def test_a_short_peak_that_the_slo_allows_is_no_failure() -> None:
    """One second at 201/s after a calm one: nobody is late by it."""
    arrivals = arrivals_by_partition([[20.0, 201.0, 20.0]], SMOOTH, 1)
    assert what_cannot_be_met(arrivals, setting()) == ()


def test_bursts_that_are_late_though_the_rate_is_low() -> None:
    """150 at once, 200/s, 500 ms: the last 50 of 150 are late whatever is done."""
    arrivals = arrivals_by_partition([[150.0] * 10], BURST, 1)
    (line,) = what_cannot_be_met(arrivals, setting())
    assert "keeps 66.67 % within 500ms, and the SLO asks for 99 %" in line


def test_an_event_that_takes_longer_than_the_slo() -> None:
    (line,) = what_cannot_be_met(CALM, setting(mu=1.0))
    assert line.startswith("one event takes 1s and the SLO allows 500ms: every event is late")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        pytest.param(
            {"rebalance_seconds": 2.0, "handover": Handover.EAGER},
            ("500ms is shorter than a rebalance of 2s", "every partition is late", "use direct"),
            id="eager-longer-than-the-slo",
        ),
        pytest.param(
            {"rebalance_seconds": 2.0, "handover": Handover.COOPERATIVE},
            ("500ms is shorter than a rebalance of 2s", "every moved partition", "use direct"),
            id="cooperative-longer-than-the-slo",
        ),
        pytest.param(
            {"rebalance_seconds": 2.0},
            ("500ms is shorter than a rebalance of 2s", "moved", "provision for the peak"),
            id="direct-longer-than-the-slo",
        ),
        pytest.param(
            {"handover": Handover.EAGER},
            ("up to 3.5s", "heartbeats, 3s", "shorter heartbeat"),
            id="eager-with-long-heartbeats",
        ),
        pytest.param({}, (), id="direct-as-long-as-the-slo"),
        pytest.param(
            {"handover": Handover.EAGER, "told_together": True}, (), id="eager-told-together"
        ),
        pytest.param(
            {"handover": Handover.EAGER, "heartbeat_seconds": 0.2, "rebalance_seconds": 0.25},
            (),
            id="eager-with-short-heartbeats",
        ),
    ],
)
def test_hand_overs(changes: dict[str, object], parts: tuple[str, ...]) -> None:
    lines = what_cannot_be_met(CALM, setting(**changes))
    assert len(lines) == bool(parts)
    assert all(part in lines[0] for part in parts)


def test_more_consumers_than_partitions() -> None:
    (line,) = what_cannot_be_met(CALM, setting(initial=5))
    assert "starts with 5 consumers and there are 2 partitions: 3 would have nothing to do" in line


def test_no_events() -> None:
    empty = arrivals_of([0.0] * 5, (1.0,), SMOOTH, 1)
    assert isinstance(empty, Arrivals)
    assert what_cannot_be_met(empty, setting()) == ()
