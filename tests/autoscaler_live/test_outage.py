"""Kafka goes away under a group that works, for longer than a lease, and comes back."""

import threading
from pathlib import Path

from tests.support.groups import group
from tests.support.kafka import kafka_in
from tests.support.servers import Servers, wait_for


def test_kafka_is_killed_and_comes_back(tmp_path: Path, servers: Servers) -> None:
    """Without Kafka no lease can be renewed, so nobody works; afterwards the same consumers do."""
    with kafka_in(tmp_path / "kafka") as kafka:
        found = group(kafka, servers, "outage", group={"min": 2, "max": 2})
        try:
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
        finally:
            found.end()
