"""Kafka -> NSQ against real servers: offsets follow nsqd's OK."""

import threading

from confluent_kafka import Producer, TopicPartition

from tests.bridge.test_nsq_to_kafka import channel, open_channel
from tests.support.bridges import bridge
from tests.support.kafka import Kafka
from tests.support.servers import Nsqd, Servers, wait_for
from tests.support.v2 import V2

IN_MEMORY = "--mem-queue-size=200000"
"""What overflows to disk is delivered in any order; nsqd's default is 10,000."""


def read(nsqd: Nsqd, topic: str, count: int, name: str = "reader") -> list[bytes]:
    """So many messages of a channel, one connection, in order of delivery."""
    with V2(nsqd.tcp) as reader:
        reader.identify(client_id="reader")
        reader.subscribe(topic, name, ready=2000)
        return [reader.message().body for _ in range(count)]


def test_every_record_is_published_in_order_and_its_offset_committed(
    servers: Servers, kafka: Kafka
) -> None:
    gateway = servers.gateway()
    kafka.create("in", 3)
    open_channel(gateway.nsqd, "in", "reader")
    keys = [b"k%d" % (n % 10) for n in range(5000)]
    kafka.produce("in", [b"%d" % n for n in range(5000)], keys)
    made = bridge(
        servers,
        kafka.address,
        {"from": "kafka:in", "group": "in", "to": "nsq:in", "nsqd": [gateway.tcp]},
    )
    wait_for(lambda: made.route()["delivered_count"] == 5000, "all are published", 20)
    wait_for(lambda: kafka.committed("in", "in") == 5000, "all are committed")
    got = [int(each) for each in read(gateway.nsqd, "in", 5000)]
    assert sorted(got) == list(range(5000))
    for key in range(10):
        of_key = [n for n in got if n % 10 == key]
        assert of_key == sorted(of_key)
    assert made.process.stop() == 0, made.process.text()


