"""NSQ -> Kafka against real servers: FIN follows Kafka's report."""

import json
import signal

from prometheus_client.parser import text_string_to_metric_families

from tests.support.bridges import bridge, write
from tests.support.distributors import srtm
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

    def all_is_there() -> bool:
        left = channel(nsqd, "drained")
        assert left["requeue_count"] == left["timeout_count"] == 0
        return bool(left["depth"] + left["in_flight_count"] + kafka.count("drained") == 30_000)

    wait_for(all_is_there, "what is not over is in the channel")  # nsqd may still bring it there
    made.again()
    wait_for(lambda: kafka.count("drained") == 30_000, "the rest comes", 20)
    assert len({each.headers["nsq-message-id"] for each in kafka.records("drained")}) == 30_000


def test_poison_goes_to_the_dead_letter_topic_with_its_reason_and_blocks_nobody(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("poison")
    kafka.create("poison.dead")
    open_channel(nsqd, "poison")
    good = [b'{"id": "%d"}' % n for n in range(100)]
    bad = {b"no json": b"is no JSON", b'{"no": 1}': b"has no /id", b'{"id": {}}': b"neither"}
    publish(nsqd, "poison", [*good[:50], *bad, *good[50:]])
    made = bridge(
        servers,
        kafka.address,
        {
            "from": "nsq:poison/bridge",
            "to": "kafka:poison",
            "nsqd": [nsqd.tcp],
            "key": "/id",
            "dead-letter": "kafka:poison.dead",
        },
    )
    wait_for(lambda: made.route()["dead_letter_count"] == 3, "the bad ones are buried")
    wait_for(lambda: kafka.count("poison") == 100, "the good ones come")
    wait_for(lambda: channel(nsqd, "poison")["in_flight_count"] == 0, "all are finished")
    dead = kafka.records("poison.dead")
    assert {each.value for each in dead} == set(bad)
    for each in dead:
        assert bad[each.value or b""] in each.headers["srtm-reason"]
        assert each.headers["nsq-topic"] == b"poison"


def test_a_body_that_the_topic_does_not_take_is_buried_cut_short_where_no_topic_takes_it(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd("--max-msg-size=3000000")
    kafka.create("small", max_message_bytes="20000")
    kafka.create("small.dead", max_message_bytes="50000")
    open_channel(nsqd, "small")
    bodies = [b"a" * 100] * 2000 + [b"b" * 30_000, b"c" * 2_500_000] + [b"d" * 100] * 500
    for body in bodies[2000:2002]:
        assert http(nsqd.http, "/pub?topic=small", body)[0] == 200
    publish(nsqd, "small", bodies[:2000] + bodies[2002:])
    made = bridge(
        servers,
        kafka.address,
        {
            "from": "nsq:small/bridge",
            "to": "kafka:small",
            "nsqd": [nsqd.tcp],
            "max-msg-size": 3_000_000,
            "dead-letter": "kafka:small.dead",
        },
    )
    wait_for(lambda: made.route()["delivered_count"] == 2500, "what is small is delivered", 20)
    wait_for(lambda: made.route()["dead_letter_count"] == 2, "the others are buried", 20)
    assert kafka.count("small") == 2500
    dead = sorted(kafka.records("small.dead"), key=lambda each: each.value or b"")
    assert dead[0].value == b"b" * 30_000
    assert b"MSG_SIZE_TOO_LARGE" in dead[0].headers["srtm-reason"]
    assert dead[1].headers["srtm-cut-from"] == b"2500000"
    assert set(dead[1].value or b"") == {ord("c")}
    assert 40_000 < len(dead[1].value or b"") < 50_000
    assert made.route()["cut_count"] == 1


def test_a_message_of_nsqds_maximum_goes_over(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("largest", max_message_bytes="2000000")
    open_channel(nsqd, "largest")
    for _ in range(5):
        assert http(nsqd.http, "/pub?topic=largest", b"x" * (1 << 20))[0] == 200
    bridge(
        servers,
        kafka.address,
        {"from": "nsq:largest/bridge", "to": "kafka:largest", "nsqd": [nsqd.tcp]},
    )
    wait_for(lambda: kafka.count("largest") == 5, "all come", 20)


def test_a_route_without_a_dead_letter_topic_stops_and_nsqd_keeps_the_message(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("halt")
    open_channel(nsqd, "halt")
    publish(nsqd, "halt", [b'{"id": 1}', b"bad", b'{"id": 2}'])
    made = bridge(
        servers,
        kafka.address,
        {"from": "nsq:halt/bridge", "to": "kafka:halt", "nsqd": [nsqd.tcp], "key": "/id"},
        wait=False,
    )
    assert made.process.popen.wait(30) == 1, made.process.text()
    said = [line for line in made.process.text().splitlines() if "ERROR" in line]
    assert "cannot go to kafka:halt: the body is no JSON" in said[0]
    assert 'dead-letter = "kafka:TOPIC"' in said[0]
    assert "Traceback" not in made.process.text()
    held = channel(nsqd, "halt")
    assert held["depth"] + held["in_flight_count"] + held["deferred_count"] == 1
    assert kafka.count("halt") == 2


def test_memory_is_bounded_while_kafka_takes_nothing(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd("--mem-queue-size=1000")
    kafka.create("big")
    open_channel(nsqd, "big")
    route = {"from": "nsq:big/bridge", "to": "kafka:big", "nsqd": [nsqd.tcp]}
    made = bridge(servers, kafka.address, route | {"max-in-flight-bytes": 8 << 20})
    with kafka.frozen():
        for _ in range(100):
            assert http(nsqd.http, "/pub?topic=big", b"x" * 500_000)[0] == 200
        wait_for(lambda: made.route()["in_flight_bytes"] >= 7 << 20, "it is full", 20)
        peak = max(made.route()["in_flight_bytes"] for _ in range(20))
        assert peak < 12 << 20  # the bound, and what was on its way when it was reached
    wait_for(lambda: kafka.count("big") == 100, "all come", 40)


def test_check_shows_what_would_run_and_changes_nothing(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("checked")
    file = servers.folder / "check.toml"
    route = {"from": "nsq:checked/bridge", "to": "kafka:checked", "nsqd": [nsqd.tcp]}
    write(file, kafka.address, "127.0.0.1:4190", route)
    done = srtm("bridge", "check", str(file))
    assert done.returncode == 0, done.stderr
    assert "kafka:checked has 1 partitions" in done.stdout
    assert done.stdout.startswith("nsq:checked/bridge -> kafka:checked\n")
    assert "no dead-letter: it stops" in done.stdout
    assert nsqd.topic("checked") is None
    dead = {"dead-letter": f"file:{servers.folder}/no/folder"}
    write(file, kafka.address, "127.0.0.1:4190", route | dead)
    done = srtm("bridge", "check", str(file))
    assert done.returncode == 3
    assert "/no/folder cannot be written: there is no folder" in done.stdout
    write(file, kafka.address, "127.0.0.1:4190", route | {"to": "kafka:nowhere"})
    done = srtm("bridge", "check", str(file))
    assert done.returncode == 3
    assert "Kafka has no topic nowhere, or does not show it; create it" in done.stdout
    assert kafka.partitions("nowhere") == 0
    for name in ("tidied", "tidied.dead"):
        kafka.create(name, cleanup_policy="compact")
    to_tidied = route | {"to": "kafka:tidied", "dead-letter": "kafka:tidied.dead"}
    write(file, kafka.address, "127.0.0.1:4190", to_tidied)
    done = srtm("bridge", "check", str(file))
    assert done.returncode == 3
    assert "kafka:tidied is compacted and takes no record without a key: the route" in done.stdout
    assert "kafka:tidied.dead is compacted and takes no record without a key" in done.stdout
    write(file, kafka.address, "127.0.0.1:4190", to_tidied | {"key": "/id", **dead})
    assert "is compacted" not in srtm("bridge", "check", str(file)).stdout
    write(file, kafka.address, "127.0.0.1:4190", route, no_such_setting=1)
    done = srtm("bridge", "check", str(file))
    assert done.returncode == 2
    assert 'No such configuration property: "no.such.setting"' in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_stats_and_metrics_tell_of_the_slo(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    kafka.create("slo")
    open_channel(nsqd, "slo")
    route = {"from": "nsq:slo/bridge", "to": "kafka:slo", "nsqd": [nsqd.tcp], "slo": "0.99@1h"}
    made = bridge(servers, kafka.address, route)
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
