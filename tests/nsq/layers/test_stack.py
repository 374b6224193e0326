"""Compression inside TLS: each byte once, also where both have more and where both end."""

import zlib

import pytest
from hypothesis import given, settings

from srtm.nsq.layers import DeflateLayer, Layer, SnappyLayer, Stack
from tests.nsq.layers.test_snappy import PIECES
from tests.nsq.layers.test_tls import CUTS, World, all_of, cut, world
from tests.support.cases import cases

__all__ = ["world"]
INNER = [pytest.param(SnappyLayer, id="snappy"), pytest.param(DeflateLayer, id="deflate")]


@pytest.mark.parametrize("inner", INNER)
def test_all_comes_both_ways_at_any_cut(world: World, inner: type[Layer]) -> None:
    @settings(max_examples=cases(80))
    @given(PIECES, CUTS)
    def check(pieces: list[bytes], places: list[int]) -> None:
        server, client, _ = world.pair()
        near, far = Stack(client, inner()), Stack(server, inner())
        for one, other in ((near, far), (far, near)):
            wire = b"".join(map(one.encode, pieces))
            plain = b"".join(all_of(other, part) for part in cut(wire, places))
            assert plain == b"".join(pieces)
            assert other.buffered == 0

    check()


def test_what_is_left_of_a_big_piece_comes_although_the_other_side_has_ended(world: World) -> None:
    server, client, _ = world.pair()
    near, far = Stack(client, DeflateLayer()), Stack(server, DeflateLayer())
    data = bytes(1 << 20)
    wire = near.encode(data) + near.ending()
    plain = far.decode(wire)
    assert far.ended
    assert far.more
    assert len(plain) < len(data)
    while far.more:
        plain += far.decode(b"")
    assert plain == data


def test_the_end_of_either_is_the_end(world: World) -> None:
    server, client, _ = world.pair()
    far = Stack(server, DeflateLayer())
    assert all_of(far, client.encode(zlib.compress(b"all of it", wbits=-15))) == b"all of it"
    assert far.ended
