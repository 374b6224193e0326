"""What a report says of a topic: rates and counts since the last answered one. No I/O."""

import asyncio
from typing import Any

import pytest

from srtm.gateway.agent import Agent, Identity
from srtm.gateway.backlog import Bounds
from srtm.gateway.backlogs import Backlogs
from srtm.gateway.lease import Changes, Desired, Known
from srtm.gateway.measure.counts import NOTHING, Counts, comparable, counts_of
from srtm.gateway.measure.meter import Meter
from srtm.gateway.measure.waits import waits_of
from srtm.gateway.run import Gone, Run
from srtm.gateway.topic import Topic
from srtm.host.clock import NS, boottime_ns, monotonic_ns
from srtm.http.client import Endpoint
from srtm.limits.bins import ZERO, Bins, nearest_rank
from srtm.limits.bucket import TokenBucket
from srtm.limits.contract import Limit
from srtm.limits.slo import SLO
from tests.support.fake_distributor import fake_distributor


class NoGate:
    dirty: list[Topic] = []  # noqa: RUF012 - a stand-in
    backlogs = Backlogs(1 << 30, 100)
    is_open = False

    def carrier(self, topic: Topic) -> None:
        return None

    def call_at(self, when: int, alarm: Any) -> None: ...


class NoFile:
    def write_soon(self) -> None: ...

    async def written(self) -> None: ...


class Topics:
    state_file = NoFile()

    def __init__(self, *names: bytes) -> None:
        bounds = Bounds(1000, 1 << 20, 1 << 20)
        self.by_name = {name: Topic(name, NoGate(), bounds, Meter()) for name in names}

    def lease(self, changes: Changes) -> bool:
        return False

    def observe(self, names: frozenset[str]) -> None:
        for name, topic in self.by_name.items():
            topic.observed.want_times(name.decode() in names)

    def count_senders(self, names: frozenset[str]) -> None:
        for name, topic in self.by_name.items():
            topic.observed.want_senders(name.decode() in names)

    def empty(self, name: str) -> None: ...

    def know(self, known: Known) -> bool:
        return False

    def kept_knowledge(self) -> Known:
        return Known()

    def kept_leases(self) -> dict[str, Limit]:
        return {}


def agent_of(topics: Topics) -> Agent:
    return Agent(Endpoint("h:1"), Identity("b", "h:2", "h:3", 0), topics)


def test_rates_are_of_the_time_since_the_last_answered_report() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    agent = agent_of(topics)
    topic.meter.offered, topic.meter.admitted, topic.backlog.messages = 300, 200, 100
    first = agent._entry(topic, counts_of(topic), 2.0)
    assert first == {
        "topic": "t",
        "offered": 150,
        "admitted": 100,
        "backlog": 100,
        "waiting": 0,
        "served": 0,
        "near": 0,
        "late": 0,
        "late_at_broker": 0,
    }
    assert agent._entry(topic, counts_of(topic), 4.0)["offered"] == 75, "it was not answered"
    agent._counted[b"t"] = counts_of(topic)
    topic.meter.offered, topic.backlog.messages = 310, 0
    assert agent._entry(topic, counts_of(topic), 1.0)["offered"] == 10


def test_an_answered_report_begins_a_new_count_and_an_unanswered_one_does_not() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    with fake_distributor() as fake:
        agent = Agent(Endpoint(fake.address), Identity("b", "h:2", "h:3", 0), topics)
        long_ago = agent._counted_at = boottime_ns() - 1000 * NS
        topic.meter.offered = 5000
        fake.status = 503
        assert not asyncio.run(agent._exchange())
        assert agent._counted_at == long_ago
        fake.status = 200
        assert asyncio.run(agent._exchange())
        assert agent._counted_at > long_ago + 999 * NS
        assert fake.reports[0]["topics"][0]["offered"] == pytest.approx(5, rel=0.05)
        assert agent._counted[b"t"].offered == 5000


@pytest.mark.parametrize(
    ("lease_seconds", "most"),
    [pytest.param(2, 0.5, id="a-short-lease"), pytest.param(60, 3, id="a-long-lease")],
)
def test_several_attempts_fit_into_a_lease(lease_seconds: float, most: float) -> None:
    agent = agent_of(Topics())
    agent.failures = 50
    assert agent._pause_seconds() <= 3, "before the first contact"
    agent._desired = Desired(1, lease_seconds, {})
    assert most / 2 <= agent._pause_seconds() <= most


def test_a_topic_that_came_anew_counts_from_nothing() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    agent = agent_of(topics)
    topic.meter.offered = 500
    agent._counted[b"t"] = counts_of(topic)
    topic.meter.offered = 20
    assert agent._entry(topic, counts_of(topic), 1.0)["offered"] == 20


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((9, 0, 0, 0), (4, 0, 0, 0), id="fewer-served"),
        pytest.param((9, 1, 0, 0), (12, 0, 0, 0), id="fewer-near"),
        pytest.param((9, 2, 2, 0), (12, 2, 1, 0), id="fewer-late"),
        pytest.param((9, 0, 0, 1), (12, 0, 0, 0), id="fewer-late-at-the-broker"),
        pytest.param((9, 0, 0, 0), (12, 12, 12, 0), id="more-late-than-served-since"),
    ],
)
def test_one_that_came_anew_and_got_as_many_counts_from_nothing(
    before: tuple[int, int, int, int], after: tuple[int, int, int, int]
) -> None:
    """The distributor would refuse the difference."""
    assert comparable(Counts(5, 5, *before), Counts(5, 5, *after)) == NOTHING


