"""What one side cannot take, whatever it holds: none blocks a route, none is lost."""

import json
from pathlib import Path

from tests.support.bridges import (
    back,
    bridge,
    channel,
    open_channel,
    out,
    publish,
    publish_one,
    read,
    wait_committed,
    wait_finished,
)
from tests.support.kafka import Kafka
from tests.support.raw_kafka import produce_raw
from tests.support.servers import Servers, wait_for

NO_UTF8 = (b"\xff\xfe", b"1")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []


def test_records_of_any_shape_go_over_or_to_the_dead_letter_topic(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd("--max-msg-size=5000", "--max-body-size=20000")
    kafka.create("hostile")
    kafka.create("hostile.dead", max_message_bytes="20000")
    open_channel(nsqd, "hostile", "reader")
    for value, headers, key in (
        (b"first", [NO_UTF8, (b"nsq-topic", b"elsewhere")], None),
        (None, [NO_UTF8], b"tombstone"),
        (b"w" * 6000, [(b"twice", b"1"), (b"twice", b"2")], None),
        (b"s" * 50_000, [(b"kept", None)], None),
        (b"h" * 6000, [(b"h" * 30_000, b"")], None),
        (None, [], b"k" * 30_000),
    ):
        produce_raw(kafka.address, "hostile", value, headers, key=key)
    kafka.produce("hostile", [b"", *[b"y" * 4000] * 20, b"last"])  # more than one MPUB takes
    made = bridge(servers, kafka, back(nsqd, "hostile", dead_letter="kafka:hostile.dead"))
    wait_committed(kafka, "hostile", 28)
    assert read(nsqd, "hostile", 22) == [b"first", *[b"y" * 4000] * 20, b"last"]
    dead = {int(each.headers["kafka-offset"]): each for each in kafka.records("hostile.dead")}
    assert sorted(dead) == [1, 2, 3, 4, 5, 6]
    assert dead[1].key == b"tombstone"
    assert dead[2].value == b"w" * 6000
    assert b"more than nsqd takes: 5,000" in dead[2].headers["srtm-reason"]
    assert dead[2].headers["twice"] == b"2"
    assert dead[3].headers["srtm-cut-from"] == b"50000"
    assert 15_000 < len(dead[3].value or b"") < 20_000
    assert dead[3].headers["kept"] == b""
    assert dead[4].value == b"h" * 6000
    assert dead[4].headers["srtm-cut-headers"] == b"1"
    assert dead[5].key == b"k" * 1024
    assert b"has no body" in dead[6].headers["srtm-reason"]
    assert made.route()["dead_letter_count"] == 6
    assert made.route()["cut_count"] == 3
    assert "Traceback" not in made.process.text()


def test_a_record_whose_topic_nsq_cannot_have_goes_whole_into_the_file(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    long = "names." + "x" * 70
    file = servers.folder / "dead.jsonl"
    for topic in ("names.ok", long):
        kafka.create(topic)
    kafka.produce("names.ok", [b"named"])
    produce_raw(kafka.address, long, b"\xff", [(b"of", b"\xfe")], key=b"key")
    made = bridge(
        servers,
        kafka,
        back(nsqd, "names.*", group="names", to="nsq:{topic}", dead_letter=f"file:{file}"),
    )
    wait_for(lambda: kafka.committed("names", long) == 1, "the name is committed")
    wait_for(lambda: nsqd.message_count("names.ok") == 1, "the other is published")
    (found,) = lines(file)
    assert "NSQ takes 1 to 64" in str(found["reason"])
    wanted = {
        "route": "kafka:names.*",
        "kafka-topic": long,
        "kafka-partition": "0",
        "kafka-offset": "0",
        "key": "key",
        "headers": [{"name": "of", "value-base64": "/g=="}],
        "body-base64": "/w==",
    }
    assert {name: found[name] for name in wanted} == wanted
    assert "Traceback" not in made.process.text()


def test_nothing_is_finished_before_its_line_is_in_the_file(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd("--max-msg-size=100000")
    for topic in ("filed", "filed-back"):
        kafka.create(topic, max_message_bytes="20000")
    open_channel(nsqd, "filed")
    folder = servers.folder / "later"
    publish(nsqd, "filed", [b"no json", b'{"id": 1}', b"\xff"])
    publish_one(nsqd, "filed", b'{"id": 2, "x": "%s"}' % (b"x" * 30_000))
    publish_one(nsqd, "filed", b'{"id": "%s"}' % (b"k" * 12_000))  # too much with its key only
    kafka.produce("filed-back", [b"a", b"", b"b"])
    made = bridge(
        servers,
        kafka,
        out(nsqd, "filed", key="/id", name="out", dead_letter=f"file:{folder}/out"),
        back(nsqd, "filed-back", name="back", dead_letter=f"file:{folder}/back"),
        wait=False,
    )
    for name in ("out", "back"):
        wait_for(lambda name=name: f"{folder}/{name}: No such" in made.process.text(), name, 30)  # type: ignore[misc]
    wait_for(lambda: kafka.count("filed") == 1, "the good one is over")
    wait_for(lambda: channel(nsqd, "filed")["in_flight_count"] == 4, "the others are not")
    assert kafka.committed("filed-back", "filed-back") <= 1
    said = made.process.text().count("No such file")
    publish(nsqd, "filed", [b'{"id": %d}' % n for n in range(2000)])
    wait_for(lambda: kafka.count("filed") == 2001, "others go over all the while", 20)
    assert made.process.text().count("No such file") <= said + 20  # told as it is tried, no more
    folder.mkdir()
    wait_finished(nsqd, "filed")
    wait_committed(kafka, "filed-back", 3)
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
    route = out(nsqd, "within", key="/id", max_in_flight=100, dead_letter=f"file:{file}")
    made = bridge(servers, kafka, route, wait=False)
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
    wait_finished(nsqd, "within")
    assert {str(each["body"]).encode() for each in lines(file)} == set(bodies)


def test_routes_without_dead_letters_stop_with_one_line_each(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    for topic in ("halt", "stopped"):
        kafka.create(topic)
    open_channel(nsqd, "halt")
    publish(nsqd, "halt", [b'{"id": 1}', b"bad", b'{"id": 2}'])
    kafka.produce("stopped", [b"a", b"", b"b"])
    made = bridge(servers, kafka, out(nsqd, "halt", key="/id"), back(nsqd, "stopped"), wait=False)
    assert made.process.popen.wait(30) == 1, made.process.text()
    said = [line for line in made.process.text().splitlines() if "stops: " in line]
    outwards, inwards = sorted(said, key=lambda line: "stopped[0]" in line)
    assert "cannot go to kafka:halt: the body is no JSON" in outwards
    assert 'dead-letter = "kafka:TOPIC"' in outwards
    assert "stopped[0] offset 1 cannot go to nsq:stopped: it has no body" in inwards
    assert 'tombstones = "skip"' in inwards
    assert "Traceback" not in made.process.text()
    # What came behind the bad one may have gone before the route stopped, or stays as it does.
    held = channel(nsqd, "halt")
    left = held["depth"] + held["in_flight_count"] + held["deferred_count"]
    assert 1 <= left <= 2
    assert kafka.count("halt") + left >= 3
    assert kafka.committed("stopped", "stopped") <= 1
