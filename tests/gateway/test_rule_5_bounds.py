"""Rule 5: what waits is bounded, in messages and bytes; past a bound the gateway stops reading."""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

import psutil
import pytest

from srtm.nsq.commands import identify, message, mpub, pub
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

MIB = 1024 * 1024
OPEN = {"rate": 1e6, "burst": 1e6}
BODY = b"x" * 10_000


@contextlib.contextmanager
def flooding(client: V2, command: bytes, count: int) -> Iterator[threading.Thread]:
    """Sends `count` times in the background; the thread blocks while the gateway does not read."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    sender = socket.socket(fileno=socket.dup(client.socket.fileno()))
    sender.settimeout(60)

    def send() -> None:
        with contextlib.suppress(OSError):
            for _ in range(count):
                sender.sendall(command)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        with contextlib.suppress(OSError):
            sender.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        sender.close()


def stops_growing(gateway: GatewayProcess, topic: str) -> int:
    """Wait until no more comes in; what came."""
    offered: list[int] = []

    def same() -> bool:
        offered.append(gateway.offered(topic))
        return len(offered) > 30 and offered[-1] == offered[-30] > 0

    wait_for(same, "the gateway stops reading", seconds=20)
    return offered[-1]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--max-topic-backlog=50"], id="messages-of-a-topic"),
        pytest.param(["--max-topic-backlog-bytes=6000000"], id="bytes-of-a-topic"),
        pytest.param(["--max-connection-backlog=50"], id="messages-of-a-connection"),
        pytest.param(["--max-connection-backlog-bytes=6000000"], id="bytes-of-a-connection"),
    ],
)
def test_past_a_bound_a_client_is_not_read_until_there_is_room(
    servers: Servers, flags: list[str]
) -> None:
    gateway = servers.gateway("--topic=t,rate=0.001,burst=1", *flags)
    count = 1500
    with (
        V2(gateway.tcp) as client,
        V2(gateway.tcp) as other,
        flooding(client, pub(b"t", BODY), count) as thread,
    ):
        came = stops_growing(gateway, "t")
        room = 50 if "messages" not in flags[0] and flags[0].endswith("=50") else 600
        assert came <= room + 7, "no more than one read past the bound"
        assert thread.is_alive(), "the client's send blocks"
        assert gateway.metric("srtm_paused_connections") == 1
        other.send(pub(b"else", b"x"))
        other.oks(1)
        gateway.set_limit("t", **OPEN)
        client.oks(count)
        thread.join(10)
        assert not thread.is_alive()
    assert gateway.nsqd.message_count("t") == count
    assert gateway.inside("t")["backlog_bytes"] == 0


@pytest.mark.parametrize("first", ["a", "b"])
def test_two_limits_do_not_un_pause_each_other(servers: Servers, first: str) -> None:
    """A client over its own bound and over topic A's is read again when both have room."""
    gateway = servers.gateway(
        "--topic=a,rate=0.001,burst=1",
        "--topic=b,rate=0.001,burst=1",
        "--max-topic-backlog=50",
        "--max-connection-backlog=60",
    )
    to_a, to_b, of_another = (30, 45, 30) if first == "a" else (20, 45, 45)
    with V2(gateway.tcp) as client, V2(gateway.tcp) as another:
        another.send(pub(b"a", b"y") * of_another)
        wait_for(lambda: gateway.offered("a") == of_another, "the other's are there")
        client.send(pub(b"b", b"x") * to_b + pub(b"a", b"x") * to_a)
        wait_for(lambda: gateway.offered("a") == of_another + to_a, "both bounds are passed")
        assert gateway.metric("srtm_paused_connections") == 1
        client.send(pub(b"c", b"must wait"))
        another.send(pub(b"d", b"is read"))
        wait_for(lambda: gateway.offered("d") == 1, "the other client is read")
        gateway.set_limit(first, **OPEN)
        wait_for(lambda: gateway.inside(first)["backlog_bytes"] == 0, "one has room again")
        assert gateway.metric("srtm_paused_connections") == 1, "the other has not"
        another.send(pub(b"d", b"is read"))
        wait_for(lambda: gateway.offered("d") == 2, "a whole round of reading has passed")
        assert gateway.offered("c") == 0
        gateway.set_limit("b" if first == "a" else "a", **OPEN)
        client.oks(to_a + to_b + 1)
        another.oks(of_another + 2)


def test_max_wait_refuses_what_waited_too_long(servers: Servers) -> None:
    gateway = servers.gateway("--topic=t,rate=0.5,burst=1,max-wait=300ms")
    with V2(gateway.tcp) as client, V2(gateway.tcp) as other:
        client.send(pub(b"free", b"a") + pub(b"t", b"x") + pub(b"free", b"b"))
        client.oks(1)
        other.send(pub(b"t", b"refused as well"))
        for refused in (client, other):
            assert (refused.reply() or b"").startswith(b"E_PUB_FAILED over the limit of topic t ")
            assert refused.frame() is None
    status, _, headers = http(gateway.http, "/mpub?topic=t", b"x\ny")
    assert status == 429
    assert 1 <= int(headers["Retry-After"]) <= 4
    counts = gateway.inside("t")
    assert counts["rejected"] == 4
    assert counts["backlog_bytes"] == 0


