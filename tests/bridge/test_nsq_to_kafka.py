"""NSQ -> Kafka against real servers: FIN follows Kafka's report."""

import json
import signal

from tests.support.bridges import bridge
from tests.support.kafka import Kafka
from tests.support.servers import Nsqd, Servers, http, wait_for


def publish(nsqd: Nsqd, topic: str, bodies: list[bytes]) -> None:
    for start in range(0, len(bodies), 1000):
        part = b"\n".join(bodies[start : start + 1000])
        assert http(nsqd.http, f"/mpub?topic={topic}", part)[0] == 200


def channel(nsqd: Nsqd, topic: str, name: str = "bridge") -> dict[str, int]:
    for each in (nsqd.topic(topic) or {"channels": []})["channels"]:
        if each["channel_name"] == name:
            return dict(each)
    return {}


def open_channel(nsqd: Nsqd, topic: str, name: str = "bridge") -> None:
    http(nsqd.http, f"/topic/create?topic={topic}", b"")
    http(nsqd.http, f"/channel/create?topic={topic}&channel={name}", b"")


def test_every_message_comes_with_its_origin_and_key_and_in_order_for_each_key(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("plain", 4)
    open_channel(nsqd, "plain")
    bodies = [json.dumps({"device": {"id": f"d{n % 7}"}, "n": n}).encode() for n in range(5000)]
    publish(nsqd, "plain", bodies)
    made = bridge(
        servers,
        kafka.address,
        {"from": "nsq:plain/bridge", "to": "kafka:plain", "nsqd": [nsqd.tcp], "key": "/device/id"},
    )
    wait_for(lambda: made.route()["delivered_count"] == 5000, "all are delivered", 20)
    wait_for(lambda: channel(nsqd, "plain")["in_flight_count"] == 0, "all are finished")
    assert channel(nsqd, "plain")["depth"] == 0
    records = kafka.records("plain")
    assert sorted(each.value or b"" for each in records) == sorted(bodies)
    for key in {each.key for each in records}:
        of_key = [json.loads(each.value or b"")["n"] for each in records if each.key == key]
        assert of_key == sorted(of_key)
        assert len({each.partition for each in records if each.key == key}) == 1
    one = records[0]
    assert one.headers["nsq-host"] == nsqd.tcp.encode()
    assert one.headers["nsq-topic"] == b"plain"
    assert one.headers["nsq-attempts"] == b"1"
    assert len(one.headers["nsq-message-id"]) == 16
    assert int(one.headers["nsq-time"]) > 1_600_000_000 * 10**9
    assert len({each.headers["nsq-message-id"] for each in records}) == 5000
    assert made.process.stop() == 0, made.process.text()


def test_sigterm_drains(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("drained")
    open_channel(nsqd, "drained")
    route = {"from": "nsq:drained/bridge", "to": "kafka:drained", "nsqd": [nsqd.tcp]}
    made = bridge(servers, kafka.address, route)
    publish(nsqd, "drained", [b"%d" % n for n in range(30_000)])
    wait_for(lambda: kafka.count("drained") > 0, "some are over")
    made.process.signal(signal.SIGTERM)
    assert made.process.popen.wait(20) == 0, made.process.text()
    left = channel(nsqd, "drained")
    assert left["requeue_count"] == left["timeout_count"] == 0
    assert left["depth"] + left["in_flight_count"] + kafka.count("drained") == 30_000
    made.again()
    wait_for(lambda: kafka.count("drained") == 30_000, "the rest comes", 20)
    assert len({each.headers["nsq-message-id"] for each in kafka.records("drained")}) == 30_000
