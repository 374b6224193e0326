"""Messages through buckets and brokers, held against a loop that does one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributor.model import Broker, Publisher
from distributor.placement.policies import POLICIES
from distributor.simulator.run import SimulatedTopic, placed, simulate
from distributor.simulator.service import Service
from distributor.simulator.traffic import Sending, Traffic, traffic
from srtm.limits.bucket import TokenBucket
from srtm.limits.contract import Contract
from srtm.limits.queueing import split_token_waits
from srtm.load.schedule import build_schedule
from srtm.load.settings import LoadSettings

SERVICE = Service(0.001, 0.002, 0.003)


def one_by_one(topics: list[SimulatedTopic], services: list[Service]) -> list[list[float]]:
    """Latencies of each topic's messages in order of arrival, by the product's own bucket."""
    found: list[list[tuple[float, int, float]]] = [[] for _ in topics]
    for broker, service in enumerate(services):
        released = []
        for number, topic in enumerate(topics):
            share = topic.shares.get(broker)
            bucket = TokenBucket(*share, at=0) if share else None
            sent = topic.traffic
            for event, (at, who) in enumerate(zip(sent.times, sent.publishers, strict=True)):
                if topic.broker_of[who] != broker:
                    continue
                for of_batch in range(sent.batch):
                    leaves = int(at * 1e9)
                    if bucket:
                        leaves = max(leaves, bucket.ready_at(1))  # at once, or when its token comes
                        taken = bucket.take(1, leaves)
                        assert taken is not None
                        leaves = taken
                    work = service.message + (service.event if of_batch == 0 else 0.0)
                    released.append((leaves / 1e9, number, event, of_batch, float(at), work))
        free = 0.0
        for leaves_at, number, event, of_batch, at, work in sorted(released):
            free = max(free, leaves_at) + work
            found[number].append((at, event * 1_000 + of_batch, free + service.base - at))
    return [[each for _, _, each in sorted(one)] for one in found]


def random_topic(random: np.random.Generator, brokers: int, limited: bool) -> SimulatedTopic:
    count = int(random.integers(1, 40))
    sent = Traffic(
        np.sort(random.random(count)).round(3),
        random.integers(0, 5, count),
        int(random.integers(1, 5)),
    )
    owners = random.integers(0, brokers, 5)
    shares = {
        n: (float(random.uniform(20, 200)), float(random.uniform(1, 8))) for n in range(brokers)
    }
    return SimulatedTopic(sent, owners, shares if limited else {})


@given(seed=st.integers(0, 10_000), brokers=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_arrays_do_what_one_message_after_the_other_does(seed: int, brokers: int) -> None:
    random = np.random.default_rng(seed)
    topics = [random_topic(random, brokers, True), random_topic(random, brokers, False)]
    seen = simulate(topics, [SERVICE] * brokers)
    for mine, loop in zip(seen, one_by_one(topics, [SERVICE] * brokers), strict=True):
        assert mine.latencies.tolist() == pytest.approx(loop, abs=1e-6)


def test_token_waits_are_those_of_the_exact_buckets() -> None:
    sent = traffic([Publisher(f"p{n}", None, 20.0) for n in range(9)], Sending(), 10.0, seed=3)
    owners = np.arange(9) % 3
    shares = dict.fromkeys(range(3), (66.0, 3.0))
    [seen] = simulate([SimulatedTopic(sent, owners, shares)], [SERVICE] * 3)
    exact = split_token_waits(sent.times, owners[sent.publishers], [66.0] * 3, [3.0] * 3)
    assert seen.token_waits.tolist() == pytest.approx(exact.tolist(), abs=1e-9)


def test_who_has_no_broker_sends_nothing_and_an_idle_broker_is_no_fault() -> None:
    sent = Traffic(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 0]), 2)
    [seen] = simulate([SimulatedTopic(sent, np.array([0, -1]), {})], [SERVICE] * 3)
    assert seen.brokers.tolist() == [0, 0, 0, 0]
    assert seen.of(2).latencies.size == 0
    assert np.isnan(seen.of(2).latency(0.99))


def test_the_worst_broker_is_the_one_that_is_reported() -> None:
    sent = Traffic(np.array([0.0, 0.0, 1.0]), np.array([0, 0, 1]), 1)
    [seen] = simulate([SimulatedTopic(sent, np.array([0, 1]), {})], [SERVICE] * 2)
    assert seen.worst(0.99) == pytest.approx(0.011)  # the second at broker 0 waits for the first
    assert seen.of(1).latency(0.99) == pytest.approx(0.006)


@pytest.mark.parametrize(
    ("keys", "how", "load"),
    [
        pytest.param([None] * 6, Sending(), {}, id="poisson"),
        pytest.param(
            [None] * 6,
            Sending("periodic", 10),
            {"arrivals": "periodic", "batch": 10},
            id="periodic-batches",
        ),
        pytest.param(
            ["a", "a", "a", "b", "b", "b"],
            Sending("poisson", 1, 0.01),
            {"group_size": 3, "jitter_seconds": 0.01},
            id="groups-with-jitter",
        ),
    ],
)
def test_traffic_is_what_the_load_generator_sends(
    keys: list[str | None], how: Sending, load: dict[str, object]
) -> None:
    publishers = [Publisher(f"p{n}", key, 10.0) for n, key in enumerate(keys)]
    settings_ = {
        "topic": "t",
        "publish_addresses": ("127.0.0.1:1",),
        "publishers": 6,
        "rate_per_second": 10.0,
        "duration_seconds": 5.0,
        "seed": 7,
        **load,
    }
    schedule = build_schedule(LoadSettings(**settings_))  # type: ignore[arg-type]
    found = traffic(publishers, how, 5.0, 7)
    assert (found.times * 1e9).round().astype(int).tolist() == schedule.offsets_ns.tolist()
    assert found.publishers.tolist() == schedule.publishers.tolist()


def test_a_placement_becomes_a_topic() -> None:
    publishers = [Publisher(f"p{n}", None, 10.0) for n in range(4)]
    brokers = [Broker("x", 20.0), Broker("y", 20.0)]
    placement = POLICIES["srtm"](Contract(topic="t", rate=44, burst=8), brokers, publishers)
    sent = traffic(publishers, Sending(), 1.0, 1)
    topic = placed(placement, publishers, ["y", "x"], sent)
    assert sorted(topic.broker_of.tolist()) == [0, 0, 1, 1]
    assert topic.shares == {0: (22.0, 4.0), 1: (22.0, 4.0)}