def test_a_topic_that_made_room_for_another_is_forgotten() -> None:
    topics = Topics(b"t", b"u")
    with fake_distributor() as fake:
        agent = Agent(Endpoint(fake.address), Identity("b", "h:2", "h:3", 0), topics)
        for topic in topics.by_name.values():
            topic.meter.offered = 1
        assert asyncio.run(agent._exchange())
        assert agent._counted.keys() == {b"t", b"u"}
        del topics.by_name[b"t"]
        assert asyncio.run(agent._exchange())
        assert agent._counted.keys() == {b"u"}


def test_late_messages_are_those_above_the_target_of_the_slo() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    agent = agent_of(topics)
    limit = Limit(rate=1, burst=1)
    topic.limit = limit.model_copy(update={"slo": SLO(0.99, 1e-3)})
    latency = topic.meter.broker_latency
    latency.add(900_000, 90)  # 0.9 ms
    latency.add(1_100_000, 7)
    latency.add(5_000_000, 3)
    latency.add_zeros(5)
    latency.fold(NS)
    entry = agent._entry(topic, counts_of(topic), 1.0)
    assert (entry["served"], entry["late"]) == (105, 10)
    topic.limit = limit
    assert agent._entry(topic, counts_of(topic), 1.0)["served"] == 0, "no SLO, nobody measures"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("0.99@1ms", "0.99@4ms", id="looser"),
        pytest.param("0.99@4ms", "0.99@1ms", id="tighter"),
        pytest.param("0.99@1ms", None, id="none-any-more"),
        pytest.param(None, "0.99@1ms", id="one-from-now-on"),
    ],
)
def test_another_slo_counts_from_when_it_came(before: str | None, after: str | None) -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    agent = agent_of(topics)
    limits = [
        Limit(rate=1, burst=1).model_copy(update={"slo": slo and SLO.parse(slo)})
        for slo in (before, after)
    ]
    topic.limit = limits[0]
    topic.meter.broker_latency.add(2_000_000, 7)
    agent._counted[b"t"] = counts_of(topic)
    topic.limit = limits[1]
    counts = counts_of(topic)
    entry = agent._entry(topic, counts, 1.0)
    assert [entry[each] for each in ("served", "near", "late", "late_at_broker")] == [0] * 4
    agent._counted[b"t"] = counts
    topic.meter.broker_latency.add(5_000_000, 2)
    entry = agent._entry(topic, counts_of(topic), 1.0)
    assert (entry["served"], entry["late"]) == ((2, 2) if after else (0, 0))


def test_arrivals_are_reported_once_by_the_millisecond_while_they_are_asked_for() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    agent = agent_of(topics)
    for stamp, count, atomic in ((0, 1, False), (400_000, 2, False), (1_000_000, 4, True)):
        run = Run(b"t", [b"x"] * count, count, atomic, None)
        run.stamp = stamp
        if topic.observed.times is None:
            topics.observe(frozenset({"t"}))
        else:
            topic.observed.keep_times([run])
    assert topic.observed.times == {0: 2, 1: 4}, "the first came before anybody asked"
    entry = agent._entry(topic, counts_of(topic), 1.0, waits_of(topic))
    assert [count for _, count in entry["arrivals"]] == [2, 4]
    assert entry["arrivals"][0][0] - entry["arrivals"][1][0] == 1
    assert entry["batches"] == [entry["arrivals"][1]], "they wait for all of their tokens"
    again = agent._entry(topic, counts_of(topic), 1.0, waits_of(topic))
    assert (again["arrivals"], again["batches"]) == ([], [])
    topics.observe(frozenset())
    assert topic.observed.times is None
    assert "arrivals" not in agent._entry(topic, counts_of(topic), 1.0)


def test_token_waits_are_those_since_the_last_answered_report() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    agent = agent_of(topics)
    wait = topic.meter.token_wait
    wait.add_zeros(3)
    first = waits_of(topic)
    assert agent._entry(topic, counts_of(topic), 1.0, first)["waits"] is None, "nothing to add to"
    agent._waited[b"t"] = first
    wait.add_zeros(1)
    wait.add(500_000_000, 2)
    wait.add_ramp(10_000_000, 10_000_000.0, 2)
    found = agent._entry(topic, counts_of(topic), 1.0, waits_of(topic))["waits"]
    assert found["seconds"] == pytest.approx(1.03)
    assert found["held"] == 0
    assert found["tokens"] == 0, "without a bucket"
    bins = dict(found["bins"])
    assert (bins[ZERO], sum(bins.values())) == (1, 5)
    assert nearest_rank(Bins(bins), 0.99) == pytest.approx(0.5, rel=0.01)
    topic.bucket = TokenBucket(1e-6, 7.0, monotonic_ns())
    full = agent._entry(topic, counts_of(topic), 1.0, waits_of(topic))["waits"]
    assert full["tokens"] == 7
    topic.meter = Meter()
    topic.meter.token_wait.add_zeros(1)
    assert agent._entry(topic, counts_of(topic), 1.0, waits_of(topic))["waits"] is None, "it is new"


