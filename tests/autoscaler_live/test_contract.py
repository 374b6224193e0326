"""What every back end owes: all is consumed, whoever is killed; the number of consumers holds."""

import json
import os
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.groups import Group, group, under_load
from tests.support.kafka import Kafka
from tests.support.servers import Servers, wait_for

BACK_ENDS = ["direct", "assignor", "kip-848"]


@pytest.fixture(params=BACK_ENDS)
def two(request: pytest.FixtureRequest, kafka: Kafka, servers: Servers) -> Iterator[Group]:
    """A group of exactly two consumers."""
    topic = f"{request.node.originalname.removeprefix('test_')}-{request.param}"
    keys = {"min": 2, "max": 2, "handover": request.param}
    found = group(kafka, servers, topic, group=keys)
    yield found
    found.end()


def test_each_record_once_and_decisions_explained(two: Group) -> None:
    two.produce(200)
    two.controller()
    two.wait_kept()
    two.wait_state(2)
    two.produce(100)
    two.wait_kept()
    two.check_kept()
    assert set(two.ids().values()) == {1}
    wait_for(lambda: two.kafka.committed(f"{two.topic}-group", two.topic) == 300, "committed")
    decisions = json.loads(two.command("explain", "--json").stdout)
    assert decisions[0]["action"] == "up"
    assert decisions[0]["consumers"] == 2
    assert decisions[-1]["took_seconds"] > 0


def test_a_consumer_is_killed(two: Group) -> None:
    two.controller()
    two.wait_state(2)
    with under_load(two):
        wait_for(lambda: len(two.ids()) > 30, "it works")
        os.kill(two.pids()[0], signal.SIGKILL)
        sent = two.sent
        wait_for(lambda: len(two.ids()) > sent + 60, "it goes on", 30)
    two.wait_kept()
    two.wait_state(2)
    two.check_kept()


def test_a_controller_is_killed(two: Group) -> None:
    """The group goes on without it; the next one finds it as it is, and launches nobody."""
    first = two.controller()
    two.wait_state(2)
    pids = two.pids()
    first.kill()
    two.produce(40)
    two.wait_kept()
    two.controller()
    two.wait_state(2)
    assert two.pids() == pids
    assert set(two.ids().values()) == {1}


def test_who_leaves_takes_nothing_along(two: Group) -> None:
    two.controller()
    two.wait_state(2)
    with under_load(two):
        wait_for(lambda: len(two.ids()) > 20, "it works")
        third = two.consumer()
        two.wait(lambda: not third.alive, "one is too many", 60)
    two.wait_kept()
    two.wait_state(2)
    assert set(two.ids().values()) == {1}


def test_offsets_that_were_committed_beyond_the_end(two: Group) -> None:
    """The topic was made anew, say: what is there is consumed, rather than nothing."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": two.kafka.address,
        "group.id": f"{two.topic}-group",
    }
    consumer = Consumer(settings)
    beyond = [TopicPartition(two.topic, partition, 1000) for partition in range(4)]
    consumer.commit(offsets=beyond, asynchronous=False)
    consumer.close()
    two.produce(40)
    two.controller()
    two.wait_kept(60)
    two.check_kept()
