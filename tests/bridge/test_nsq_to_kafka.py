"""NSQ -> Kafka against real servers: FIN follows Kafka's report."""

import json
import signal

from prometheus_client.parser import text_string_to_metric_families

from tests.support.bridges import (
    bridge,
    channel,
    open_channel,
    out,
    publish,
    publish_one,
    wait_finished,
    write,
)
from tests.support.distributors import srtm
from tests.support.kafka import Kafka
from tests.support.servers import Servers, http, wait_for


def test_every_message_comes_with_its_origin_and_key_and_in_order_for_each_key(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("plain", 4)
    open_channel(nsqd, "plain")
    bodies = [json.dumps({"device": {"id": f"d{n % 7}"}, "n": n}).encode() for n in range(5000)]
    publish(nsqd, "plain", bodies)
    made = bridge(servers, kafka, out(nsqd, "plain", key="/device/id"))
    wait_for(lambda: made.route()["delivered_count"] == 5000, "all are delivered", 20)
    wait_finished(nsqd, "plain")
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
    made = bridge(servers, kafka, out(nsqd, "drained"))
    publish(nsqd, "drained", [b"%d" % n for n in range(30_000)])
    wait_for(lambda: kafka.count("drained") > 0, "some are over")
    made.process.signal(signal.SIGTERM)
    assert made.process.popen.wait(20) == 0, made.process.text()

    def all_is_there() -> bool:
        left = channel(nsqd, "drained")
        assert left["requeue_count"] == left["timeout_count"] == 0
        return bool(left["depth"] + left["in_flight_count"] + kafka.count("drained") == 30_000)

    wait_for(all_is_there, "what is not over is in the channel")  # nsqd may still bring it there
    made.again()
    wait_for(lambda: kafka.count("drained") == 30_000, "the rest comes", 20)
    assert len({each.headers["nsq-message-id"] for each in kafka.records("drained")}) == 30_000


def test_what_kafka_does_not_take_is_buried_and_cut_short_where_no_topic_takes_it(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd("--max-msg-size=3000000")
    kafka.create("small", max_message_bytes="20000")
    kafka.create("small.dead", max_message_bytes="50000")
    open_channel(nsqd, "small")

    def body(letter: bytes, size: int) -> bytes:
        return b'{"id": "x", "text": "%b"}' % (letter * size)

    large, huge = body(b"b", 30_000), body(b"c", 2_500_000)
    publish_one(nsqd, "small", large)
    publish_one(nsqd, "small", huge)
    publish(nsqd, "small", [*[body(b"a", 100)] * 2000, b"no json", *[body(b"d", 100)] * 500])
    route = out(nsqd, "small", key="/id", max_msg_size=3_000_000, dead_letter="kafka:small.dead")
    made = bridge(servers, kafka, route)
    wait_for(lambda: made.route()["delivered_count"] == 2500, "what is small is delivered", 20)
    wait_for(lambda: made.route()["dead_letter_count"] == 3, "the others are buried", 20)
    assert kafka.count("small") == 2500
    dead = kafka.records("small.dead")
    bad, whole, cut = sorted(dead, key=lambda each: len(each.value or b""))
    assert bad.value == b"no json"
    assert b"is no JSON" in bad.headers["srtm-reason"]
    assert bad.headers["nsq-topic"] == b"small"
    assert whole.value == large
    assert b"MSG_SIZE_TOO_LARGE" in whole.headers["srtm-reason"]
    assert cut.headers["srtm-cut-from"] == b"%d" % len(huge)
    assert huge.startswith(cut.value or b"")
    assert 40_000 < len(cut.value or b"") < 50_000
    assert made.route()["cut_count"] == 1


def test_a_message_of_nsqds_maximum_goes_over(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("largest", max_message_bytes="2000000")
    open_channel(nsqd, "largest")
    for _ in range(5):
        publish_one(nsqd, "largest", b"x" * (1 << 20))
    bridge(servers, kafka, out(nsqd, "largest"))
    wait_for(lambda: kafka.count("largest") == 5, "all come", 20)


def test_memory_is_bounded_while_kafka_takes_nothing(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd("--mem-queue-size=1000")
    kafka.create("big")
    open_channel(nsqd, "big")
    made = bridge(servers, kafka, out(nsqd, "big", max_in_flight_bytes=8 << 20))
    with kafka.frozen():
        for _ in range(100):
            publish_one(nsqd, "big", b"x" * 500_000)
        wait_for(lambda: made.route()["in_flight_bytes"] >= 7 << 20, "it is full", 20)
        peak = max(made.route()["in_flight_bytes"] for _ in range(20))
        assert peak < 12 << 20  # the bound, and what was on its way when it was reached
    wait_for(lambda: kafka.count("big") == 100, "all come", 40)


def test_check_shows_what_would_run_and_changes_nothing(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("checked")
    for name in ("tidied", "tidied.dead"):
        kafka.create(name, cleanup_policy="compact")
    file = servers.folder / "check.toml"
    no_folder = f"file:{servers.folder}/no/folder"
    tidied = {"to": "kafka:tidied", "dead_letter": "kafka:tidied.dead"}

    def checked(code: int, *said: str, without: str = "Traceback", **more: str) -> None:
        write(file, kafka, out(nsqd, "checked", **more))
        done = srtm("bridge", "check", str(file))
        assert done.returncode == code, done.stderr
        assert done.stdout.startswith("nsq:checked/bridge -> kafka:")
        for each in said:
            assert each in done.stdout
        assert without not in done.stdout

    checked(
        0,
        "nsq:checked/bridge -> kafka:checked\n",
        "kafka:checked has 1 partitions",
        "no dead-letter: it stops",
    )
    assert nsqd.topic("checked") is None
    checked(3, "/no/folder cannot be written: there is no folder", dead_letter=no_folder)
    checked(3, "Kafka has no topic nowhere, or does not show it; create it", to="kafka:nowhere")
    assert kafka.partitions("nowhere") == 0
    checked(
        3,
        "kafka:tidied is compacted and takes no record without a key: the route",
        "kafka:tidied.dead is compacted and takes no record without a key",
        **tidied,
    )
    checked(3, without="is compacted", key="/id", **tidied | {"dead_letter": no_folder})
    write(file, kafka, out(nsqd, "checked"), no_such_setting=1)
    done = srtm("bridge", "check", str(file))
    assert done.returncode == 2
    assert 'No such configuration property: "no.such.setting"' in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_stats_and_metrics_tell_of_the_slo(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("slo")
    open_channel(nsqd, "slo")
    made = bridge(servers, kafka, out(nsqd, "slo", slo="0.99@1h"))
    publish(nsqd, "slo", [b"%d" % n for n in range(100)])
    wait_for(lambda: made.route()["delivered_count"] == 100, "all are delivered")
    found = made.route()
    assert found["slo"] == "0.99@1h"
    assert found["late_share"] == 0
    assert found["error_budget"] == 1
    assert found["latency"]["count"] == 100
    assert 0 < found["latency"]["p50"] <= found["latency"]["p99"] < 3600
    text = http(made.address, "/metrics")[1]
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert families["srtm_bridge_delivered_count"].samples[0].value == 100
    assert families["srtm_bridge_error_budget"].samples[0].value == 1
    assert families["srtm_bridge_latency_seconds"].samples[-2].value == 100
    assert http(made.address, "/ping")[1] == "OK"
    assert http(made.address, "/nothing")[0] == 404