def sent(topic: Topic, publisher: str, count: int) -> None:
    run = Run(b"t", [b"x"] * count, count, False, None)
    run.owner = Gone(publisher)
    topic.observed.count_senders([run])


def test_who_sends_most_is_reported_while_it_is_asked_for() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    agent = agent_of(topics)
    assert topic.observed.senders is None
    topics.count_senders(frozenset({"t"}))
    assert "publishers" not in agent._entry(topic, counts_of(topic), 1.0, None), "nothing has come"
    for number in range(150):
        sent(topic, f"p{number}", number + 1)
    sent(topic, "p7", 1000)
    told = agent._entry(topic, counts_of(topic), 1.0, None)["publishers"]
    assert len(told) == 100
    assert told[:2] == [("p7", 1008), ("p149", 150)]
    assert "publishers" not in agent._entry(topic, counts_of(topic), 1.0, None), "it is told once"


def test_names_without_end_fill_no_memory() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    topics.count_senders(frozenset({"t"}))
    for number in range(6_000):
        sent(topic, f"p{number}", 1)
    sent(topic, "p0", 1)
    assert topic.observed.senders is not None
    assert len(topic.observed.senders) == 5_001
    assert (topic.observed.senders[""], topic.observed.senders["p0"]) == (1_000, 2)


def test_only_topics_with_something_to_tell_are_in_a_report() -> None:
    topics = Topics(b"named", b"busy", b"idle", b"stuck")
    agent = agent_of(topics)
    agent.lease.applied = {"named": Limit(rate=1, burst=1)}
    topics.by_name[b"busy"].meter.offered = 1
    topics.by_name[b"stuck"].backlog.messages = 1
    names = [topic.name for topic in topics.by_name.values() if agent._is_news(topic)]
    assert names == [b"named", b"busy", b"stuck"]


def test_of_a_topic_that_others_share_it_is_told_that_nothing_came() -> None:
    topics = Topics(b"alone", b"shared")
    with fake_distributor() as fake:
        agent = Agent(Endpoint(fake.address), Identity("b", "h:2", "h:3", 0), topics)
        share = {"rate": 5.0, "burst": 2.0, "mode": "delay", "topic_burst": 2.0}
        alone = {**share, "topic": "alone", "topic_rate": 5.0}
        fake.desire(1, alone, {**share, "topic": "shared", "topic_rate": 9.0})
        assert asyncio.run(agent._exchange())
        assert asyncio.run(agent._exchange())
    assert [each["topic"] for each in fake.reports[1]["topics"]] == ["shared"]


def test_an_idle_topic_that_others_share_is_told_once() -> None:
    topics = Topics(b"t")
    topic = topics.by_name[b"t"]
    share = {"topic": "t", "rate": 5.0, "burst": 2.0, "mode": "delay", "topic_burst": 9.0}
    share |= {"topic_rate": 9.0, "arrivals": True}

    def told(count: int) -> list[int]:
        """How many topics each of the next reports names."""
        before = len(fake.reports)
        for _ in range(count):
            asyncio.run(agent._exchange())
        return [len(each["topics"]) for each in fake.reports[before:]]

    with fake_distributor() as fake:
        agent = Agent(Endpoint(fake.address), Identity("b", "h:2", "h:3", 0), topics)
        fake.desire(1, share)
        topic.bucket = TokenBucket(1e-6, 2.0, monotonic_ns())
        assert told(5) == [0, 1, 1, 0, 0], "asked for, then what was added, then nothing new"
        assert all(each["clock"] > 0 for each in fake.reports)
        topic.meter.offered += 1
        assert told(3) == [1, 1, 0]
        topic.bucket.take(1, monotonic_ns())
        assert told(1) == [1], "its bucket is not full"
        topic.bucket = TokenBucket(1e-6, 2.0, monotonic_ns())
        assert told(2) == [1, 0]
        fake.status = 500
        told(1)
        fake.status = 200
        assert told(2) == [1, 0], "an answer was lost"
        agent._whole_at -= 60
        assert told(2) == [1, 0], "once a minute all is told"
        fake.desire(2, share | {"burst": 1.0})
        assert told(3) == [0, 1, 0], "it has another share"


def test_topics_that_it_has_are_told_again_once_a_minute() -> None:
    with fake_distributor() as fake:
        agent = Agent(Endpoint(fake.address), Identity("b", "h:2", "h:3", 0), Topics())
        for _ in range(3):
            assert asyncio.run(agent._exchange())
        agent._whole_at -= 60
        assert asyncio.run(agent._exchange())
        agent.lease.epoch = 2  # of a state that it has not
        fake.desire(2)
        assert asyncio.run(agent._exchange())
    assert [each["whole"] for each in fake.reports] == [True, False, False, True, True]
