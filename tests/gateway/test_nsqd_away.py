"""nsqd killed, frozen, ill and back. What is unsure gets no OK, what waits is bounded."""

import socket
import time

import pytest

from srtm.gateway.disk_trial import MOST_MESSAGES
from srtm.nsq.commands import dpub, message, mpub, pub
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2


def refuses_connections(gateway: GatewayProcess) -> bool:
    """Does the gateway take no new client, so that it goes to another broker?"""
    host, port = gateway.tcp.split(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return False
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # its listener was just closing: it refuses the next one
        return False


def wait_away(gateway: GatewayProcess, seconds: float = 10) -> None:
    wait_for(lambda: refuses_connections(gateway), "new connections are refused", seconds)


def wait_back(gateway: GatewayProcess, seconds: float = 15) -> None:
    wait_for(lambda: not refuses_connections(gateway), "connections are taken again", seconds)


def test_messages_wait_for_a_new_nsqd_while_new_clients_are_sent_elsewhere(
    servers: Servers,
) -> None:
    gateway = servers.gateway("--topic=limited,rate=10000,burst=100")
    nsqd = gateway.nsqd
    with V2(gateway.tcp) as client, V2(gateway.tcp) as other:
        client.send(pub(b"t", b"first"))
        assert client.reply() == b"OK"
        nsqd.process.kill()
        wait_away(gateway)
        status, text, _ = http(gateway.http, "/ping")
        assert (status, text) == (500, "NOK - nsqd is away")
        status, document, _ = http(gateway.http, "/pub?topic=t", b"x")
        assert (status, document["message"]) == (503, "NOT_ADMITTING: nsqd is away")
        status, document, _ = http(gateway.http, "/stats?format=json")
        assert status == 503
        assert document["topics"] == []
        assert "does not answer" in document["srtm"]["nsqd_away"]
        assert document["health"] == f"NOK - {document['srtm']['nsqd_away']}"
        ours = {each["topic"]: each for each in document["srtm"]["topics"]}
        assert ours["limited"]["rate"] == 10000
        assert ours["t"]["offered"] == 1
        assert "Health: NOK - nsqd at " in http(gateway.http, "/stats")[1]
        assert "srtm_admitting 0.0" in http(gateway.http, "/metrics")[1]
        client.send(pub(b"t", b"a") + mpub(b"t", [message(b"b"), message(b"c")], 2))
        client.send(dpub(b"t", 1, message(b"d")))
        other.send(pub(b"limited", b"e") + pub(b"new", b"f"))
        assert client.silent(0.3)
        assert http(gateway.http, "/ping")[0] == 500

        nsqd.process.start()
        assert [client.reply() for _ in range(3)] == [b"OK"] * 3
        assert [other.reply() for _ in range(2)] == [b"OK"] * 2
    wait_back(gateway)
    assert http(gateway.http, "/ping")[:2] == (200, "OK")
    assert nsqd.message_count("t") == 4  # the first died with the first nsqd
    assert nsqd.message_count("limited") == 1
    assert nsqd.message_count("new") == 1
    with V2(gateway.tcp) as client:
        client.send(pub(b"t", b"x"))
        assert client.reply() == b"OK"
    ours = gateway.ours("t")
    assert (ours["offered"], ours["admitted"], ours["waiting"]) == (6, 6, 0)
    assert "Traceback" not in gateway.process.text()


def test_after_the_away_timeout_what_waits_is_refused_and_not_stored(servers: Servers) -> None:
    gateway = servers.gateway("--nsqd-away-timeout=500ms", "--topic=limited,rate=10000,burst=100")
    nsqd = gateway.nsqd
    with V2(gateway.tcp) as single, V2(gateway.tcp) as batch, V2(gateway.tcp) as idle:
        for client in (single, batch, idle):
            client.send(pub(b"t", b"first"))
            assert client.reply() == b"OK"
        nsqd.process.kill()
        wait_away(gateway)
        single.send(pub(b"t", b"a") + pub(b"limited", b"b"))
        batch.send(mpub(b"limited", [message(b"b"), message(b"c")], 2))
        assert single.reply() == b"E_PUB_FAILED nsqd is away"
        assert single.ended()
        assert batch.reply() == b"E_MPUB_FAILED nsqd is away"
        assert batch.ended()
        nsqd.process.start()
        wait_back(gateway)
        assert nsqd.message_count("limited") == 0
        idle.send(pub(b"t", b"an idle client was left alone"))
        assert idle.reply() == b"OK"
    ours = gateway.ours("limited")
    assert (ours["offered"], ours["rejected"], ours["admitted"]) == (3, 3, 0)
    assert gateway.ours("t")["offered"] == 5
    assert gateway.ours("t")["rejected"] == 1


def test_a_batch_that_was_on_its_way_when_nsqd_died_has_no_answer(servers: Servers) -> None:
    gateway = servers.gateway()
    nsqd = gateway.nsqd
    with V2(gateway.tcp) as client, V2(gateway.tcp) as behind, V2(gateway.tcp) as consumer:
        client.send(pub(b"t", b"first"))
        assert client.reply() == b"OK"
        consumer.subscribe("t", "c")
        nsqd.process.freeze()
        client.send(pub(b"t", b"outcome unknown"))
        wait_for(lambda: in_flight(gateway, "t"), "it is on its way to nsqd")
        nsqd.process.kill()
        assert client.reply() is None, "no OK and no error: nobody knows"
        assert consumer.ended()
        behind.send(pub(b"t", b"waits"))
        nsqd.process.start()
        assert behind.reply() == b"OK"
    ours = gateway.ours("t")
    assert (ours["offered"], ours["admitted"], ours["unknown"]) == (3, 2, 1)


def in_flight(gateway: GatewayProcess, topic: str) -> bool:
    """Has a message come that is neither waiting nor answered? (/stats would ask nsqd.)"""
    text = http(gateway.http, "/metrics")[1]
    values = {
        line.split("{")[0]: float(line.split()[-1])
        for line in text.splitlines()
        if f'topic="{topic}"' in line and "_messages" in line
    }
    done = sum(
        values[f"srtm_topic_{name}_messages{total}"]
        for name, total in (("admitted", "_total"), ("waiting", ""), ("rejected", "_total"))
    )
    return values["srtm_topic_offered_messages_total"] > done


def test_a_frozen_nsqd_is_given_up_and_taken_again_when_it_thaws(servers: Servers) -> None:
    gateway = servers.gateway("--nsqd-timeout=1s")
    nsqd = gateway.nsqd
    with V2(gateway.tcp) as client, V2(gateway.tcp) as beating, V2(gateway.tcp) as idle:
        client.send(pub(b"t", b"first"))
        assert client.reply() == b"OK"
        nsqd.process.freeze()
        frozen_at = time.monotonic()
        client.send(pub(b"t", b"unknown"))
        assert client.reply(timeout=6) is None, "closed without OK"
        # Heartbeats go on while the gateway asks an nsqd that says nothing.
        beats = 0
        beating.identify(heartbeat_interval=1000)
        while not refuses_connections(gateway) and time.monotonic() < frozen_at + 15:
            try:
                frame = beating.frame(1.6)
            except TimeoutError:
                pytest.fail("a client that asked for a heartbeat each second got none")
            assert frame is not None
            beats += 1
            beating.send(b"NOP\n")
        assert refuses_connections(gateway), "a frozen nsqd is away, though it takes connections"
        assert beats >= 2
        status, text, _ = http(gateway.http, "/ping")
        assert (status, text) == (500, "NOK - nsqd is away")
        idle.send(pub(b"t", b"waits"))
        assert idle.silent(0.3)
        nsqd.process.thaw()
        assert idle.reply(timeout=15) == b"OK"
    wait_back(gateway)
    assert "Traceback" not in gateway.process.text()


def test_with_a_memory_queue_too_big_for_a_trial_the_oldest_that_waits_is_the_trial(
    servers: Servers,
) -> None:
    """The other cases are in test_full_disk.py."""
    nsqd = servers.nsqd(f"--mem-queue-size={MOST_MESSAGES}")
    gateway = servers.gateway("--topic=limited,rate=1000,burst=10", nsqd=nsqd)
    # A folder in the place of its file: nsqd's write fails, as on a full disk.
    blocked = nsqd.data_path / "t.diskqueue.000000.dat"
    blocked.mkdir()
    assert http(nsqd.http, "/mpub?topic=t", b"x\n" * MOST_MESSAGES)[0] == 200
    with V2(gateway.tcp) as first, V2(gateway.tcp) as waiting, V2(gateway.tcp) as limited:
        first.send(pub(b"t", b"x"))
        reply = first.reply()
        assert reply is not None
        assert reply.startswith(b"E_PUB_FAILED")
        wait_for(lambda: http(gateway.http, "/ping")[0] == 500, "nothing is admitted")
        text = http(gateway.http, "/ping")[1]
        assert text.startswith("NOK - nsqd is ill")
        blocked.rmdir()
        waiting.send(pub(b"t", b"a") + pub(b"t", b"b"))
        limited.send(pub(b"limited", b"c"))
        assert [waiting.reply(), waiting.reply(), limited.reply()] == [b"OK"] * 3
    wait_for(lambda: http(gateway.http, "/ping")[0] == 200, "nsqd is well")
    assert nsqd.message_count("t") == MOST_MESSAGES + 2
    assert gateway.ours("t")["failed"] == 1


def test_an_nsqd_whose_queues_have_room_again_is_used_though_it_still_says_nok(
    servers: Servers,
) -> None:
    """nsqd takes its NOK back at its next write to disk, which may never come."""
    nsqd = servers.nsqd("--mem-queue-size=20")
    with nsqd.full_disk():
        for _ in range(21):
            status = http(nsqd.http, "/pub?topic=t", b"x")[0]
        assert status == 503
        assert http(nsqd.http, "/ping")[0] == 500
        gateway = servers.gateway(nsqd=nsqd, wait=False)
        wait_for(lambda: "is ill" in gateway.process.text(), "the gateway notices at start")
        with V2(gateway.tcp) as consumer:
            consumer.subscribe("t", "c")
            for _ in range(20):
                consumer.message()
            wait_for(lambda: http(gateway.http, "/ping")[0] == 200, "it is used")
            with V2(gateway.tcp) as client:
                client.send(pub(b"t", b"one") + pub(b"t", b"two"))
                assert [client.reply(), client.reply()] == [b"OK"] * 2
                assert {consumer.message().body for _ in range(2)} == {b"one", b"two"}
        assert http(nsqd.http, "/ping")[0] == 500, "nsqd has written nothing since"
        assert http(gateway.http, "/ping")[0] == 200


def test_a_gateway_whose_port_was_taken_meanwhile_listens_once_it_is_free(
    servers: Servers,
) -> None:
    gateway = servers.gateway()
    host, port = gateway.tcp.split(":")
    gateway.nsqd.process.kill()
    wait_away(gateway)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind((host, int(port)))
        thief.listen()
        gateway.nsqd.process.start()
        wait_for(
            lambda: "is in use by another process" in gateway.process.text(), "the log says so"
        )
    with V2(wait_for(lambda: not refuses_connections(gateway) and gateway.tcp, "free")) as client:
        client.send(pub(b"t", b"x"))
        assert client.reply() == b"OK"
