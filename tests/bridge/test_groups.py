"""The place of a bridge in a Kafka group: given up on SIGTERM, kept in everything else."""

import signal

from confluent_kafka.admin import AclOperation, ResourceType

from tests.support.bridges import (
    IN_MEMORY,
    back,
    bridge,
    channel,
    denied,
    open_channel,
    out,
    publish,
    read,
    wait_committed,
)
from tests.support.kafka import Kafka
from tests.support.servers import Servers, wait_for


def members(kafka: Kafka, group: str) -> set[str | None]:
    found = kafka.admin.describe_consumer_groups([group])[group].result(10)
    return {each.group_instance_id for each in found.members}


def test_sigterm_commits_and_leaves_the_group_so_that_others_go_on_at_once(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd(IN_MEMORY)
    kafka.create("left-by", 4)
    open_channel(nsqd, "left-by", "reader")
    one, two = (bridge(servers, kafka, back(nsqd, "left-by"), name=name) for name in ("one", "two"))
    names = {f"{name}.kafka:left-by".replace(":", "-") for name in ("one", "two")}
    found = wait_for(lambda: len(m := members(kafka, "left-by")) == 2 and m, "both are there")
    assert all(any(str(each).startswith(name) for name in names) for each in found)
    kafka.produce("left-by", [b"%d" % n for n in range(20_000)])
    one.process.signal(signal.SIGTERM)
    assert one.process.popen.wait(20) == 0, one.process.text()
    left = members(kafka, "left-by")
    assert len(left) == 1  # the session time is 45 s
    assert str(left.pop()).startswith("two")
    kafka.produce("left-by", [b"%d" % n for n in range(20_000, 20_100)])
    wait_committed(kafka, "left-by", 20_100)
    assert two.process.stop() == 0, two.process.text()
    assert members(kafka, "left-by") == set()
    got = [int(each) for each in read(nsqd, "left-by", nsqd.message_count("left-by"))]
    assert set(got) == set(range(20_100))
    assert len(got) == 20_100  # nothing twice: what was taken was committed before it left


def test_servers_that_hang_hold_up_no_end(servers: Servers, kafka: Kafka) -> None:
    """A commit that waits for its answer would never end; a drain has its time once."""
    nsqd = servers.nsqd(IN_MEMORY)
    for topic in ("hung", "hung-too"):
        kafka.create(topic, 2)
    routes = [back(nsqd, topic) for topic in ("hung", "hung-too")]
    commit_ms = 5000  # something is left to commit at the end
    made = bridge(servers, kafka, *routes, drain="1s", auto_commit_interval_ms=commit_ms)
    kafka.produce("hung", [b"%d" % n for n in range(1000)])
    wait_for(lambda: made.route()["delivered_count"] == 1000, "all are published")
    nsqd.process.freeze()
    kafka.produce("hung-too", [b"%d" % n for n in range(1000)])
    wait_for(lambda: made.route("kafka:hung-too")["in_flight_count"] > 0, "some are sent")
    with kafka.frozen():
        assert made.process.stop(30) == 0, made.process.text()
    nsqd.process.thaw()
    assert "does not end" not in made.process.text()
    assert "the last offsets may not be committed" in made.process.text()
    made.again(60)  # Kafka may keep a member's place for its session timeout, 45 s
    for topic in ("hung", "hung-too"):
        wait_committed(kafka, topic, 1000)


def test_what_kafka_refuses_is_waited_for(servers: Servers, kafka: Kafka) -> None:
    nsqd = servers.nsqd()
    for topic in ("no-topic", "no-group"):
        kafka.create(topic)
        kafka.produce(topic, [b"x"] * 10)
    kafka.create("no-target")
    open_channel(nsqd, "no-target")
    publish(nsqd, "no-target", [b"%d" % n for n in range(10)])
    routes = [back(nsqd, "no-topic"), back(nsqd, "no-group"), out(nsqd, "no-target")]
    with denied(
        kafka,
        (ResourceType.TOPIC, "no-topic", AclOperation.READ),
        (ResourceType.GROUP, "no-group", AclOperation.READ),
        (ResourceType.TOPIC, "no-target", AclOperation.WRITE),
    ):
        made = bridge(servers, kafka, *routes, wait=False)
        for route in routes:
            name = str(route["from"])
            wait_for(lambda name=name: "uthorization" in made.reason(name), f"{name} says so", 20)  # type: ignore[misc]
        assert made.ping()[0] == 500
        left = channel(nsqd, "no-target")
        assert left["depth"] + left["deferred_count"] > 0
    for topic in ("no-topic", "no-group"):
        wait_for(lambda topic=topic: nsqd.message_count(topic) == 10, f"{topic} is read", 40)  # type: ignore[misc]
    wait_for(lambda: kafka.count("no-target") == 10, "all come", 30)
    found = {each.headers["nsq-message-id"] for each in kafka.records("no-target")}
    assert len(found) == 10
    assert "Traceback" not in made.process.text()
