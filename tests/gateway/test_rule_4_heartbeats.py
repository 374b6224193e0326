"""Rule 4: beats go out at the negotiated interval, silence ends a client, and a pause of ours
does not count as its silence."""

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from srtm.nsq.commands import NOP, fin, message, mpub, pub, sub
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

OPEN = {"rate": 1e6, "burst": 1e6}


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    return shared.gateway(
        "--max-topic-backlog=10",
        "--topic=full,rate=0.001,burst=1",
        "--topic=held,rate=0.001,burst=1",
    )


@dataclass
class Clients:
    """Clients of all kinds, after five beats of one second."""

    every_second: V2
    every_two: V2
    never: V2
    mute: V2
    not_read: V2
    half_closed: V2
    consumer: V2
    hung_consumer: V2
    mute_at_nsqd: V2
    every_second_took: float


@pytest.fixture(scope="module")
def clients(gateway: GatewayProcess) -> Iterator[Clients]:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as threads:

        def client(interval: int, address: str = gateway.tcp) -> V2:
            opened = stack.enter_context(V2(address))
            assert opened.identify(heartbeat_interval=interval) == b"OK"
            return opened

        def answer_beats(client: V2, count: int) -> float:
            started = time.monotonic()
            for _ in range(count):
                beat(client)
                client.send(NOP)
            return time.monotonic() - started

        mute_at_nsqd = client(2000, gateway.nsqd.tcp)
        every_second, every_two, never = client(1000), client(2000), client(-1)
        mute, not_read, half_closed = client(1000), client(1000), client(1000)
        consumer, hung_consumer = client(1000), client(1000)
        consumer.subscribe("relayed", "c", ready=1)
        hung_consumer.subscribe("relayed", "hung")
        not_read.send(b"".join(pub(b"full", b"%d" % n) for n in range(20)))
        half_closed.send(pub(b"held", b"x") + mpub(b"held", [message(b"y")] * 2, 2))
        half_closed.socket.shutdown(socket.SHUT_WR)
        first, *others = [
            threads.submit(answer_beats, *each)
            for each in ((every_second, 5), (every_two, 2), (consumer, 5))
        ]
        for future in others:
            future.result(30)
        yield Clients(
            every_second,
            every_two,
            never,
            mute,
            not_read,
            half_closed,
            consumer,
            hung_consumer,
            mute_at_nsqd,
            every_second_took=first.result(30),
        )


def beat(client: V2) -> None:
    """The next frame is a heartbeat."""
    frame = client.frame(15)
    assert frame is not None
    assert frame.data == b"_heartbeat_"


def test_beats_come_no_oftener_than_was_negotiated(clients: Clients) -> None:
    assert clients.every_second_took > 3.9
    clients.every_second.send(pub(b"t", b"x"))
    clients.every_second.oks(1)
    clients.every_two.send(pub(b"t", b"x"))
    clients.every_two.oks(1)


def test_who_wants_no_beats_gets_none_and_is_not_missed(clients: Clients) -> None:
    clients.never.send(pub(b"t", b"x"))
    frame = clients.never.frame()
    assert frame is not None
    assert frame.data == b"OK"


def test_a_client_that_is_silent_for_two_intervals_is_closed(clients: Clients) -> None:
    beat(clients.mute)
    assert clients.mute.ended()


def test_a_client_that_is_not_read_lives_however_silent(
    gateway: GatewayProcess, clients: Clients
) -> None:
    """Its topic's backlog is full, so its NOPs would not be read either."""
    assert gateway.metric("srtm_paused_connections") == 1
    for _ in range(4):
        beat(clients.not_read)
    gateway.set_limit("full", **OPEN)
    clients.not_read.oks(20)


def test_a_client_that_ended_its_side_is_answered_all_the_same(
    gateway: GatewayProcess, clients: Clients
) -> None:
    """As nsqd does: what came whole is stored and answered, and then the connection ends."""
    for _ in range(4):
        beat(clients.half_closed)
    gateway.set_limit("held", **OPEN)
    clients.half_closed.oks(2)
    assert clients.half_closed.frame() is None
    assert gateway.nsqd.message_count("held") == 3


def test_the_gateway_answers_nsqds_own_beats(gateway: GatewayProcess, clients: Clients) -> None:
    """nsqd has dropped a mute client with the same interval, and not the gateway's pool."""
    assert clients.mute_at_nsqd.ended()
    assert "connection to nsqd ended: nsqd closed" not in gateway.process.text()


def test_a_tunnel_relays_beats_and_their_answers(gateway: GatewayProcess, clients: Clients) -> None:
    def consumers(channel: str) -> int:
        entry = gateway.nsqd.topic("relayed")
        assert entry is not None
        found = {c["channel_name"]: c["client_count"] for c in entry["channels"]}
        return int(found[channel])

    assert clients.hung_consumer.ended()
    wait_for(lambda: consumers("hung") == 0, "nsqd has dropped the hung consumer")
    assert consumers("c") == 1
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"relayed", b"x"))
        publisher.oks(1)
    assert clients.consumer.message().body == b"x"


def test_a_consumer_that_stops_reading_is_dropped(gateway: GatewayProcess) -> None:
    with V2(gateway.tcp, receive_buffer=4096) as consumer, V2(gateway.tcp) as publisher:
        consumer.identify(heartbeat_interval=1000)
        consumer.subscribe("stuck", "c", ready=2500)
        gateway.set_limit("stuck", **OPEN)
        # More than the sockets on the way may hold. It says NOP and FIN, and takes nothing.
        for _ in range(20):
            publisher.send(mpub(b"stuck", [message(b"x" * 100_000)] * 10, 10))
        publisher.oks(20)

        def gone() -> bool:
            try:
                consumer.send(NOP + fin(b"0123456789abcdef"))
            except OSError:
                return True
            return False

        wait_for(gone, "the gateway has closed it", seconds=20)

        def is_left() -> bool:
            entry = gateway.nsqd.topic("stuck")
            assert entry is not None
            return entry["channels"][0]["client_count"] == 0

        wait_for(is_left, "nsqd has let it go")


