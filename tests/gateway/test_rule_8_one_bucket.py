"""Rule 8: a topic has one bucket on a host, whatever the door; how it starts."""

from collections.abc import Callable

import pytest

from srtm.http.client import request
from srtm.nsq.commands import dpub, message, mpub, pub
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

SLOW = 0.001
"""messages/s: no token comes while a test runs."""


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    return shared.gateway()


def tokens(gateway: GatewayProcess, topic: str) -> float:
    """To a tenth: what a slow rate brings meanwhile does not show."""
    return round(float(gateway.inside(topic)["tokens"]), 1)


def by_tcp(command: bytes) -> Callable[[GatewayProcess], None]:
    def publish(gateway: GatewayProcess) -> None:
        with V2(gateway.tcp) as client:
            client.send(command)
            client.oks(1)

    return publish


def by_http(path: str, body: bytes) -> Callable[[GatewayProcess], None]:
    def publish(gateway: GatewayProcess) -> None:
        assert http(gateway.http, path, body)[0] == 200

    return publish


def on_a_subscribed_connection(gateway: GatewayProcess) -> None:
    with V2(gateway.tcp) as client:
        client.subscribe("other", "c")
        client.send(pub(b"doors", b"x"))
        client.oks(1)


DOORS = {
    "PUB": (by_tcp(pub(b"doors", b"x")), 1),
    "MPUB": (by_tcp(mpub(b"doors", [message(b"x")] * 7, 7)), 7),
    "DPUB": (by_tcp(dpub(b"doors", 1000, message(b"x"))), 1),
    "/pub": (by_http("/pub?topic=doors", b"x"), 1),
    "/pub?defer": (by_http("/pub?topic=doors&defer=1000", b"x"), 1),
    "/mpub": (by_http("/mpub?topic=doors", b"a\nb\nc\n"), 3),
    "/mpub?binary": (
        by_http("/mpub?topic=doors&binary=true", b"\0\0\0\2" + message(b"a") + message(b"b")),
        2,
    ),
    "PUB on a subscribed connection": (on_a_subscribed_connection, 1),
}


def test_all_doors_take_their_tokens_from_one_bucket(gateway: GatewayProcess) -> None:
    gateway.set_limit("doors", rate=SLOW, burst=100)
    level = tokens(gateway, "doors")
    assert level == 100
    for name, (publish, count) in DOORS.items():
        publish(gateway)
        level -= count
        assert tokens(gateway, "doors") == level, name
    assert gateway.nsqd.message_count("doors") == sum(count for _, count in DOORS.values())


def test_what_one_door_has_taken_the_other_lacks(gateway: GatewayProcess) -> None:
    for topic, tcp_first in (("tcp", True), ("http", False)):
        gateway.set_limit(topic, rate=SLOW, burst=3, mode="reject")
        with V2(gateway.tcp) as client:
            if tcp_first:
                client.send(pub(topic.encode(), b"x") * 3)
                client.oks(3)
                assert http(gateway.http, f"/pub?topic={topic}", b"x")[0] == 429
            else:
                assert http(gateway.http, f"/mpub?topic={topic}", b"a\nb\nc")[0] == 200
                client.send(pub(topic.encode(), b"x"))
                assert (client.reply() or b"").startswith(b"E_PUB_FAILED over the limit")
        assert gateway.nsqd.message_count(topic) == 3


def test_a_refused_mpub_takes_no_token(gateway: GatewayProcess) -> None:
    gateway.set_limit("whole", rate=SLOW, burst=5, mode="reject")
    assert http(gateway.http, "/pub?topic=whole", b"x")[0] == 200
    assert http(gateway.http, "/mpub?topic=whole", b"x\n" * 5)[0] == 429
    assert tokens(gateway, "whole") == 4


def test_a_new_contract_starts_full_and_a_restarted_gateway_empty(servers: Servers) -> None:
    gateway = servers.gateway(f"--topic=t,rate={SLOW},burst=50")
    # Without a state file nobody knows whether this is a restart.
    assert tokens(gateway, "t") == 0
    gateway.set_limit("new", rate=SLOW, burst=50)
    assert tokens(gateway, "new") == 50
    assert gateway.process.stop() == 0
    gateway.process.start()
    gateway.wait_ready()
    assert tokens(gateway, "t") == 0


def test_the_state_file_keeps_levels_over_a_clean_stop_only(servers: Servers) -> None:
    state = servers.folder / "state.json"
    flags = [f"--state-file={state}", f"--topic=flag,rate={SLOW},burst=50"]
    gateway = servers.gateway(*flags)
    assert tokens(gateway, "flag") == 50, "the file does not know it: it is new"
    gateway.set_limit("admin", rate=SLOW, burst=20, mode="reject")
    gateway.set_limit("debt", rate=SLOW, burst=2)
    with V2(gateway.tcp) as client:
        client.send(pub(b"flag", b"x") * 8 + pub(b"admin", b"x"))
        client.send(mpub(b"debt", [message(b"x")] * 9, 9))
        client.oks(10)

    def restart() -> None:
        gateway.process.start()
        gateway.wait_ready()

    assert gateway.process.stop() == 0
    restart()
    assert [tokens(gateway, topic) for topic in ("flag", "admin", "debt")] == [42, 19, -7]
    assert gateway.inside("admin")["mode"] == "reject", "a limit set at run time is kept"
    gateway.process.kill()
    restart()
    # What was spent since the file was written, nobody knows.
    assert [tokens(gateway, topic) for topic in ("flag", "admin", "debt")] == [0, 0, -7]
    request(gateway.admin, "DELETE", "/topics/admin")
    assert gateway.process.stop() == 0
    restart()
    assert "rate" not in gateway.inside("admin"), "its end is kept as well"


def test_a_default_limit_holds_for_topics_that_nsqd_had_before(servers: Servers) -> None:
    nsqd = servers.nsqd()
    assert http(nsqd.http, "/pub?topic=old", b"x")[0] == 200
    gateway = servers.gateway(f"--default-limit=rate={SLOW},burst=5,mode=reject", nsqd=nsqd)
    # It may have had its burst from the gateway before this one.
    assert http(gateway.http, "/pub?topic=old", b"x")[0] == 429
    assert http(gateway.http, "/mpub?topic=new", b"x\n" * 5)[0] == 200
    assert http(gateway.http, "/pub?topic=new", b"x")[0] == 429
    gateway.set_limit("own", rate=SLOW, burst=7)
    assert tokens(gateway, "own") == 7


def test_only_topics_with_a_full_bucket_make_room_for_new_ones(servers: Servers) -> None:
    """With --default-limit every topic has a bucket, and would come back with a full one."""
    gateway = servers.gateway("--default-limit=rate=0.001,burst=5", "--max-topics=3")
    with V2(gateway.tcp) as client:
        client.send(b"".join(pub(b"t%d" % number, b"x") for number in range(4)))
        client.oks(3)
        assert (client.reply() or b"").startswith(b"E_PUB_FAILED 3 topics are in use")
    for number in range(3):
        gateway.set_limit(f"t{number}", rate=1000, burst=5)
        wait_for(lambda n=number: tokens(gateway, f"t{n}") == 5, "it is full")
        request(gateway.admin, "DELETE", f"/topics/t{number}")  # the default again
    with V2(gateway.tcp) as client:
        client.send(pub(b"more", b"x"))
        client.oks(1)
