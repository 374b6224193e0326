"""What rounds teach about brokers."""

import json
from math import inf

import pytest

from distributor.fitting import CapacityModel, Load
from distributor.fitting.topic import FittedTopic
from srtm.limits.slo import SLO
from tests.support.fitting_brokers import brokers, contract, publishers

MESSAGES = 100_000


def taught(broker: str = "b0") -> CapacityModel:
    """Late shares that grow with the burst: 0.1 % at 40 messages, 1 % at 60, 10 % at 100."""
    model = CapacityModel()
    for burst, late in ((40, 0.001), (60, 0.01), (100, 0.1)):
        for rate in (2_000.0, 10_000.0):
            model = model.learnt(broker, Load(rate, burst, 500), late * MESSAGES, MESSAGES)
    return model


def test_it_expects_what_it_has_seen_and_what_lies_between() -> None:
    model = taught()
    shares = [model.late_share("b0", Load(5_000.0, burst, 500)) for burst in (40, 50, 60, 80, 100)]
    assert shares == sorted(shares, key=lambda share: share or 0)
    assert shares[0] is not None
    assert shares[-1] is not None
    assert shares[0] < 0.004
    assert shares[-1] > 0.03
    assert model.rounds == 6


def test_a_broker_never_seen_is_like_the_others() -> None:
    load = Load(5_000.0, 60, 500)
    model = taught()
    assert model.late_share("new", load) == model.late_share("b0", load)


def test_a_broker_s_own_rounds_count_before_the_others() -> None:
    model = taught()
    load = Load(5_000.0, 60, 500)
    for _ in range(3):
        model = model.learnt("slow", load, 0.5 * MESSAGES, MESSAGES)
    assert (model.late_share("slow", load) or 0) > 0.3
    assert (model.late_share("b0", load) or 1) < 0.05


def test_from_nothing_and_from_too_little_it_expects_nothing() -> None:
    load = Load(100.0, 1, 10)
    model = CapacityModel()
    assert model.late_share("b0", load) is None
    assert model.learnt("b0", load, 0, 0) is model  # nothing was measured
    for _ in range(2):
        model = model.learnt("b0", load, 0, 1000)
    assert model.late_share("b0", load) is None
    assert model.learnt("b0", load, 0, 1000).late_share("b0", load) is not None


def test_a_store_keeps_it() -> None:
    model = taught()
    read = CapacityModel.read(json.loads(json.dumps(model.document())))
    load = Load(1_234.0, 56.0, 78)
    assert read.late_share("b0", load) == model.late_share("b0", load)
    assert read.document() == model.document()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param({"rounds": None}, id="no-number"),
        pytest.param({"products": [1.0]}, id="too-short"),
        pytest.param({"products": [inf, 0.0, 0.0, 0.0]}, id="not-finite"),
        pytest.param({"rounds": -1}, id="less-than-none"),
    ],
)
def test_a_spoilt_store_names_the_broker(spoil: dict[str, object]) -> None:
    document = taught("b7").document()
    document["b7"].update(spoil)
    with pytest.raises(ValueError, match=r"broker b7: .*remove this broker to learn anew"):
        CapacityModel.read(document)


@pytest.mark.parametrize("load", [(0.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.0, 0)])
def test_a_load_of_nothing_is_refused(load: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match="more than nothing"):
        Load(*load)


def test_a_load_counts_the_topic_s_bursts_and_all_topics_rates() -> None:
    found = publishers(20, groups=4)  # groups of 5
    topic = FittedTopic(
        contract(), SLO.parse("0.99@1ms"), tuple(brokers(2, allocated=50.0)), tuple(found), 10.0
    )
    loads = topic.loads({each.id: "b0" for each in found if each.key in ("g0", "g1")})
    assert loads == {"b0": Load(rate=150.0, burst=50.0, connections=10)}