def test_max_wait_refuses_also_while_nsqd_is_away(servers: Servers) -> None:
    gateway = servers.gateway("--topic=t,rate=0.001,burst=1,max-wait=1500ms")
    with V2(gateway.tcp) as client, V2(gateway.tcp) as other:
        client.send(pub(b"t", b"x"))
        other.send(mpub(b"t", [message(b"y")] * 2, 2))
        wait_for(lambda: gateway.inside("t")["waiting"] == 3, "both are held")
        gateway.nsqd.process.kill()
        wait_for(lambda: http(gateway.http, "/ping")[0] == 500, "the gateway knows")
        assert client.reply() == b"E_PUB_FAILED nsqd is away for max-wait (1.5s)"
        assert (other.reply() or b"").startswith(b"E_MPUB_FAILED")
        assert http(gateway.http, "/ping")[0] == 500, "it still serves"


def test_what_waited_too_long_for_nsqd_is_refused_whole(servers: Servers) -> None:
    """Part of the client's PUBs have their tokens when nsqd goes, part have not."""
    gateway = servers.gateway("--nsqd-away-timeout=1s")
    gateway.set_limit("t", rate=0.001, burst=5)
    with V2(gateway.tcp) as client, V2(gateway.tcp) as other:
        client.send(pub(b"t", b"known"))
        client.oks(1)
        gateway.nsqd.process.freeze()
        # Two batches fill what may be in flight; the rest has tokens and stays in the gateway.
        for number in (2, 3):
            other.send(pub(b"t", b"in flight"))
            wait_for(lambda n=number: gateway.offered("t") == n, "in flight")
        client.send(pub(b"t", b"x") * 7)
        wait_for(lambda: gateway.inside("t")["waiting"] == 5, "two have tokens, five have not")
        gateway.nsqd.process.signal(signal.SIGKILL)
        assert other.frame() is None
        assert (client.reply(20) or b"").startswith(b"E_PUB_FAILED nsqd is away")
        assert client.frame() is None


def test_the_largest_mpub_always_fits(servers: Servers) -> None:
    """Whatever the bounds: a body bigger than the bound would deadlock its client."""
    gateway = servers.gateway(
        "--max-topic-backlog=1",
        "--max-topic-backlog-bytes=1",
        "--max-connection-backlog=1",
        f"--max-connection-backlog-bytes={5 * MIB}",
    )
    sizes = [MIB - 4] * 4 + [MIB - 8]  # of 5 MiB with the count and their sizes
    largest = mpub(b"t", [message(b"x" * size) for size in sizes], 5)
    assert len(largest) == 5 * MIB + len(b"MPUB t\n") + 4
    with V2(gateway.tcp) as client, V2(gateway.tcp) as other:
        client.send(largest + largest)
        other.send(largest)
        client.oks(2)
        other.oks(1)
        client.send(pub(b"t", b"y") * 100)
        client.oks(100)
    assert http(gateway.http, "/mpub?topic=t&binary=true", largest[11:])[0] == 200
    assert gateway.nsqd.message_count("t") == 120


def test_half_commands_of_many_connections_are_bounded(servers: Servers) -> None:
    gateway = servers.gateway("--max-partial-bytes=10000000")
    with contextlib.ExitStack() as stack:
        small = [stack.enter_context(V2(gateway.tcp)) for _ in range(5)]
        for client in small:
            client.send(pub(b"t", BODY)[:-1])
        big = [stack.enter_context(V2(gateway.tcp)) for _ in range(6)]
        for client in big:
            with contextlib.suppress(OSError):
                client.send(mpub(b"t", [message(b"x" * MIB)] * 4, 4)[:-1])
        # 24 MB of halves: the biggest holders go until the rest has room.
        wait_for(lambda: gateway.metric("srtm_connections") <= 7, "the biggest are closed")
        for client in small:
            client.send(b"x")
            client.oks(1)
        assert gateway.metric("srtm_connections") >= 6, "no more than needed"


def test_half_bodies_of_http_count_as_well(servers: Servers) -> None:
    gateway = servers.gateway("--max-partial-bytes=10000000")
    memory = psutil.Process(gateway.process.popen.pid).memory_info
    before = memory().rss
    head = b"POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (5 * MIB)

    def closed(upload: V2) -> bool:
        upload.socket.settimeout(0)
        try:
            return not upload.socket.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True

    with contextlib.ExitStack() as stack:
        uploads = [stack.enter_context(V2(gateway.http, magic=head)) for _ in range(20)]
        for upload in uploads:
            with contextlib.suppress(OSError):
                upload.send(b"x" * 4 * MIB)
        # 13 of them fill the topic's 64 MiB, and the others are not kept: of 52 MB, 8 may stay.
        wait_for(lambda: sum(map(closed, uploads)) >= 11, "52 MB are more than 10 MB")
        assert memory().rss - before < 150 * MIB
    assert http(gateway.http, "/mpub?topic=t", b"a\nb")[0] == 200


def test_answers_behind_a_held_message_are_bounded(servers: Servers) -> None:
    gateway = servers.gateway("--topic=held,rate=0.001,burst=1")
    with V2(gateway.tcp) as client:
        client.send(pub(b"held", b"x") + identify(b"{}") * 1_000)
        wait_for(lambda: gateway.offered("held") == 1, "it is held")
        gateway.set_limit("held", **OPEN)
        client.oks(65)  # the message's, and the first answers behind it
        frame = client.frame()
        assert frame is not None
        assert frame.data.startswith(b"E_INVALID too many commands")
        assert client.frame() is None