def test_after_kill_9_it_goes_on_within_ten_seconds_and_loses_nothing(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("killed", 2)
    open_channel(nsqd, "killed", "reader")
    route = {"from": "kafka:killed", "group": "killed", "to": "nsq:killed", "nsqd": [nsqd.tcp]}
    made = bridge(servers, kafka.address, route)
    for turn in range(2):
        values = [b"%d-%d" % (turn, n) for n in range(20_000)]
        sender = threading.Thread(target=kafka.produce, args=("killed", values))
        before = nsqd.message_count("killed")
        sender.start()
        wait_for(lambda before=before: nsqd.message_count("killed") > before, "it works", 20)  # type: ignore[misc]
        made.process.kill()
        sender.join()
        made.again()
        made.wait_ready(10)
    wait_for(lambda: kafka.committed("killed", "killed") == 40_000, "all are committed", 30)
    got = read(nsqd, "killed", nsqd.message_count("killed"))
    assert set(got) == {b"%d-%d" % (turn, n) for turn in range(2) for n in range(20_000)}


def test_markers_and_aborted_records_are_no_lag_and_never_gone(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("marked")
    route = {"from": "kafka:marked", "group": "marked", "to": "nsq:marked", "nsqd": [nsqd.tcp]}
    made = bridge(servers, kafka.address, route)
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
    wait_for(lambda: kafka.committed("marked", "marked") == 57, "to the end", 20)
    assert made.process.stop() == 0, made.process.text()
    all_of_it = TopicPartition("marked", 0, 57)
    kafka.admin.delete_records([all_of_it])[all_of_it].result(10)
    made.again()
    made.wait_ready(10)
    kafka.produce("marked", [b"new"])
    wait_for(lambda: made.route()["delivered_count"] == 1, "it goes on", 20)
    assert made.route()["gone_count"] == 0
    assert read(nsqd, "marked", 6) == [b"kept"] * 5 + [b"new"]


def test_records_that_come_from_the_target_are_counted_and_not_published(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("looped")
    open_channel(nsqd, "back", "reader")
    kafka.produce("looped", [b"echo"] * 3, headers=[("nsq-topic", b"back")])
    kafka.produce("looped", [b"other"], headers=[("nsq-topic", b"elsewhere")])
    made = bridge(
        servers,
        kafka.address,
        {"from": "kafka:looped", "group": "looped", "to": "nsq:back", "nsqd": [nsqd.tcp]},
    )
    wait_for(lambda: made.route()["looped_count"] == 3, "the echoes are counted")
    wait_for(lambda: kafka.committed("looped", "looped") == 4, "and committed")
    assert read(nsqd, "back", 1) == [b"other"]
    assert channel(nsqd, "back", "reader")["depth"] == 0


def test_what_nsq_cannot_take_goes_to_the_dead_letter_topic_with_its_reason(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd("--max-msg-size=1000", "--max-body-size=4000")
    kafka.create("odd")
    kafka.create("odd.dead")
    open_channel(nsqd, "odd", "reader")
    values = [b"a", b"x" * 1001, None, b"", b"b", *[b"y" * 900] * 20, b"c"]
    kafka.produce("odd", values, [b"k"] * len(values))
    made = bridge(
        servers,
        kafka.address,
        {
            "from": "kafka:odd",
            "group": "odd",
            "to": "nsq:odd",
            "nsqd": [nsqd.tcp],
            "dead-letter": "kafka:odd.dead",
        },
    )
    wait_for(lambda: kafka.committed("odd", "odd") == len(values), "all are committed", 20)
    got = read(nsqd, "odd", 23)
    assert got == [b"a", b"b", *[b"y" * 900] * 20, b"c"]
    dead = kafka.records("odd.dead")
    assert [each.value for each in dead].count(b"x" * 1001) == 1
    assert len(dead) == 3
    reasons = {each.headers["kafka-offset"]: each.headers["srtm-reason"] for each in dead}
    assert b"more than nsqd takes: 1,000" in reasons[b"1"]
    assert b"has no body" in reasons[b"2"]
    assert all(each.key == b"k" for each in dead)
    assert made.route()["dead_letter_count"] == 3


def test_tombstones_are_skipped_where_the_file_says_so(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("compacted")
    kafka.produce("compacted", [None, b"a", None], [b"k"] * 3)
    made = bridge(
        servers,
        kafka.address,
        {
            "from": "kafka:compacted",
            "group": "compacted",
            "to": "nsq:compacted",
            "nsqd": [nsqd.tcp],
            "tombstones": "skip",
        },
    )
    wait_for(lambda: kafka.committed("compacted", "compacted") == 3, "all are committed")
    assert made.route()["tombstone_count"] == 2
    assert nsqd.message_count("compacted") == 1


def test_a_route_without_a_dead_letter_topic_stops_with_one_line(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("stopped")
    kafka.produce("stopped", [b"a", b"", b"b"])
    made = bridge(
        servers,
        kafka.address,
        {"from": "kafka:stopped", "group": "stopped", "to": "nsq:stopped", "nsqd": [nsqd.tcp]},
        wait=False,
    )
    assert made.process.popen.wait(20) == 1, made.process.text()
    said = [line for line in made.process.text().splitlines() if "ERROR" in line]
    assert "stopped[0] offset 1 cannot go to nsq:stopped: it has no body" in said[0]
    assert 'tombstones = "skip"' in said[0]
    assert "Traceback" not in made.process.text()
    assert kafka.committed("stopped", "stopped") <= 1


def test_a_rebalance_in_the_middle_of_a_batch_keeps_order_and_all_records(
    servers: Servers, kafka: Kafka
) -> None:
    gateway = servers.gateway(nsqd=servers.nsqd(IN_MEMORY))
    kafka.create("shared", 4)
    open_channel(gateway.nsqd, "shared", "reader")
    route = {"from": "kafka:shared", "group": "shared", "to": "nsq:shared", "nsqd": [gateway.tcp]}
    one = bridge(servers, kafka.address, route, name="one")
    keys = [b"k%d" % (n % 8) for n in range(40_000)]
    sender = threading.Thread(
        target=kafka.produce, args=("shared", [b"%d" % n for n in range(40_000)], keys)
    )
    sender.start()
    wait_for(lambda: one.route()["delivered_count"] > 0, "the first one works")
    two = bridge(servers, kafka.address, route, name="two")
    sender.join()
    wait_for(lambda: kafka.committed("shared", "shared") == 40_000, "all are committed", 30)
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
    route = {"from": "kafka:fenced", "group": "fenced", "to": "nsq:fenced", "nsqd": [nsqd.tcp]}
    one = bridge(servers, kafka.address, route)
    bridge(servers, kafka.address, route, wait=False)
    assert one.process.popen.wait(30) == 1, one.process.text()
    assert "give each its own name in [bridge]" in one.process.text()
    assert "Traceback" not in one.process.text()


def test_a_held_message_slows_its_own_route_only(servers: Servers, kafka: Kafka) -> None:
    gateway = servers.gateway("--topic", "held,rate=1,burst=1")
    for name in ("held", "free"):
        kafka.create(name)
        kafka.produce(name, [b"%d" % n for n in range(20_000)])
    routes = [
        {"from": f"kafka:{name}", "group": name, "to": f"nsq:{name}", "nsqd": [gateway.tcp]}
        for name in ("held", "free")
    ]
    made = bridge(servers, kafka.address, *routes, wait=False)
    wait_for(lambda: kafka.committed("free", "free") == 20_000, "the free one is done", 30)
    assert kafka.committed("held", "held") < 20_000
    assert made.process.alive
