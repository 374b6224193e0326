"""What legs tell of themselves, and the strictest of several SLOs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.journey.causes import Leg
from srtm.journey.leg_report import read_leg, strictest
from srtm.limits.slo import SLO

GROUP: dict[str, Any] = {
    "leg": "consumer",
    "topic": "alarms",
    "channel": "handlers",
    "slo": "0.99@500ms over 1h",
    "mu": 45.5,
    "startup_seconds": 1.5,
    "rebalance_seconds": 0,
    "shares": [1, 2.5],
}
BRIDGE = {"leg": "bridge", "topic": "t", "channel": "c", "kafka_topic": "k", "slo": None}


def test_a_group_and_a_bridge() -> None:
    told = read_leg(GROUP)
    assert (told.leg, told.place) == (Leg.CONSUMER, ("alarms", "handlers"))
    assert told.document() == {key: GROUP[key] for key in list(GROUP)[3:]}
    told = read_leg(BRIDGE)
    assert (told.leg, told.place) == (Leg.BRIDGE, ("t", "c", "k"))
    assert told.document() == {"slo": None}
    assert not told.stands_by
    assert read_leg(GROUP | {"stands_by": True}).stands_by


@pytest.mark.parametrize(
    "changed",
    [
        {"leg": "broker"},
        {"leg": "moon"},
        {"leg": None},
        {"slo": "soon"},
        {"slo": 5},
        {"slo": None},
        {"slo": "0.99@500ms"},
        {"mu": 0},
        {"mu": 5e-324},
        {"mu": -1.0},
        {"mu": True},
        {"mu": "45"},
        {"mu": float("nan")},
        {"mu": 10**400},
        {"shares": [1.0] * 1001},
        {"shares": [None]},
        {"shares": 5},
    ],
    ids=str,
)
def test_what_is_no_leg(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        read_leg(GROUP | changed)


@pytest.mark.parametrize("document", [None, 5, [], {}, "leg", {"leg": "consumer"}, [["leg"]]])
def test_what_is_no_document_of_a_leg(document: object) -> None:
    with pytest.raises(ValueError):
        read_leg(document)


@given(
    st.lists(
        st.builds(
            SLO,
            st.floats(0.01, 0.999),
            st.floats(1e-3, 100.0),
            st.one_of(st.none(), st.floats(200.0, 1e5)),
        ),
        max_size=5,
    )
)
def test_the_strictest_keeps_all(slos: list[SLO]) -> None:
    found = strictest(slos)
    if found is None:
        assert not slos
        return
    assert all(found.percentile >= each.percentile for each in slos)
    assert all(found.target_seconds <= each.target_seconds for each in slos)
    assert found.percentile in {each.percentile for each in slos}