def test_a_consumer_that_closes_behind_a_held_publish_stays_alive(gateway: GatewayProcess) -> None:
    """Its CLS waits for its turn; what it says of beats and messages meanwhile goes to nsqd."""
    gateway.set_limit("closing", rate=0.001, burst=1)
    with V2(gateway.tcp) as consumer, V2(gateway.tcp) as publisher:
        consumer.identify(heartbeat_interval=1000)
        consumer.subscribe("deliveries", "c", ready=1)
        consumer.send(pub(b"closing", b"x") * 2 + b"CLS\n")
        consumer.oks(1)
        for _ in range(4):  # nsqd drops who is silent for two
            beat(consumer)
            consumer.send(NOP)
        publisher.send(pub(b"deliveries", b"y"))
        publisher.oks(1)
        consumer.message()  # and is finished
        wait_for(lambda: _of_channel(gateway, "deliveries", "in_flight_count") == 0, "FIN arrives")
        gateway.set_limit("closing", **OPEN)
        assert [consumer.reply(), consumer.reply()] == [b"OK", b"CLOSE_WAIT"]


def test_nsqd_ends_a_consumer_that_closes_behind_a_held_publish(gateway: GatewayProcess) -> None:
    """It is answered when its message has its token, and nobody else comes to harm."""
    gateway.set_limit("ended", rate=0.001, burst=1)
    with V2(gateway.tcp) as consumer, V2(gateway.tcp) as publisher:
        consumer.identify(heartbeat_interval=60_000)
        consumer.subscribe("hung", "c")
        consumer.send(pub(b"ended", b"x") * 2 + b"CLS\n" + NOP * 10)
        consumer.oks(1)
        http(gateway.nsqd.http, "/channel/delete?topic=hung&channel=c", b"")
        consumer.send(NOP * 10)
        gateway.set_limit("ended", **OPEN)
        consumer.oks(1)
        assert consumer.ended()
        publisher.send(pub(b"ended", b"y") * 3)
        publisher.oks(3)
    assert gateway.nsqd.message_count("ended") == 5
    assert gateway.metric("srtm_faults_total") == 0


def test_a_consumer_that_leaves_behind_a_held_publish_is_missed(gateway: GatewayProcess) -> None:
    """nsqd drops it, as it answers no beat; from then on the gateway beats."""
    gateway.set_limit("leaving", rate=0.001, burst=1)
    with V2(gateway.tcp) as consumer:
        consumer.identify(heartbeat_interval=1000)
        consumer.subscribe("left", "c")
        consumer.send(pub(b"leaving", b"x") * 2)
        consumer.oks(1)
        consumer.socket.shutdown(socket.SHUT_WR)
        wait_for(lambda: _of_channel(gateway, "left", "client_count") == 0, "nsqd has let it go")
        assert gateway.ours("leaving")["waiting"] == 1
        with contextlib.suppress(BlockingIOError):  # or closing it would say that it has gone
            consumer.socket.setblocking(False)
            while consumer.socket.recv(1 << 16):
                pass
    wait_for(lambda: gateway.ours("leaving")["waiting"] == 0, "its message is given up")


def test_a_consumer_whose_sub_waits_behind_a_held_publish_gets_beats(
    gateway: GatewayProcess,
) -> None:
    gateway.set_limit("before-sub", rate=0.001, burst=1)
    with V2(gateway.tcp) as consumer:
        consumer.identify(heartbeat_interval=1000)
        consumer.send(pub(b"before-sub", b"x") * 2 + sub(b"after-pub", b"c"))
        consumer.oks(1)
        for _ in range(4):
            beat(consumer)
            consumer.send(NOP)
        gateway.set_limit("before-sub", **OPEN)
        consumer.oks(2)  # of the message, and of SUB


def test_what_came_before_a_pause_of_the_gateways_is_no_silence_after_it(
    gateway: GatewayProcess,
) -> None:
    """It is read with the time at which it came; the rest of the command has its time from then."""
    gateway.set_limit("slow", rate=0.001, burst=1)
    big = pub(b"slow", b"x" * 100_000)
    with V2(gateway.tcp) as client:
        client.identify(heartbeat_interval=2000)
        client.send(pub(b"slow", b"x") * 20)
        client.oks(1)
        wait_for(lambda: gateway.metric("srtm_paused_connections") == 1, "it is not read")
        client.send(pub(b"slow", b"x") + big[:50_000])
        time.sleep(4.5)  # more than two intervals
        gateway.set_limit("slow", **OPEN)
        client.oks(20)
        beat(client)
        client.send(big[50_000:])
        client.oks(1)


def test_a_command_that_trickles_is_silence(gateway: GatewayProcess) -> None:
    """nsqd wants a command whole within two intervals of the one before."""
    for address in (gateway.nsqd.tcp, gateway.tcp):
        with V2(address) as client:
            client.identify(heartbeat_interval=1000)

            def is_closed(client: V2 = client) -> bool:
                try:
                    client.send(b"P")
                except OSError:
                    return True
                return False

            wait_for(is_closed, "it is closed", seconds=20)


def _of_channel(gateway: GatewayProcess, topic: str, count: str) -> int:
    entry = gateway.nsqd.topic(topic)
    assert entry is not None
    return int(entry["channels"][0][count])
