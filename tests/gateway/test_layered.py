"""How a connection with layers is read: every byte once, at the stamp of what ended its record.

The reader below is a real one, of a socket.
"""

import contextlib
import socket
import threading
import zlib
from collections.abc import Iterator

import pytest

from kernel.clock_stamps import ClockStamps
from kernel.stamps import Pieces
from srtm.gateway.layered import LayeredReader
from srtm.host.clock import monotonic_ns
from srtm.nsq.layers import DeflateLayer, Layer, SnappyLayer, Stack
from tests.nsq.layers.test_snappy import PADDING
from tests.nsq.layers.test_tls import World, world
from tests.support.secure import IDENTIFIER, snappy_chunk

__all__ = ["world"]


class Wire:
    """Both ends of a connection."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.settimeout(20)

    def reader(self, layer: Layer, stamp: int = 0) -> LayeredReader:
        return LayeredReader(ClockStamps().reader(self.near), layer, stamp)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.near.close()
    wire.far.close()


def all_of(reader: LayeredReader) -> Pieces:
    """As the gateway reads: until it would block, or the end."""
    came: Pieces = []
    try:
        while pieces := reader.read():
            came += pieces
    except BlockingIOError:
        pass
    return came


def test_a_message_has_the_stamp_of_the_segment_that_ends_its_chunk(wire: Wire) -> None:
    reader = wire.reader(SnappyLayer())
    one = snappy_chunk(b"one")
    wire.far.sendall(IDENTIFIER + one[:3])
    assert all_of(reader) == []
    before = monotonic_ns()
    wire.far.sendall(one[3:])
    ((data, stamp),) = all_of(reader)
    assert data == b"one"
    assert before <= stamp <= monotonic_ns()


def test_what_the_layer_holds_from_before_has_its_own_stamp(wire: Wire, world: World) -> None:
    server, client, _ = world.pair()
    server._rest = client.encode(b"with the handshake")
    assert all_of(wire.reader(server, 7)) == [(b"with the handshake", 7)]


@pytest.mark.parametrize("ends", [False, True], ids=["waits", "ends"])
@pytest.mark.parametrize("within_tls", [False, True], ids=["deflate", "tls-and-deflate"])
def test_a_big_piece_comes_in_turns_and_what_came_behind_it_afterwards(
    wire: Wire, world: World, within_tls: bool, ends: bool
) -> None:
    server, client, _ = world.pair()
    near: Layer = Stack(client, DeflateLayer()) if within_tls else DeflateLayer()
    far: Layer = Stack(server, DeflateLayer()) if within_tls else DeflateLayer()
    reader = wire.reader(far)
    wire.far.sendall(near.encode(bytes(1 << 20)) + near.encode(b"behind"))
    came = reader.read()
    assert reader.holds
    wire.far.sendall(near.encode(b"last"))
    if ends:
        wire.far.shutdown(socket.SHUT_WR)
    came += all_of(reader)
    assert b"".join(data for data, _ in came) == bytes(1 << 20) + b"behind" + b"last"
    assert [stamp for _, stamp in came] == sorted(stamp for _, stamp in came)
    assert all(len(data) <= 32 * 1024 for data, _ in came)
    assert not reader.holds


def test_what_is_left_is_given_although_the_other_side_has_said_its_last(
    wire: Wire, world: World
) -> None:
    server, client, _ = world.pair()
    near, far = Stack(client, DeflateLayer()), Stack(server, DeflateLayer())
    wire.far.sendall(near.encode(bytes(1 << 20)) + near.ending())
    reader = wire.reader(far)
    assert sum(len(data) for data, _ in all_of(reader)) == 1 << 20
    assert reader.read() == [], "the end, though the socket is open"


def test_a_deflate_stream_that_ends_is_the_end(wire: Wire) -> None:
    wire.far.sendall(zlib.compress(b"all", wbits=-15) + b"behind")
    reader = wire.reader(DeflateLayer())
    assert b"".join(data for data, _ in reader.read()) == b"all"
    assert reader.holds, "the end is to be read, though the socket has nothing more"
    assert reader.read() == []


def test_padding_without_end_takes_a_turn_and_no_more(wire: Wire) -> None:
    """The other side sends as fast as it is read: a read comes back without a byte."""
    reader = wire.reader(SnappyLayer())
    stops = threading.Event()

    def pad() -> None:
        wire.far.sendall(IDENTIFIER)
        while not stops.is_set():
            wire.far.sendall(PADDING * 5000)

    sender = threading.Thread(target=pad)
    sender.start()
    came: Pieces = []
    while not came:
        try:
            came = reader.read()
        except BlockingIOError:
            continue
    stops.set()
    while sender.is_alive():
        all_of(reader)
    sender.join()
    assert [data for data, _ in came] == [b""]


def test_what_is_read_and_not_decoded_counts(wire: Wire) -> None:
    reader = wire.reader(SnappyLayer())
    wire.far.sendall(IDENTIFIER + snappy_chunk(b"x" * 100, packed=False)[:20])
    assert all_of(reader) == []
    assert reader.buffered == 20


def test_what_is_read_and_not_unpacked_counts(wire: Wire) -> None:
    packed = DeflateLayer().encode(bytes(1 << 20))
    reader = wire.reader(DeflateLayer())
    wire.far.sendall(packed)
    reader.read()
    assert reader.holds
    assert 5 < reader.buffered <= len(packed)


def test_what_comes_while_it_holds_something_is_not_waited_for(wire: Wire) -> None:
    """The gateway is told of it once, and may read only what is held then."""
    near = DeflateLayer()
    reader = wire.reader(DeflateLayer())
    wire.far.sendall(near.encode(bytes(1 << 20)))
    reader.read()
    wire.far.sendall(near.encode(b"last"))
    came = b""
    with contextlib.suppress(BlockingIOError):
        while reader.more:
            came += b"".join(data for data, _ in reader.read())
    assert came.endswith(b"last")
