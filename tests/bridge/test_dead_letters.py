"""What one side cannot take, whatever it holds: none blocks a route, none is lost."""

import json
from pathlib import Path

from tests.bridge.test_kafka_to_nsq import read
from tests.bridge.test_nsq_to_kafka import channel, open_channel, publish
from tests.support.bridges import bridge
from tests.support.kafka import Kafka
from tests.support.raw_kafka import produce_raw
from tests.support.servers import Servers, http, wait_for

NO_UTF8 = (b"\xff\xfe", b"1")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []


def test_records_of_any_shape_go_over_or_to_the_dead_letters(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd("--max-msg-size=5000", "--max-body-size=20000")
    long = "names." + "x" * 70
    file = servers.folder / "dead.jsonl"
    for topic in ("hostile", "names.ok", long):
        kafka.create(topic)
    kafka.create("hostile.dead", max_message_bytes="20000")
    open_channel(nsqd, "hostile", "reader")
    produce_raw(kafka.address, "hostile", b"first", [NO_UTF8, (b"nsq-topic", b"elsewhere")])
    produce_raw(kafka.address, "hostile", None, [NO_UTF8], key=b"tombstone")
    produce_raw(kafka.address, "hostile", b"w" * 6000, [(b"twice", b"1"), (b"twice", b"2")])
    produce_raw(kafka.address, "hostile", b"s" * 50_000, [(b"kept", None)])
    produce_raw(kafka.address, "hostile", b"h" * 6000, [(b"h" * 30_000, b"")])
    produce_raw(kafka.address, "hostile", None, [], key=b"k" * 30_000)
    kafka.produce("hostile", [b"last"])
    kafka.produce("names.ok", [b"named"])
    produce_raw(kafka.address, long, b"\xff", [(b"of", b"\xfe")], key=b"key")
    made = bridge(
        servers,
        kafka.address,
        {
            "from": "kafka:hostile",
            "group": "hostile",
            "to": "nsq:hostile",
            "nsqd": [nsqd.tcp],
            "dead-letter": "kafka:hostile.dead",
        },
        {
            "from": "kafka:names.*",
            "group": "names",
            "to": "nsq:{topic}",
            "nsqd": [nsqd.tcp],
            "dead-letter": f"file:{file}",
        },
    )
    wait_for(lambda: kafka.committed("hostile", "hostile") == 7, "all are committed", 30)
    assert read(nsqd, "hostile", 2) == [b"first", b"last"]
    dead = {each.headers["kafka-offset"]: each for each in kafka.records("hostile.dead")}
    assert sorted(dead) == [b"1", b"2", b"3", b"4", b"5"]
    assert dead[b"1"].key == b"tombstone"
    assert dead[b"2"].value == b"w" * 6000
    assert b"more than nsqd takes: 5,000" in dead[b"2"].headers["srtm-reason"]
    assert dead[b"2"].headers["twice"] == b"2"
    cut = dead[b"3"]
    assert cut.headers["srtm-cut-from"] == b"50000"
    assert 15_000 < len(cut.value or b"") < 20_000
    assert cut.headers["kept"] == b""
    assert dead[b"4"].value == b"h" * 6000
    assert dead[b"4"].headers["srtm-cut-headers"] == b"1"
    assert dead[b"5"].key == b"k" * 1024
    assert made.route("kafka:hostile")["dead_letter_count"] == 5
    assert made.route("kafka:hostile")["cut_count"] == 3
    wait_for(lambda: kafka.committed("names", long) == 1, "the name is committed")
    wait_for(lambda: nsqd.message_count("names.ok") == 1, "the other is published")
    found = lines(file)
    assert len(found) == 1
    assert "NSQ takes 1 to 64" in str(found[0]["reason"])
    wanted = {
        "route": "kafka:names.*",
        "kafka-topic": long,
        "kafka-partition": "0",
        "kafka-offset": "0",
        "key": "key",
        "headers": [{"name": "of", "value-base64": "/g=="}],
        "body-base64": "/w==",
    }
    assert {name: found[0][name] for name in wanted} == wanted
    assert "Traceback" not in made.process.text()


def test_nothing_is_finished_before_its_line_is_in_the_file(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd("--max-msg-size=100000")
    for topic in ("filed", "filed-back"):
        kafka.create(topic, max_message_bytes="20000")
    open_channel(nsqd, "filed")
    folder = servers.folder / "later"
    publish(nsqd, "filed", [b"no json", b'{"id": 1}', b"\xff"])
    assert http(nsqd.http, "/pub?topic=filed", b'{"id": 2, "x": "%s"}' % (b"x" * 30_000))[0] == 200
    publish(nsqd, "filed", [b'{"id": "%s"}' % (b"k" * 12_000)])  # too much with its key only
    kafka.produce("filed-back", [b"a", b"", b"b"])
    made = bridge(
        servers,
        kafka.address,
        {
            "from": "nsq:filed/bridge",
            "to": "kafka:filed",
            "nsqd": [nsqd.tcp],
            "key": "/id",
            "name": "out",
            "dead-letter": f"file:{folder}/out",
        },
        {
            "from": "kafka:filed-back",
            "group": "filed",
            "to": "nsq:filed-back",
            "nsqd": [nsqd.tcp],
            "name": "back",
            "dead-letter": f"file:{folder}/back",
        },
        wait=False,
    )
    wait_for(lambda: f"{folder}/out: No such" in made.process.text(), "out waits", 30)
    wait_for(lambda: f"{folder}/back: No such" in made.process.text(), "back waits", 30)
    wait_for(lambda: kafka.count("filed") == 1, "the good one is over")
    wait_for(lambda: channel(nsqd, "filed")["in_flight_count"] == 4, "the others are not")
    assert kafka.committed("filed", "filed-back") <= 1
    said = made.process.text().count("No such file")
    publish(nsqd, "filed", [b'{"id": %d}' % n for n in range(2000)])
    wait_for(lambda: kafka.count("filed") == 2001, "others go over all the while", 20)
    assert made.process.text().count("No such file") <= said + 20  # told as it is tried, no more
    folder.mkdir()
    wait_for(lambda: channel(nsqd, "filed")["in_flight_count"] == 0, "all are finished", 20)
    wait_for(lambda: kafka.committed("filed", "filed-back") == 3, "and committed", 20)
    found = lines(folder / "out")
    bodies = sorted(str(each.get("body", each.get("body-base64"))) for each in found)
    assert bodies[:2] == ["/w==", "no json"]
    assert [len(each) // 10_000 for each in bodies[2:]] == [1, 3]  # whole; no topic takes them
    assert all(
        each["nsq-topic"] == "filed" and len(str(each["nsq-message-id"])) == 16 for each in found
    )
    assert [each["kafka-offset"] for each in lines(folder / "back")] == ["1"]
    assert made.route("out")["dead_letter_count"] == 4


def test_what_waits_stays_within_its_bound_over_restarts_of_nsqd(
    servers: Servers, kafka: Kafka
) -> None:
    """Each restart of nsqd gave as many again, while the dead letters could not be written."""
    nsqd = servers.nsqd()
    kafka.create("within")
    open_channel(nsqd, "within")
    file = servers.folder / "later" / "within"
    bodies = [b"bad-%d" % n for n in range(1000)]
    publish(nsqd, "within", bodies)
    made = bridge(
        servers,
        kafka.address,
        {
            "from": "nsq:within/bridge",
            "to": "kafka:within",
            "nsqd": [nsqd.tcp],
            "key": "/id",
            "max-in-flight": 100,
            "dead-letter": f"file:{file}",
        },
        wait=False,
    )
    wait_for(lambda: "later/within: No such" in made.process.text(), "it waits", 30)
    wait_for(lambda: made.route()["in_flight_count"] == 100, "it has as many as it may", 30)
    for turn in range(2, 4):
        nsqd.process.stop()
        nsqd.process.start()
        nsqd.wait_ready()
        wait_for(lambda turn=turn: made.route()["connect_count"] == turn, "it is back", 20)  # type: ignore[misc]
        publish(nsqd, "within", [b'{"id": %d}' % turn])
        assert made.route()["in_flight_count"] == 100
    file.parent.mkdir()
    wait_for(lambda: kafka.count("within") == 2, "what is good goes over", 30)
    wait_for(lambda: len(lines(file)) == 1000, "all are in the file", 30)
    wait_for(lambda: channel(nsqd, "within")["in_flight_count"] == 0, "and finished", 20)
    assert {str(each["body"]).encode() for each in lines(file)} == set(bodies)
