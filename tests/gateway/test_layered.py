"""How a connection with layers is read: every byte once, at the stamp of what ended its record."""

import zlib
from collections import deque

import pytest

from kernel.stamps import Pieces, Reader
from srtm.gateway.layered import LayeredReader
from srtm.nsq.layers import DeflateLayer, Layer, SnappyLayer, Stack
from tests.nsq.layers.test_snappy import PADDING
from tests.nsq.layers.test_tls import World, world
from tests.support.secure import IDENTIFIER, snappy_chunk

__all__ = ["world"]


class Socket(Reader):
    """Gives what the test has put in, and then as `end` says."""

    def __init__(self, *reads: Pieces, end: str = "waits") -> None:
        self._left = deque(reads)
        self._end = end
        self.reads = 0
        self.more = False

    def read(self) -> Pieces:
        self.reads += 1
        if not self._left:
            if self._end == "waits":
                raise BlockingIOError
            return [] if self._end == "ends" else [(PADDING, self.reads)]
        self.more = len(self._left) > 1
        return self._left.popleft()


def all_of(reader: LayeredReader) -> Pieces:
    """As the gateway reads: until it would block, or the end."""
    came: Pieces = []
    try:
        while pieces := reader.read():
            came += pieces
    except BlockingIOError:
        pass
    return came


def test_a_message_has_the_stamp_of_the_segment_that_ends_its_chunk() -> None:
    one, two = snappy_chunk(b"one"), snappy_chunk(b"two")
    socket = Socket([(IDENTIFIER + one[:3], 1), (one[3:] + two[:5], 2)], [(two[5:], 3)])
    assert all_of(LayeredReader(socket, SnappyLayer(), 0)) == [(b"one", 2), (b"two", 3)]


def test_what_the_layer_holds_from_before_has_its_own_stamp(world: World) -> None:
    server, client, _ = world.pair()
    server._rest = client.encode(b"with the handshake")
    assert all_of(LayeredReader(Socket(), server, 7)) == [(b"with the handshake", 7)]


@pytest.mark.parametrize("end", ["waits", "ends"])
@pytest.mark.parametrize("within_tls", [False, True], ids=["deflate", "tls-and-deflate"])
def test_a_big_piece_comes_in_turns_and_what_came_behind_it_afterwards(
    world: World, within_tls: bool, end: str
) -> None:
    server, client, _ = world.pair()
    near: Layer = Stack(client, DeflateLayer()) if within_tls else DeflateLayer()
    far: Layer = Stack(server, DeflateLayer()) if within_tls else DeflateLayer()
    big = near.encode(bytes(1 << 20))
    reader = LayeredReader(
        Socket([(big, 1), (near.encode(b"behind"), 2)], [(near.encode(b"last"), 3)], end=end),
        far,
        0,
    )
    came = all_of(reader)
    assert b"".join(data for data, _ in came) == bytes(1 << 20) + b"behind" + b"last"
    assert [stamp for _, stamp in came] == sorted(stamp for _, stamp in came)
    assert all(len(data) <= 256 * 1024 for data, _ in came)
    assert not reader.holds


def test_what_is_left_is_given_although_the_other_side_has_said_its_last(world: World) -> None:
    server, client, _ = world.pair()
    near, far = Stack(client, DeflateLayer()), Stack(server, DeflateLayer())
    wire = near.encode(bytes(1 << 20)) + near.ending()
    reader = LayeredReader(Socket([(wire, 1)]), far, 0)
    assert sum(len(data) for data, _ in all_of(reader)) == 1 << 20
    assert reader.read() == [], "the end, though the socket is open"


def test_a_deflate_stream_that_ends_is_the_end() -> None:
    wire = zlib.compress(b"all", wbits=-15)
    reader = LayeredReader(Socket([(wire + b"behind", 1)]), DeflateLayer(), 0)
    assert all_of(reader) == [(b"all", 1)]
    assert reader.read() == []


def test_padding_without_end_takes_a_turn_and_no_more() -> None:
    socket = Socket([(IDENTIFIER, 1)], end="padding")
    reader = LayeredReader(socket, SnappyLayer(), 0)
    ((data, _),) = reader.read()
    assert data == b""
    assert socket.reads <= 8


def test_what_is_read_and_not_decoded_counts() -> None:
    chunk = snappy_chunk(b"x" * 100, packed=False)
    reader = LayeredReader(Socket([(IDENTIFIER + chunk[:20], 1)]), SnappyLayer(), 0)
    assert all_of(reader) == []
    assert reader.buffered == 20
    wire = DeflateLayer().encode(bytes(1 << 20))
    reader = LayeredReader(Socket([(wire, 1), (b"later", 2)]), DeflateLayer(), 0)
    reader.read()
    assert reader.holds
    assert 5 < reader.buffered <= len(wire) + 5
