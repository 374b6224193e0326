"""What a fitting makes of brokers' reports. Time is passed in."""

import pytest

from distributor.control.observations import Observations
from distributor.gateway_api import Report, TopicReport


def report(seconds: float = 0.5, answered: int | None = None, **counts: float) -> Report:
    values = {"served": 10, "near": 3, "late": 2, "late_at_broker": 1} | counts
    return Report(
        applied_epoch=1,
        seconds=seconds,
        answered=answered,
        topics=[
            TopicReport(topic="t", **values),
            TopicReport(topic="other", served=5),
            TopicReport(topic="unknown", served=5),
        ],
    )


@pytest.fixture
def seen() -> Observations:
    found = Observations("t", ["other"])
    found.begin(4, 10.0, ["b1"])
    return found


def test_a_report_is_a_sample_of_each_topic_that_is_asked_for(seen: Observations) -> None:
    seen.receive("b1", report(), 11.0)
    one, other = seen.take_samples()
    assert (one.broker, one.topic, one.epoch) == ("b1", "t", 4)
    assert (one.began_at, one.ended_at) == (10.5, 11.0)
    assert (one.messages, one.near, one.late, one.late_at_broker) == (10, 3, 2, 1)
    assert (other.topic, other.messages, other.late) == ("other", 5, 0)
    assert seen.take_samples() == []


@pytest.mark.parametrize(
    ("broker", "seconds", "now"),
    [
        pytest.param("b1", 1.5, 11.0, id="it-began-before-the-round"),
        pytest.param("b2", 0.5, 11.0, id="of-a-broker-that-is-not-judged"),
        pytest.param("b1", 0.0, 11.0, id="of-no-known-length"),
        pytest.param("b1", 1e-30, 11.0, id="too-short-to-have-a-length"),
    ],
)
def test_what_is_no_sample(seen: Observations, broker: str, seconds: float, now: float) -> None:
    seen.receive(broker, report(seconds), now)
    assert seen.take_samples() == []


def test_a_report_whose_answer_was_lost_counts_once(seen: Observations) -> None:
    seen.receive("b1", report(0.5, 7), 11.0)
    seen.receive("b1", report(1.0, 7), 11.5)  # it covers the half second of before once more
    seen.receive("b1", report(0.5, 8), 11.9)  # on its way for less long than the one before
    assert [each.ended_at for each in seen.take_samples() if each.topic == "t"] == [11.0, 11.9]


@pytest.mark.parametrize(
    ("broker", "answered", "lapsed", "interrupted"),
    [
        pytest.param("b1", 8, False, None, id="one-report-after-another"),
        pytest.param("b1", 7, False, None, id="one-made-again"),
        pytest.param("b1", 8, True, "b1", id="its-lease-had-ended"),
        pytest.param("b1", 0, False, "b1", id="the-gateway-was-started-again"),
        pytest.param("b2", 0, True, None, id="a-broker-that-is-not-judged"),
    ],
)
def test_who_is_interrupted_in_a_round(
    seen: Observations, broker: str, answered: int, lapsed: bool, interrupted: str | None
) -> None:
    for each in ("b1", "b2"):
        seen.receive(each, report(0.5, 7), 11.0)
    seen.receive(broker, report(0.5, answered), 11.5, lapsed)
    assert seen.interrupted == interrupted
    seen.move()
    assert seen.interrupted is None


def test_a_broker_that_helps_is_measured_until_it_is_interrupted(seen: Observations) -> None:
    seen.begin(4, 10.0, ["b1"], ["b2"])
    seen.receive("b2", report(0.5, 7), 11.0)
    assert {each.broker for each in seen.take_samples()} == {"b2"}
    seen.receive("b2", report(0.5, 8), 11.5, lapsed=True)
    seen.receive("b2", report(0.5, 9), 12.0)
    assert seen.take_samples() == []
    assert seen.interrupted is None


def test_counts_of_a_sketch_that_do_not_fit_are_cut(seen: Observations) -> None:
    seen.receive("b1", report(near=1, late=2, late_at_broker=9), 11.0)
    one = seen.take_samples()[0]
    assert (one.near, one.late, one.late_at_broker) == (1, 1, 1)


def test_a_new_round_forgets_samples_and_asks_for_others(seen: Observations) -> None:
    seen.receive("b1", report(), 11.0)
    seen.begin(5, 12.0, ["b2"])
    assert seen.take_samples() == []
    seen.receive("b2", report(), 13.0)
    assert {each.epoch for each in seen.take_samples()} == {5}


def test_a_broker_is_calm_once_it_has_had_no_backlog_since_the_move(seen: Observations) -> None:
    seen.move()
    assert not seen.calm(["b1"])
    seen.receive("b1", report(backlog=3), 11.0)
    assert not seen.calm(["b1"])
    seen.receive("b1", report(backlog=0), 12.0)
    seen.receive("b1", report(backlog=1), 13.0)
    assert seen.calm(["b1"])
    assert not seen.calm(["b1", "b2"])
    seen.receive("b2", Report(applied_epoch=1), 13.0)  # it has nothing to tell
    assert seen.calm(["b1", "b2"])


def test_what_came_before_a_round_is_no_arrival_of_it(seen: Observations) -> None:
    seen.receive("b1", report(arrivals=[(0, 1)]), 100.0)
    seen.begin(5, 101.0, ["b1"])
    assert seen.arrivals(101.0) is None
    seen.receive("b1", report(arrivals=[(0, 1)]), 101.2)
    assert seen.arrivals(101.2) is None, "it began before the round"


def test_arrivals_of_all_brokers_are_one_stream_of_the_last_minute(seen: Observations) -> None:
    assert seen.arrivals(100.0) is None
    seen.receive("b1", report(arrivals=[(100, 2), (0, 1)]), 100.0)
    seen.receive("b2", report(arrivals=[(600, 4), (250, 8)]), 100.5)
    found = seen.arrivals(100.5)
    assert found is not None
    assert found.times.tolist() == pytest.approx([99.9, 100.0, 100.25], abs=2e-3)
    assert found.counts.tolist() == [6.0, 1.0, 8.0]
    seen.receive("b1", report(arrivals=[(0, 3)]), 160.2)
    later = seen.arrivals(160.2)
    assert later is not None
    assert later.times.tolist() == pytest.approx([100.25, 160.2], abs=2e-3)


@pytest.mark.parametrize(
    ("offered", "deserted"),
    [
        pytest.param({"b1": 50, "b2": 50}, None, id="as-placed"),
        pytest.param({"b1": 100, "b2": 0}, "b2", id="nobody-has-left"),
        pytest.param({"b1": 0, "b9": 100}, "b1", id="outside-the-round"),
        pytest.param({"b1": 70, "b2": 30}, None, id="rates-are-not-quite-as-declared"),
        pytest.param({"b1": 50, "b2": 0}, None, id="half-of-them-are-silent"),
        pytest.param({"b1": 0, "b2": 0}, None, id="nobody-sends"),
    ],
)
def test_publishers_that_do_not_follow_are_seen(
    offered: dict[str, float], deserted: str | None
) -> None:
    found = Observations("t", [])
    found.begin(1, 10.0, ["b1", "b2"])
    rates = {"b1": 50.0, "b2": 50.0}
    for second in range(1, 4):
        if second < 3:
            assert found.deserted(rates) is None, "too early to tell"
        for broker, rate in offered.items():
            found.receive(broker, report(1.0, offered=float(rate)), 10.0 + second)
    assert found.deserted(rates) == deserted
