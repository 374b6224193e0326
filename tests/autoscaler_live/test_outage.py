"""Kafka goes away under a group that works, for longer than a lease, and comes back."""

import threading
from pathlib import Path

import pytest

from tests.support.cases import LONG
from tests.support.groups import group
from tests.support.kafka import kafka_in
from tests.support.servers import Servers, wait_for

QUICK_MEMBERS = {
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_min_heartbeat_interval_ms": "300",
}

HANGING = """
from srtm.consumer import reader, runner

runner._COMMIT_SECONDS = 6.0
commit = reader.Reader.commit


def hang(self):
    while self._places.moved() and (HERE / "hang").exists():
        (HERE / "hung").touch()
        time.sleep(0.01)
    return commit(self)


reader.Reader.commit = hang
"""


def test_kafka_is_killed_and_comes_back(tmp_path: Path, servers: Servers) -> None:
    """Without Kafka no lease can be renewed, so nobody works; afterwards the same consumers do. One
    has a commit under way all the while, for longer than Kafka has for one while it answers."""
    with kafka_in(tmp_path / "kafka") as kafka:
        found = group(kafka, servers, "outage", group={"min": 2, "max": 2, "lease": "3s"})
        with (found.folder / "work.py").open("a") as work:
            work.write(HANGING)
        try:
            controller = found.controller()
            found.produce(50)
            found.wait_kept()
            found.wait_state(2)
            pids = found.pids()
            (found.folder / "hang").touch()
            found.produce(100)
            wait_for(lambda: (found.folder / "hung").exists(), "a commit hangs", 30)
            kafka.server.kill()
            wait_for(lambda: found.stats()["health"] != "OK", "the controller says so", 20)
            over = threading.Event()
            timer = threading.Timer(6, over.set)  # longer than a lease and its take-over
            timer.start()
            over.wait()
            kafka.server.start()
            wait_for(lambda: "Kafka answers again" in controller.text(), "it is back", 30)
            (found.folder / "hang").unlink()
            found.produce(100)
            found.wait_kept(60)
            found.wait_state(2, 60)
            found.check()
            assert controller.alive
            assert found.pids() == pids
        finally:
            found.end()


@pytest.mark.parametrize("handover", ["direct", "kip-848", *(["assignor"] if LONG else [])])
def test_a_topic_of_a_kafka_that_was_restarted_is_made_anew(
    tmp_path: Path, servers: Servers, handover: str
) -> None:
    """Its partitions have a leader epoch above 0 then, and those of the new topic begin at 0."""
    with kafka_in(tmp_path / "kafka", **QUICK_MEMBERS) as kafka:
        found = group(kafka, servers, "again", group={"min": 1, "max": 1, "handover": handover})
        try:
            with kafka.dead():
                pass
            wait_for(lambda: kafka.leader_epoch("again") > 0, "the leader epoch has grown", 30)
            found.controller()
            found.produce(100)
            found.wait_kept()
            pids = found.pids()
            kafka.delete("again")
            wait_for(lambda: not kafka.partitions("again"), "the topic is gone")
            kafka.create("again", 4)
            found.produce(200)
            found.wait_kept()
            found.produce(100)
            found.wait_kept()
            found.check_kept()
            wait_for(lambda: kafka.committed("again-group", "again") == 300, "all is committed", 30)
            assert found.pids() == pids
        finally:
            found.end()
