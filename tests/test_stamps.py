"""Timestamp sources, one suite for all: what was sent comes whole, with a time that can be."""

import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from kernel import ClockStamps, SocketStamps, StampSource, best_source
from kernel.stamps import READ_BYTES
from srtm.clock import NS, WallClock, monotonic_ns

SO_TIMESTAMPNS = 35
SLEW_NS = 5_000_000
"""How far the wall clock may be corrected while a test runs without being stepped."""


@dataclass
class Pair:
    """A publisher's socket and the gateway's end of it."""

    client: socket.socket
    server: socket.socket


@pytest.fixture(params=["sockopt", "clock"])
def source(request: Any) -> StampSource:
    return best_source(WallClock(), request.param)


@pytest.fixture
def pair(source: StampSource) -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source.prepare(listener)
        with closing(socket.create_connection(listener.getsockname(), 10)) as client:
            server, _ = listener.accept()
            with closing(server):
                server.settimeout(10)
                yield Pair(client, server)


def test_the_source_is_the_one_that_was_asked_for() -> None:
    asked = [best_source(WallClock(), name) for name in ("clock", "sockopt", None)]
    assert [source.name for source in asked] == ["clock", "sockopt", "sockopt"]
    assert [type(source) for source in asked] == [ClockStamps, SocketStamps, SocketStamps]


def test_a_stamp_lies_between_the_sending_and_the_reading(source: StampSource, pair: Pair) -> None:
    read = source.reader(pair.server)
    for number in range(50):
        before = monotonic_ns()
        pair.client.sendall(b"%d" % number)
        data, stamp = read()
        assert data == b"%d" % number
        assert before - SLEW_NS <= stamp <= monotonic_ns()


def test_data_comes_whole_and_stamps_do_not_go_back(source: StampSource, pair: Pair) -> None:
    read = source.reader(pair.server)
    pair.server.setblocking(False)
    pair.client.setblocking(False)
    content = bytes(i % 251 for i in range(1 << 20))
    sent, got, last = 0, b"", 0
    while len(got) < len(content):
        if sent < len(content):
            try:
                sent += pair.client.send(content[sent : sent + 100_000])
            except BlockingIOError:
                assert len(got) < sent
        try:
            data, stamp = read()
        except BlockingIOError:
            continue
        assert 0 < len(data) <= READ_BYTES
        assert last - SLEW_NS <= stamp <= monotonic_ns()
        got, last = got + data, max(last, stamp)
    assert got == content


def test_would_block_is_raised_as_recv_raises_it(source: StampSource, pair: Pair) -> None:
    read = source.reader(pair.server)
    pair.server.setblocking(False)
    with pytest.raises(BlockingIOError):
        read()


def test_the_end_of_the_stream_is_no_data(source: StampSource, pair: Pair) -> None:
    read = source.reader(pair.server)
    pair.client.sendall(b"last")
    pair.client.shutdown(socket.SHUT_WR)
    assert read()[0] == b"last"
    for _ in range(2):
        data, stamp = read()
        assert data == b""
        assert stamp <= monotonic_ns()


def test_a_reset_is_raised_as_recv_raises_it(source: StampSource, pair: Pair) -> None:
    read = source.reader(pair.server)
    pair.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair.client.close()
    with pytest.raises(ConnectionResetError):
        read()


def test_what_came_before_the_accept_is_stamped_too() -> None:
    """Accepted connections inherit the option, so that the first segment has its time as well."""
    source = SocketStamps(WallClock())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source.prepare(listener)
        with closing(socket.create_connection(listener.getsockname(), 10)) as client:
            client.sendall(b"early")
            server, _ = listener.accept()
            with closing(server):
                assert server.getsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS) == 1
                data, ancillary, _, _ = server.recvmsg(100, 100)
                assert (data, len(ancillary)) == (b"early", 1)


# --- the kernel's time, made up ---------------------------------------------------------------


class Answers(socket.socket):
    """A socket whose recvmsg says what the test wants."""

    answer: tuple[bytes, list[Any], int, None]

    def recvmsg(self, *_: int) -> Any:  # type: ignore[override]
        return self.answer


def stamp_of(wall: WallClock, ancillary: list[Any]) -> int:
    with Answers() as connection:
        connection.answer = (b"x", ancillary, 0, None)
        return SocketStamps(wall).reader(connection)()[1]


def timespec(wall_ns: int) -> list[Any]:
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("@ll", *divmod(wall_ns, NS)))]


def test_the_kernels_time_is_converted_to_the_nanosecond() -> None:
    wall = WallClock()
    at = monotonic_ns() - 3_000_000_007
    assert stamp_of(wall, timespec(at + wall.offset_ns)) == at


def test_a_time_in_the_future_is_taken_as_now() -> None:
    """The wall clock was set forward, and the offset not read again yet."""
    wall = WallClock()
    before = monotonic_ns()
    stamp = stamp_of(wall, timespec(before + wall.offset_ns + 3600 * NS))
    assert before <= stamp <= monotonic_ns()


def test_a_read_without_a_stamp_is_stamped_now() -> None:
    before = monotonic_ns()
    assert before <= stamp_of(WallClock(), []) <= monotonic_ns()


# --- the wall clock ----------------------------------------------------------------------------


def test_the_offset_is_that_of_the_wall_clock() -> None:
    wall = WallClock()
    assert not wall.refresh()
    assert wall.steps == 0
    assert wall.monotonic_of(wall.offset_ns + 5) == 5


@pytest.mark.parametrize("step_ns", [-3600 * NS, -10_000_000, 10_000_000, 3600 * NS])
def test_a_step_of_the_wall_clock_is_noticed_once(step_ns: int) -> None:
    wall = WallClock()
    right = wall.offset_ns
    wall.offset_ns = right - step_ns  # as it was read before the step
    assert wall.refresh()
    assert wall.steps == 1
    assert abs(wall.offset_ns - right) < SLEW_NS
    assert not wall.refresh()
    assert wall.steps == 1
