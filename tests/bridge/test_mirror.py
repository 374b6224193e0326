"""NSQ -> Kafka -> NSQ -> Kafka, and both ways between topics of one name."""

import json
import threading

from tests.support.bridges import (
    IN_MEMORY,
    back,
    bridge,
    channel,
    open_channel,
    out,
    publish,
    wait_committed,
)
from tests.support.kafka import Kafka
from tests.support.servers import Servers, wait_for

CALM, ALL = 10_000, 30_000
"""Messages before the first kill, and with those after it."""


def numbers(kafka: Kafka, topic: str) -> dict[str, list[int]]:
    """By key, each number where it comes first."""
    found: dict[str, list[int]] = {}
    for each in kafka.records(topic):
        body = json.loads(each.value or b"")
        assert each.key == body["key"].encode()
        of_key = found.setdefault(body["key"], [])
        if body["n"] not in of_key[-3000:]:
            of_key.append(body["n"])
    return found


def test_the_round_trip_keeps_all_messages_also_with_the_bridge_killed_on_the_way(
    servers: Servers, kafka: Kafka
) -> None:
    gateway = servers.gateway(nsqd=servers.nsqd(IN_MEMORY))
    nsqd = gateway.nsqd
    topics = ("trip-1", "trip-2")
    for each in topics:
        kafka.create(each, 3)
        open_channel(nsqd, each)
    keyed = {"key": "/key", "msg_timeout": "2s", "loop": True}  # what a killed bridge held
    made = bridge(
        servers,
        kafka,
        out(gateway, "trip-1", **keyed),
        back(gateway, "trip-1", to="nsq:trip-2", group="trip", loop=True),
        out(gateway, "trip-2", **keyed),
    )

    def over(count: int) -> bool:
        at_rest = all(
            channel(nsqd, each)["depth"] + channel(nsqd, each)["in_flight_count"] == 0
            for each in topics
        )
        done = kafka.committed("trip", "trip-1") == kafka.count("trip-1")
        return at_rest and done and kafka.count("trip-2") >= count

    publish(nsqd, "trip-1", bodies(0, CALM))
    wait_for(lambda: over(CALM), "all is over", 60)
    for topic in topics:
        found = numbers(kafka, topic)
        assert sorted(n for each in found.values() for n in each) == list(range(CALM))
        assert all(each == sorted(each) for each in found.values())
        assert kafka.count(topic) == CALM
    sender = threading.Thread(target=publish, args=(nsqd, "trip-1", bodies(CALM, ALL)))
    sender.start()
    for least in (CALM + 1, (CALM + ALL) // 2):
        wait_for(lambda least=least: kafka.count("trip-2") >= least, "it works", 30)  # type: ignore[misc]
        made.process.kill()
        made.again(10)  # it has its place in the group at once
    sender.join()
    wait_for(lambda: over(ALL), "all is over", 60)
    for topic in topics:
        got = {n for each in numbers(kafka, topic).values() for n in each}
        assert got == set(range(ALL))
    # A kill repeats what was in flight, no more.
    assert kafka.count("trip-1") <= ALL + 2 * 2500
    assert made.process.stop() == 0, made.process.text()


def bodies(first: int, last: int) -> list[bytes]:
    return [json.dumps({"key": f"k{n % 10}", "n": n}).encode() for n in range(first, last)]


def test_both_ways_between_topics_of_one_name_end(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("both", 2)
    open_channel(nsqd, "both")
    open_channel(nsqd, "both", "reader")
    made = bridge(
        servers, kafka, out(nsqd, "both", name="out"), back(nsqd, "both", name="back", loop=True)
    )
    publish(nsqd, "both", [b"from-nsq-%d" % n for n in range(100)])
    kafka.produce("both", [b"from-kafka-%d" % n for n in range(100)])
    # NSQ carries no headers, so what came from Kafka goes back to it once, and there it ends.
    wait_for(lambda: made.route("back")["looped_count"] == 200, "the echoes are stopped", 20)
    wait_committed(kafka, "both", 300)
    assert kafka.count("both") == 300
    assert nsqd.message_count("both") == 200
