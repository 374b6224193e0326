"""Kafka goes away under a group that works, for longer than a lease, and comes back."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.groups import Group
from tests.support.kafka import Kafka, kafka_in
from tests.support.servers import wait_for

Make = Callable[..., Group]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka of these tests alone, since they stop it."""
    settings = {
        "group_consumer_heartbeat_interval_ms": "300",
        "group_consumer_min_heartbeat_interval_ms": "300",
    }
    with kafka_in(tmp_path_factory.mktemp("kafka"), **settings) as found:
        yield found


def test_kafka_is_killed_and_comes_back(kafka: Kafka, make_group: Make) -> None:
    """Without Kafka no lease can be renewed, so nobody works; afterwards the same consumers do."""
    found = make_group("outage", group={"min": 2, "max": 2})
    controller = found.controller()
    found.produce(50)
    found.wait_kept()
    found.wait_state(2)
    pids = found.pids()
    kafka.server.kill()
    wait_for(lambda: found.stats()["health"] != "OK", "the controller says so", 20)
    over = threading.Event()
    timer = threading.Timer(2.5, over.set)  # longer than a lease and its take-over
    timer.start()
    over.wait()
    kafka.server.start()
    found.produce(100)
    found.wait_kept(60)
    found.wait_state(2, 60)
    found.check()
    assert controller.alive
    assert found.pids() == pids


@pytest.mark.parametrize("handover", ["direct", "assignor", "kip-848"])
def test_a_topic_of_a_kafka_that_was_restarted_is_made_anew(
    kafka: Kafka, make_group: Make, handover: str
) -> None:
    """Its partitions have a leader epoch above 0 then, and those of the new topic begin at 0."""
    topic = f"again-{handover}"
    found = make_group(topic, group={"min": 1, "max": 1, "handover": handover})
    with kafka.dead():
        pass
    wait_for(lambda: kafka.leader_epoch(topic) > 0, "the leader epoch has grown", 30)
    found.controller()
    found.produce(100)
    found.wait_kept()
    pids = found.pids()
    kafka.delete(topic)
    wait_for(lambda: not kafka.partitions(topic), "the topic is gone")
    kafka.create(topic, 4)
    found.produce(200)
    found.wait_kept()
    found.produce(100)
    found.wait_kept()
    found.check_kept()
    wait_for(lambda: kafka.committed(f"{topic}-group", topic) == 300, "all is committed", 30)
    assert found.pids() == pids
