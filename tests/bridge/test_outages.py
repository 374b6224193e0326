"""What goes away and comes back: Kafka, its topics, nsqd, nsqlookupd, the bridge itself."""

import re
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions

from srtm.deploy.up import running
from srtm.text.address import free_addresses
from srtm.text.errors import UsageError
from tests.support.bridges import (
    IN_MEMORY,
    back,
    bridge,
    channel,
    open_channel,
    out,
    publish,
    read,
    wait_committed,
    wait_finished,
    write,
)
from tests.support.deployments import need_nsq
from tests.support.distributors import srtm
from tests.support.kafka import Kafka
from tests.support.servers import Nsqd, Servers, http, wait_for


def ids(kafka: Kafka, topic: str) -> list[bytes]:
    return [each.headers["nsq-message-id"] for each in kafka.records(topic)]


def test_while_kafka_hangs_messages_are_touched_and_none_comes_twice(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("hangs")
    open_channel(nsqd, "hangs")
    made = bridge(servers, kafka, out(nsqd, "hangs", msg_timeout="2s"))
    publish(nsqd, "hangs", [b"a%d" % n for n in range(100)])
    wait_for(lambda: kafka.count("hangs") == 100, "it works")
    with kafka.frozen():
        publish(nsqd, "hangs", [b"b%d" % n for n in range(5000)])
        wait_for(lambda: made.route()["in_flight_count"] > 1000, "messages wait")
        # Past nsqd's timeout, twice: it would have given each of them again by then.
        wait_for(lambda: made.route()["touch_count"] > 6 * 2000, "they are touched", 30)
        assert made.route()["in_flight_count"] <= 2500
    wait_for(lambda: kafka.count("hangs") == 5100, "all come", 40)
    wait_finished(nsqd, "hangs")
    found = ids(kafka, "hangs")
    assert len(found) == len(set(found)) == 5100
    assert channel(nsqd, "hangs")["timeout_count"] == 0


def test_what_nsqd_gives_again_meanwhile_is_not_produced_again(
    servers: Servers, kafka: Kafka
) -> None:
    """TOUCH holds a message for max-msg-timeout at most; then it comes again. From then on Kafka
    has as long to take it: what nsqd gives again after that is produced again."""
    nsqd = servers.nsqd("--max-msg-timeout=6s")
    kafka.create("again")
    open_channel(nsqd, "again")
    made = bridge(servers, kafka, out(nsqd, "again", msg_timeout="3s"))
    with kafka.frozen():
        publish(nsqd, "again", [b"%d" % n for n in range(300)])
        wait_for(lambda: made.route()["not_repeated_count"] >= 300, "they come again", 30)
    wait_for(lambda: kafka.count("again") == 300, "all come", 40)
    wait_finished(nsqd, "again")
    assert len(set(ids(kafka, "again"))) == 300
    assert kafka.count("again") == 300


def test_kafka_may_be_away_at_the_start_and_die_later(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd(IN_MEMORY)
    kafka.create("dies")
    kafka.create("dies-back")
    open_channel(nsqd, "dies")
    publish(nsqd, "dies", [b"%d" % n for n in range(1000)])
    routes = [out(nsqd, "dies", name="out"), back(nsqd, "dies-back", name="back")]
    with kafka.dead():
        made = bridge(servers, kafka, *routes, wait=False)
        refused = "Connection refused; is it running"
        for name in ("out", "back"):
            wait_for(lambda name=name: refused in made.reason(name), f"{name} says why", 30)  # type: ignore[misc]
        assert made.ping()[0] == 500
        assert channel(nsqd, "dies").get("in_flight_count", 0) == 0
    made.wait_ready(30)
    kafka.produce("dies-back", [b"%d" % n for n in range(1000)])
    wait_for(lambda: kafka.count("dies") == 1000, "all come", 30)
    publish(nsqd, "dies", [b"later-%d" % n for n in range(20_000)])
    wait_for(lambda: kafka.count("dies") > 1000, "some come", 20)
    with kafka.dead():
        wait_for(lambda: "does not answer" in made.reason("back"), "it says so", 20)
        publish(nsqd, "dies", [b"last-%d" % n for n in range(1000)])
        wait_for(lambda: "does not answer" in made.reason("out"), "so does it", 20)
        assert made.ping()[0] == 500
    made.wait_ready(40)
    wait_finished(nsqd, "dies")
    found = ids(kafka, "dies")
    assert len(set(found)) == 22_000
    assert len(found) == 22_000  # acks=all, and the log is there again
    wait_for(lambda: nsqd.message_count("dies-back") >= 1000, "the way back works", 30)
    assert made.process.stop(30) == 0, made.process.text()


def test_a_topic_that_is_missing_is_waited_for_and_so_is_one_that_is_deleted(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    open_channel(nsqd, "missing")
    publish(nsqd, "missing", [b"%d" % n for n in range(100)])
    made = bridge(servers, kafka, out(nsqd, "missing"), wait=False)
    wait_for(lambda: "Kafka's topic missing" in made.reason(), "it says so", 30)
    kafka.create("missing")
    wait_for(lambda: kafka.count("missing") == 100, "all come", 30)
    kafka.delete("missing")
    publish(nsqd, "missing", [b"late-%d" % n for n in range(100)])
    wait_for(lambda: "Kafka's topic missing" in made.reason(), "it says so", 30)
    kafka.create("missing", 3)
    wait_for(lambda: kafka.count("missing") >= 100, "all come", 30)
    wait_finished(nsqd, "missing")
    values = {each.value for each in kafka.records("missing")}
    assert values == {b"late-%d" % n for n in range(100)}


def test_a_source_topic_that_is_missing_repartitioned_and_made_anew(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd(IN_MEMORY)
    open_channel(nsqd, "moving", "reader")
    made = bridge(servers, kafka, back(nsqd, "moving"), wait=False)
    wait_for(lambda: "moving" in made.reason(), "it says so", 30)
    kafka.create("moving", 1)
    kafka.produce("moving", [b"a%d" % n for n in range(500)])
    wait_for(lambda: nsqd.message_count("moving") == 500, "all come", 30)
    kafka.admin.create_partitions([NewPartitions("moving", 3)])["moving"].result(10)
    wait_for(lambda: kafka.partitions("moving") == 3, "it has three")
    for partition in range(3):
        kafka.produce("moving", [b"p%d" % partition], partition=partition)
    wait_for(lambda: nsqd.message_count("moving") == 503, "all three are read", 40)
    kafka.delete("moving")
    wait_for(lambda: kafka.partitions("moving") == 0, "it is gone")
    kafka.create("moving", 1)
    kafka.produce("moving", [b"new"])
    wait_for(lambda: b"new" in read_all(nsqd, "moving", 504), "it is read from its beginning", 40)
    # Under the offset that it had before: librdkafka by itself would not.
    wait_committed(kafka, "moving", 1)
    assert "Traceback" not in made.process.text()


def test_a_topic_that_is_made_anew_as_long_as_it_was_is_read_whole(
    servers: Servers, kafka: Kafka
) -> None:
    """Its offsets alone would let the bridge go on in the middle, or at its end."""
    nsqd = servers.nsqd(IN_MEMORY)
    open_channel(nsqd, "longer", "reader")
    kafka.create("longer")
    made = bridge(servers, kafka, back(nsqd, "longer"))
    kafka.produce("longer", [b"old-%d" % n for n in range(50)])
    wait_committed(kafka, "longer", 50)
    kafka.delete("longer")
    kafka.create("longer")
    new = {b"new-%d" % n for n in range(100)}
    kafka.produce("longer", sorted(new))
    wait_for(lambda: "longer was made anew" in made.process.text(), "it is seen", 30)
    wait_for(lambda: new <= set(read_all(nsqd, "longer", 150)), "all come", 30)
    wait_committed(kafka, "longer", 100)
    assert "Traceback" not in made.process.text()


@pytest.mark.parametrize(
    "gone", [pytest.param(False, id="at-once"), pytest.param(True, id="later")]
)
def test_a_topic_that_is_made_anew_after_a_restart_of_kafka(
    servers: Servers, kafka: Kafka, gone: bool
) -> None:
    """Its partitions have a leader epoch above 0 then, and that of the new topic begins at 0."""
    topic = f"epoch-{gone}"
    nsqd = servers.nsqd(IN_MEMORY)
    open_channel(nsqd, topic, "reader")
    kafka.create(topic)
    with kafka.dead():
        pass
    wait_for(lambda: kafka.leader_epoch(topic) > 0, "the leader epoch has grown", 30)
    made = bridge(servers, kafka, back(nsqd, topic))
    kafka.produce(topic, [b"old-%d" % n for n in range(50)])
    wait_committed(kafka, topic, 50)
    kafka.delete(topic)
    if gone:
        wait_for(lambda: topic in made.reason(), "the bridge says that it is gone", 30)
    kafka.create(topic)
    kafka.produce(topic, [b"new-%d" % n for n in range(100)])
    wait_committed(kafka, topic, 100)
    new = {b"new-%d" % n for n in range(100)}
    assert new <= set(read_all(nsqd, topic, 150))
    assert "Traceback" not in made.process.text()


def at_rest(nsqd: Nsqd, topic: str) -> None:
    """Its channels have all that the topic has got."""
    wait_for(lambda: (nsqd.topic(topic) or {"depth": 1})["depth"] == 0, "the topic is empty")


def read_all(nsqd: Nsqd, topic: str, count: int) -> list[bytes]:
    if nsqd.message_count(topic) < count:
        return []
    at_rest(nsqd, topic)
    return read(nsqd, topic, channel(nsqd, topic, "reader")["depth"])


def test_offsets_that_kafka_has_deleted_are_counted_and_told(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("expired")
    kafka.produce("expired", [b"a"] * 10)
    made = bridge(servers, kafka, back(nsqd, "expired"))
    wait_committed(kafka, "expired", 10)
    made.process.kill()
    kafka.produce("expired", [b"b"] * 10)
    where = TopicPartition("expired", 0, 15)
    kafka.admin.delete_records([where])[where].result(10)
    made.again()
    wait_for(lambda: nsqd.message_count("expired") == 15, "the rest comes", 20)
    assert made.route()["gone_count"] == 5
    assert "has deleted offsets 10 to 14 before they were read" in made.process.text()


def test_offsets_that_are_set_beyond_the_end_lead_back_to_the_beginning(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("beyond")
    kafka.produce("beyond", [b"a"] * 10)
    where = TopicPartition("beyond", 0, 1_000_000)
    asked = ConsumerGroupTopicPartitions("beyond", [where])
    kafka.admin.alter_consumer_group_offsets([asked])["beyond"].result(10)
    made = bridge(servers, kafka, back(nsqd, "beyond"))
    wait_for(lambda: nsqd.message_count("beyond") == 10, "all come", 20)
    wait_committed(kafka, "beyond", 10)
    assert "offset 1000000 was committed, and the topic ends at 10" in made.process.text()


def test_nsqd_stopped_and_started_makes_no_duplicate_and_loses_nothing(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    kafka.create("restarted")
    open_channel(nsqd, "restarted")
    made = bridge(servers, kafka, out(nsqd, "restarted"))
    for turn in range(2):
        publish(nsqd, "restarted", [b"%d-%d" % (turn, n) for n in range(10_000)])
        nsqd.process.stop()  # it writes to disk what is not finished
        nsqd.process.start()
        nsqd.wait_ready()
    wait_for(lambda: kafka.count("restarted") >= 20_000, "all come", 30)
    made.wait_ready()
    wait_finished(nsqd, "restarted")
    found = ids(kafka, "restarted")
    assert len(found) == len(set(found)) == 20_000


def test_an_nsqd_that_cannot_write_is_waited_for(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd("--mem-queue-size=0")
    kafka.create("ill")
    open_channel(nsqd, "ill", "reader")
    made = bridge(servers, kafka, back(nsqd, "ill"))
    with nsqd.full_disk():
        kafka.produce("ill", [b"%d" % n for n in range(2000)])
        wait_for(lambda: "E_" in made.reason(), "it says so", 20)
        assert kafka.committed("ill", "ill") < 2000
    wait_committed(kafka, "ill", 2000)
    at_rest(nsqd, "ill")
    count = channel(nsqd, "ill", "reader")["depth"]
    assert set(read(nsqd, "ill", count)) >= {b"%d" % n for n in range(2000)}


def test_a_hung_lookupd_stops_nobody_and_a_pattern_takes_new_topics(
    servers: Servers, kafka: Kafka
) -> None:
    tcp, web, _ = servers.lookupd()
    nsqd = servers.nsqd(f"--lookupd-tcp-address={tcp}")
    for name in ("site.a", "site.b", "other"):
        kafka.create(f"from.{name}")
        open_channel(nsqd, name)
    publish(nsqd, "site.a", [b"1"])
    publish(nsqd, "other", [b"x"])
    with socket.create_server(("127.0.0.1", 0)) as hung:
        address = f"127.0.0.1:{hung.getsockname()[1]}"
        made = bridge(
            servers,
            kafka,
            {"from": "nsq:site.*/bridge", "to": "kafka:from.{topic}", "lookupd": [address, web]},
            wait=False,
        )
        wait_for(lambda: kafka.count("from.site.a") == 1, "a is carried over", 30)
        open_channel(nsqd, "site.c")
        kafka.create("from.site.c")
        publish(nsqd, "site.c", [b"3"])
        publish(nsqd, "site.b", [b"2"])
        wait_for(lambda: kafka.count("from.site.c") == 1, "a new topic, too", 30)
        wait_for(lambda: kafka.count("from.site.b") == 1, "and b", 30)
        open_channel(nsqd, "site.d#ephemeral".replace("#", "%23"))
        wait_for(lambda: "site.d#ephemeral is not taken" in made.process.text(), "told", 30)
        assert f"{address}" in made.process.text()  # it says that this one does not answer
    assert kafka.count("from.other") == 0


def test_a_pattern_whose_lookupd_is_away_is_not_ready(servers: Servers, kafka: Kafka) -> None:
    route = {"from": "nsq:blind.*/b", "to": "kafka:{topic}", "lookupd": ["127.0.0.1:1"]}
    made = bridge(servers, kafka, route, wait=False)
    said = "route nsq:blind.*/b: nsqlookupd 127.0.0.1:1: nothing listens there"
    wait_for(lambda: said in made.ping()[1], "told", 30)
    assert made.process.stop() == 0


def test_sighup_touches_only_the_routes_that_changed(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    for name in ("kept", "left", "came"):
        kafka.create(name)
        open_channel(nsqd, name)
    made = bridge(servers, kafka, out(nsqd, "kept"), out(nsqd, "left"))
    write(made.file, kafka, out(nsqd, "kept"), {"from": "nonsense"}, address=made.address)
    made.process.signal(signal.SIGHUP)
    wait_for(lambda: "the routes go on as they are" in made.process.text(), "it is refused")
    write(made.file, kafka, out(nsqd, "kept"), out(nsqd, "came"), address=made.address)
    made.process.signal(signal.SIGHUP)
    wait_for(lambda: "1 ended, 1 started" in made.process.text(), "it is read again", 20)
    publish(nsqd, "came", [b"x"])
    publish(nsqd, "left", [b"x"])
    publish(nsqd, "kept", [b"x"])
    wait_for(lambda: kafka.count("came") == kafka.count("kept") == 1, "both work")
    assert kafka.count("left") == 0
    assert made.route("nsq:kept/bridge")["connect_count"] == 1


def test_srtm_up_runs_a_bridge_beside_its_brokers(
    servers: Servers, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_nsq(monkeypatch)
    kafka.create("up")
    tcp, web, door = map(str, free_addresses(3))
    with tempfile.TemporaryDirectory(prefix="srtm-") as short:
        folder = Path(short)
        route = {"from": "nsq:up/bridge", "to": "kafka:up", "nsqd": [tcp]}
        write(folder / "bridge.toml", kafka, route, address=door)
        spec = {
            "deployment": {"data-path": str(folder / "d")},
            "distributor": False,
            "broker": [{"tcp-address": tcp, "http-address": web}],
            "bridge": {"file": str(folder / "bridge.toml")},
        }
        with running(spec):
            assert http(web, "/pub?topic=up", b"x")[0] == 200
            wait_for(lambda: kafka.count("up") == 1, "it is carried over", 20)
            shown = srtm("stat", "--bridge-http-address", door, "--count", "1")
            assert shown.returncode == 0, shown.stderr
            assert re.search(r"^nsq:up/bridge +running +1 ", shown.stdout, re.M), shown.stdout
        (folder / "bridge.toml").write_text("[kafka]\n")
        with pytest.raises(UsageError, match="bootstrap-servers"), running(spec):
            pass
