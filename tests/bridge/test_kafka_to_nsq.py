"""Kafka -> NSQ against real servers: offsets follow nsqd's OK."""

import threading

from confluent_kafka import Producer, TopicPartition

from tests.support.bridges import (
    IN_MEMORY,
    back,
    bridge,
    channel,
    open_channel,
    read,
    wait_committed,
)
from tests.support.kafka import Kafka
from tests.support.servers import Servers, wait_for


def test_markers_and_aborted_records_are_no_lag_and_never_gone(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("marked")
    made = bridge(servers, kafka, back(nsqd, "marked"))
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": kafka.address,
        "transactional.id": "marked",
    }
    producer = Producer(settings)
    producer.init_transactions(30)
    for body, count in ((b"kept", 5), (b"aborted", 50)):
        producer.begin_transaction()
        for _ in range(count):
            producer.produce("marked", body)
        producer.flush(30)
        if body == b"kept":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    wait_for(lambda: made.route()["delivered_count"] == 5, "what was committed is there", 20)
    wait_for(lambda: made.route()["records_lag"] == 0, "nothing lags", 20)
    wait_committed(kafka, "marked", 57)
    assert made.process.stop() == 0, made.process.text()
    all_of_it = TopicPartition("marked", 0, 57)
    kafka.admin.delete_records([all_of_it])[all_of_it].result(10)
    made.again(10)
    kafka.produce("marked", [b"new"])
    wait_for(lambda: made.route()["delivered_count"] == 1, "it goes on", 20)
    assert made.route()["gone_count"] == 0
    assert read(nsqd, "marked", 6) == [b"kept"] * 5 + [b"new"]


def test_echoes_and_tombstones_are_counted_and_committed_and_not_published(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    for topic in ("looped", "compacted"):
        kafka.create(topic)
        open_channel(nsqd, topic, "reader")
    kafka.produce("looped", [b"echo"] * 3, headers=[("nsq-topic", b"looped")])
    kafka.produce("looped", [b"other"], headers=[("nsq-topic", b"elsewhere")])
    kafka.produce("compacted", [None, b"a", None], [b"k"] * 3)
    made = bridge(servers, kafka, back(nsqd, "looped"), back(nsqd, "compacted", tombstones="skip"))
    for topic, count, body in (("looped", 4, b"other"), ("compacted", 3, b"a")):
        wait_committed(kafka, topic, count)
        assert read(nsqd, topic, 1) == [body]
        assert channel(nsqd, topic, "reader")["depth"] == 0
    assert made.route("kafka:looped")["looped_count"] == 3
    assert made.route("kafka:compacted")["tombstone_count"] == 2


def test_a_rebalance_in_the_middle_of_a_batch_keeps_order_and_all_records(
    servers: Servers, kafka: Kafka
) -> None:
    gateway = servers.gateway(nsqd=servers.nsqd(IN_MEMORY))
    kafka.create("shared", 4)
    open_channel(gateway.nsqd, "shared", "reader")
    one = bridge(servers, kafka, back(gateway, "shared"), name="one")
    keys = [b"k%d" % (n % 8) for n in range(40_000)]
    sender = threading.Thread(
        target=kafka.produce, args=("shared", [b"%d" % n for n in range(40_000)], keys)
    )
    sender.start()
    wait_for(lambda: one.route()["delivered_count"] > 0, "the first one works")
    two = bridge(servers, kafka, back(gateway, "shared"), name="two")
    sender.join()
    wait_committed(kafka, "shared", 40_000)
    assert two.process.stop() == 0, two.process.text()
    assert one.process.stop() == 0, one.process.text()
    got = [int(each) for each in read(gateway.nsqd, "shared", gateway.nsqd.message_count("shared"))]
    first = list(dict.fromkeys(got))
    assert sorted(first) == list(range(40_000))
    for key in range(8):
        of_key = [n for n in first if n % 8 == key]
        assert of_key == sorted(of_key)


def test_a_second_bridge_of_the_same_name_is_told_so(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("fenced")
    one = bridge(servers, kafka, back(nsqd, "fenced"))
    bridge(servers, kafka, back(nsqd, "fenced"), wait=False)
    assert one.process.popen.wait(30) == 1, one.process.text()
    assert "give each its own name in [bridge]" in one.process.text()
    assert "Traceback" not in one.process.text()


def test_a_held_message_slows_its_own_route_only(servers: Servers, kafka: Kafka) -> None:
    gateway = servers.gateway("--topic", "held,rate=1,burst=1")
    for name in ("held", "free"):
        kafka.create(name)
        kafka.produce(name, [b"%d" % n for n in range(20_000)])
    made = bridge(servers, kafka, back(gateway, "held"), back(gateway, "free"), wait=False)
    wait_committed(kafka, "free", 20_000)
    assert kafka.committed("held", "held") < 20_000
    assert made.process.alive
