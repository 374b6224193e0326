"""The place of a bridge in a Kafka group: given up on SIGTERM, kept in everything else."""

import signal

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.bridge.test_kafka_to_nsq import IN_MEMORY, read
from tests.bridge.test_nsq_to_kafka import open_channel
from tests.support.bridges import bridge
from tests.support.kafka import Kafka
from tests.support.servers import Servers, http, wait_for


def members(kafka: Kafka, group: str) -> set[str | None]:
    found = kafka.admin.describe_consumer_groups([group])[group].result(10)
    return {each.group_instance_id for each in found.members}


def test_sigterm_commits_and_leaves_the_group_so_that_others_go_on_at_once(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd(IN_MEMORY)
    kafka.create("left-by", 4)
    open_channel(nsqd, "left-by", "reader")
    route = {"from": "kafka:left-by", "group": "left-by", "to": "nsq:left-by", "nsqd": [nsqd.tcp]}
    one = bridge(servers, kafka.address, route, name="one")
    two = bridge(servers, kafka.address, route, name="two")
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
    wait_for(lambda: kafka.committed("left-by", "left-by") == 20_100, "two has all", 20)
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
    routes = [
        {"from": f"kafka:{topic}", "group": topic, "to": f"nsq:{topic}", "nsqd": [nsqd.tcp]}
        for topic in ("hung", "hung-too")
    ]
    commit_ms = 5000  # something is left to commit at the end
    made = bridge(servers, kafka.address, *routes, drain="1s", auto_commit_interval_ms=commit_ms)
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
    made.again()
    for topic in ("hung", "hung-too"):
        wait_for(lambda topic=topic: kafka.committed(topic, topic) == 1000, "it goes on", 60)  # type: ignore[misc]


def test_a_group_or_topic_that_may_not_be_read_is_waited_for(
    servers: Servers, kafka: Kafka
) -> None:
    nsqd = servers.nsqd()
    routes = []
    rules = []
    for topic, kind, name in (
        ("no-topic", ResourceType.TOPIC, "no-topic"),
        ("no-group", ResourceType.GROUP, "group-of-no-group"),
    ):
        kafka.create(topic)
        kafka.produce(topic, [b"x"] * 10)
        rules.append((kind, name))
        routes.append(
            {
                "from": f"kafka:{topic}",
                "group": f"group-of-{topic}",
                "to": f"nsq:{topic}",
                "nsqd": [nsqd.tcp],
            }
        )
    for kind, name in rules:
        deny = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            AclOperation.READ,
            AclPermissionType.DENY,
        )
        kafka.admin.create_acls([deny])[deny].result(10)
    made = bridge(servers, kafka.address, *routes, wait=False)

    def reason(topic: str) -> str:
        try:
            return str(made.route(f"kafka:{topic}")["reason"])
        except OSError:
            return ""

    for topic in ("no-topic", "no-group"):
        wait_for(lambda topic=topic: "uthorization" in reason(topic), f"{topic} says so", 20)  # type: ignore[misc]
    assert http(made.address, "/ping")[0] == 500
    for kind, name in rules:
        every = AclBindingFilter(
            kind,
            name,
            ResourcePatternType.LITERAL,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        kafka.admin.delete_acls([every])[every].result(10)
    for topic in ("no-topic", "no-group"):
        wait_for(lambda topic=topic: nsqd.message_count(topic) == 10, f"{topic} is read", 40)  # type: ignore[misc]
    assert "Traceback" not in made.process.text()
