"""NSQ -> Kafka -> NSQ -> Kafka, and both ways between topics of one name."""

import json
import threading

from tests.bridge.test_kafka_to_nsq import IN_MEMORY
from tests.bridge.test_nsq_to_kafka import channel, open_channel, publish
from tests.support.bridges import bridge
from tests.support.kafka import Kafka
from tests.support.servers import Servers, wait_for


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


def test_the_round_trip_keeps_all_messages_and_the_order_of_each_key(
    servers: Servers, kafka: Kafka
) -> None:
    _round_trip(servers, kafka, "calm", kills=0)


def test_the_round_trip_with_the_bridge_killed_on_the_way_keeps_all_messages(
    servers: Servers, kafka: Kafka
) -> None:
    _round_trip(servers, kafka, "wild", kills=3)


def _round_trip(servers: Servers, kafka: Kafka, name: str, kills: int) -> None:
    gateway = servers.gateway(nsqd=servers.nsqd(IN_MEMORY))
    nsqd = gateway.nsqd
    first, second = f"{name}-1", f"{name}-2"
    for each in (first, second):
        kafka.create(each, 3)
        open_channel(nsqd, each)
    again = {"msg-timeout": "2s"}  # what a killed bridge held
    ways: list[dict[str, object]] = [
        {"from": f"nsq:{first}/bridge", "to": f"kafka:{first}", "key": "/key", **again},
        {"from": f"kafka:{first}", "to": f"nsq:{second}", "group": name},
        {"from": f"nsq:{second}/bridge", "to": f"kafka:{second}", "key": "/key", **again},
    ]
    made = bridge(
        servers, kafka.address, *({**way, "nsqd": [gateway.tcp], "loop": True} for way in ways)
    )
    count = 20_000
    bodies = [json.dumps({"key": f"k{n % 10}", "n": n}).encode() for n in range(count)]
    sender = threading.Thread(target=publish, args=(nsqd, first, bodies))
    sender.start()
    for turn in range(kills):
        least = 1 + turn * count // kills
        wait_for(lambda least=least: kafka.count(second) >= least, "it works", 30)  # type: ignore[misc]
        made.process.kill()
        made.again()
        made.wait_ready(15)
    sender.join()

    def over() -> bool:
        at_rest = all(
            channel(nsqd, each)["depth"] + channel(nsqd, each)["in_flight_count"] == 0
            for each in (first, second)
        )
        return at_rest and kafka.committed(name, first) == kafka.count(first) >= count

    wait_for(over, "all is over", 60)
    for topic in (first, second):
        found = numbers(kafka, topic)
        assert sorted(n for each in found.values() for n in set(each)) == list(range(count))
        if not kills:
            assert all(each == sorted(each) for each in found.values())
            assert kafka.count(topic) == count
    assert made.process.stop() == 0, made.process.text()


def test_both_ways_between_topics_of_one_name_end(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("both", 2)
    open_channel(nsqd, "both")
    open_channel(nsqd, "both", "reader")
    made = bridge(
        servers,
        kafka.address,
        {"from": "nsq:both/bridge", "to": "kafka:both", "nsqd": [nsqd.tcp], "name": "out"},
        {
            "from": "kafka:both",
            "to": "nsq:both",
            "group": "both",
            "nsqd": [nsqd.tcp],
            "loop": True,
            "name": "back",
        },
    )
    publish(nsqd, "both", [b"from-nsq-%d" % n for n in range(100)])
    kafka.produce("both", [b"from-kafka-%d" % n for n in range(100)])
    # NSQ carries no headers, so what came from Kafka goes back to it once, and there it ends.
    wait_for(lambda: made.route("back")["looped_count"] == 200, "the echoes are stopped", 20)
    wait_for(lambda: kafka.committed("both", "both") == 300, "all is read")
    assert kafka.count("both") == 300
    assert nsqd.message_count("both") == 200
