"""A connection that waits for each answer, against another end that the test plays."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub, sub
from srtm.nsq.frames import ERROR, HEARTBEAT_FRAME, MESSAGE, OK_FRAME, build_frame
from srtm.text.errors import UnavailableError


@contextmanager
def played(play: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of one that takes a connection, reads what it begins with, and plays."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                try:
                    play(connection)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)
        assert not thread.is_alive()


def test_what_is_asked_is_answered_and_what_comes_is_finished() -> None:
    head = (1).to_bytes(8, "big") + (1).to_bytes(2, "big") + b"0123456789abcdef"

    def play(connection: socket.socket) -> None:
        connection.sendall(OK_FRAME)
        assert connection.recv(1 << 16) == sub(b"t", b"c")
        connection.sendall(HEARTBEAT_FRAME + OK_FRAME)
        connection.sendall(build_frame(MESSAGE, head + b"body"))
        got = b""
        while b"FIN" not in got:
            got += connection.recv(1 << 16)
        assert got == b"NOP\nFIN 0123456789abcdef\n"

    with played(play) as address, Blocking(address, {}) as link:
        link.identify().ask(sub(b"t", b"c"))
        assert [each.body for each in link.messages()] == [b"body"]


def test_beats_are_no_answer_however_many_come() -> None:
    over = threading.Event()

    def play(connection: socket.socket) -> None:
        connection.sendall(OK_FRAME)
        while not over.wait(0.05):
            connection.sendall(HEARTBEAT_FRAME)

    with played(play) as address, Blocking(address, {}, 0.5) as link:
        link.identify()
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="no answer to PUB"):
            link.ask(pub(b"t", b"x"))
        over.set()
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (build_frame(ERROR, b"E_BAD no"), "IDENTIFY was refused: E_BAD no"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not NSQ's"),
        (b"", "closed the connection at IDENTIFY"),
    ],
)
def test_what_goes_wrong_is_one_line(answer: bytes, why: str) -> None:
    with (
        played(lambda connection: connection.sendall(answer)) as address,
        Blocking(address, {}) as link,
        pytest.raises(UnavailableError, match=why),
    ):
        link.identify()


def test_a_message_that_is_cut_short_ends_it() -> None:
    with (
        played(lambda connection: connection.sendall(OK_FRAME + build_frame(MESSAGE, b"x"))) as at,
        Blocking(at, {}) as link,
    ):
        link.identify()
        with pytest.raises(ConnectionError, match="shorter"):
            link.messages()


@pytest.mark.parametrize("address", ["a..b:4150", "a" * 70 + ":4150"])
def test_a_name_that_cannot_be_one_is_one_line(address: str) -> None:
    with pytest.raises(UnavailableError, match="is an nsqd or a gateway listening there"):
        Blocking(address, {})
