"""A far side that answers IDENTIFY late, or never: no answer is taken for another."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator

import pytest

from srtm.nsq.commands import pub
from srtm.nsq.frames import HEARTBEAT_FRAME, OK_FRAME
from tests.support.servers import Servers
from tests.support.v2 import V2


class OddNsqd:
    """late: a heartbeat comes before the answer to IDENTIFY; mute: no answer comes; refused:
    connections after the first one that end without a word. A PUB is answered with OK while
    `stores`, and else ends the connection."""

    def __init__(self) -> None:
        self.late = self.mute = False
        self.stores = True
        self.refused = 0
        self.muted = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            for number in itertools.count():
                connection, _ = self._listener.accept()
                if 0 < number <= self.refused:
                    connection.close()
                    continue
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(1 << 16)
            if self.mute:
                self.muted.set()
                while connection.recv(1 << 16):
                    pass
                return
            if self.late:
                connection.sendall(HEARTBEAT_FRAME)
                assert connection.recv(1 << 16) == b"NOP\n"
            connection.sendall(OK_FRAME)
            while data := connection.recv(1 << 16):
                if b"PUB" in data and not self.stores:
                    return
                if b"PUB" in data:
                    connection.sendall(OK_FRAME)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def odd() -> Iterator[OddNsqd]:
    made = OddNsqd()
    yield made
    made.close()


def test_an_nsqd_that_restarts_while_the_gateway_starts_is_waited_for(
    servers: Servers, odd: OddNsqd
) -> None:
    odd.refused = 4  # all that the gateway begins after its first look
    gateway = servers.gateway(f"--nsqd-tcp-address={odd.address}")
    with V2(gateway.tcp) as client:
        client.send(pub(b"t", b"x"))
        assert client.reply() == b"OK"


def test_a_heartbeat_before_the_answer_to_identify_acknowledges_nothing(
    servers: Servers, odd: OddNsqd
) -> None:
    odd.late, odd.stores = True, False
    gateway = servers.gateway(f"--nsqd-tcp-address={odd.address}")
    with V2(gateway.tcp) as client:
        client.send(pub(b"t", b"x"))
        assert client.reply() is None, "it was not stored"


def test_a_connection_whose_identify_is_never_answered_is_given_up(
    servers: Servers, odd: OddNsqd
) -> None:
    gateway = servers.gateway(f"--nsqd-tcp-address={odd.address}", "--nsqd-timeout=1s")
    odd.mute = True
    with V2(gateway.tcp) as client:
        client.send(pub(b"new", b"x"))
        assert odd.muted.wait(30), "a new topic has a connection of its own"
        odd.mute = False
        assert client.reply() == b"OK"
