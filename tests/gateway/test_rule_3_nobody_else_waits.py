"""Rule 3: a held message blocks neither heartbeats, nor another topic, nor another publisher."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from srtm.nsq.commands import NOP, message, mpub, pub
from tests.support.servers import GatewayProcess, Nsqd, Servers, http, wait_for
from tests.support.v2 import V2

EMPTY = {"rate": 0.001, "burst": 1}
OPEN = {"rate": 1e6, "burst": 1e6}


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    """Contracts of the start begin empty: what comes is held until a test opens them."""
    topics = ["own", "order"]
    return shared.gateway(*(f"--topic={name},rate=0.001,burst=1" for name in topics))


def beats(client: V2, count: int, seconds: float) -> None:
    """`count` heartbeats and nothing else within `seconds`, each answered."""
    deadline = time.monotonic() + seconds
    for _ in range(count):
        frame = client.frame(max(deadline - time.monotonic(), 0.01))
        assert frame is not None
        assert frame.data == b"_heartbeat_"
        client.send(NOP)


def test_heartbeats_come_while_nsqd_hangs(servers: Servers) -> None:
    gateway = servers.gateway()
    with V2(gateway.tcp) as client:
        client.identify(heartbeat_interval=1000)
        gateway.nsqd.process.freeze()
        client.send(pub(b"t", b"x"))
        # Questions to nsqd by HTTP take five seconds to give up; the beats do not wait for them.
        beats(client, 3, seconds=9)
        gateway.nsqd.process.thaw()
        client.oks(1)


def test_another_publishers_other_topics_are_answered_at_once(gateway: GatewayProcess) -> None:
    with V2(gateway.tcp) as one, V2(gateway.tcp) as two, V2(gateway.tcp) as three:
        one.send(pub(b"own", b"held"))
        two.send(pub(b"else", b"first"))
        two.oks(1)
        two.send(pub(b"own", b"held as well") + pub(b"else", b"its own OK waits"))
        wait_for(lambda: gateway.inside("own")["waiting"] == 2, "both are held")
        for number in range(50):
            three.send(pub(b"else", b"%d" % number))
            three.oks(1)
        assert http(gateway.http, "/pub?topic=else", b"by HTTP")[0] == 200
        gateway.set_limit("own", **OPEN)
        one.oks(1)
        two.oks(2)


def test_messages_of_a_topic_leave_in_order_of_arrival(gateway: GatewayProcess) -> None:
    clients = [V2(gateway.tcp) for _ in range(5)]
    with V2(gateway.nsqd.tcp) as consumer, ThreadPoolExecutor() as threads:
        consumer.subscribe("order", "c")
        expected: list[bytes] = []
        webs = []
        for number in range(40):
            body = b"%d" % number
            count = 1
            if number % 7 == 3:
                webs.append(threads.submit(http, gateway.http, "/pub?topic=order", body))
            elif number % 5 == 1:
                count = 3
                clients[number % 5].send(mpub(b"order", [message(body)] * 3, 3))
            else:
                clients[number % 5].send(pub(b"order", body))
            expected += [body] * count
            arrived = len(expected)
            wait_for(lambda n=arrived: gateway.offered("order") == n, "it has arrived")
            if number == 20:  # some have left when the others come
                gateway.set_limit("order", rate=200, burst=1)
        gateway.set_limit("order", rate=500, burst=4)
        assert [consumer.message().body for _ in expected] == expected
        assert all(web.result(10)[0] == 200 for web in webs)
    for client in clients:
        client.close()


def test_a_hanging_nsqlookupd_delays_only_a_new_topics_first_publish(servers: Servers) -> None:
    lookupd_tcp, _, lookupd = servers.lookupd()
    nsqd = servers.nsqd(f"--lookupd-tcp-address={lookupd_tcp}")
    gateway = servers.gateway(nsqd=nsqd)
    wait_for(lambda: "peer info" in nsqd.process.text(), "nsqd knows its nsqlookupd")
    with V2(gateway.tcp) as old, V2(gateway.tcp) as new, V2(gateway.tcp) as waiting:
        old.send(b"".join(pub(b"old%d" % n, b"known") for n in range(8)))
        old.oks(8)
        lookupd.freeze()
        new.send(pub(b"new", b"first"))
        wait_for(lambda: nsqd.topic("new"), "nsqd asks for the new topic")
        waiting.send(pub(b"new", b"behind it"))
        for number in range(200):
            old.send(pub(b"old%d" % (number % 8), b"x"))
            old.oks(1)
        assert nsqd.message_count("new") == 0
        assert new.silent(0.05), "nsqd gave up on nsqlookupd before the others were done"
        lookupd.thaw()
        new.oks(1)
        waiting.oks(1)


def test_many_new_topics_at_once_do_not_wait_for_each_other(gateway: GatewayProcess) -> None:
    """nsqd asks nsqlookupd for each, so each goes aside; who is done makes room."""
    with V2(gateway.tcp) as client:
        client.send(b"".join(pub(b"many%d" % n, b"x") for n in range(250)))
        deadline = time.monotonic() + 8
        for _ in range(250):
            assert client.reply(max(deadline - time.monotonic(), 0.01)) == b"OK"
        client.send(b"".join(pub(b"many%d" % n, b"y") for n in range(250)))
        client.oks(250)


def test_an_ephemeral_topic_is_as_good_as_any(gateway: GatewayProcess) -> None:
    """Its PUB may always be a first one, so it goes aside, on a connection that is kept."""
    with V2(gateway.tcp) as client:
        before = _connections_taken(gateway.nsqd)
        for number in range(200):
            client.send(pub(b"passing#ephemeral", b"%d" % number))
            client.oks(1)
        assert _connections_taken(gateway.nsqd) - before < 20
    assert gateway.nsqd.message_count("passing#ephemeral") == 200


def _connections_taken(nsqd: Nsqd) -> int:
    return nsqd.process.text().count("desired protocol magic")
