"""Deflate, against zlib as another program would use it."""

import tracemalloc
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from srtm.nsq.frames import OK_FRAME
from srtm.nsq.layers import DeflateLayer, LayerError
from tests.nsq.layers.test_snappy import PIECES
from tests.nsq.layers.test_tls import CUTS, all_of, cut

_FLUSH = b"\0\0\0\xff\xff"
"""An empty stored block: Go's reader gives out what came before it."""


@given(PIECES, st.integers(1, 9))
@example([OK_FRAME, b"x" * 1023, b"y" * 1024, OK_FRAME, b"z"], 6)
def test_another_library_reads_what_we_write_each_time_all_of_it(
    pieces: list[bytes], level: int
) -> None:
    ours, theirs = DeflateLayer(level), zlib.decompressobj(-15)
    for piece in pieces:
        wire = ours.encode(piece)
        assert theirs.decompress(wire) == piece
        assert not theirs.eof
        assert not piece or wire.endswith(_FLUSH[1:])


def test_a_small_write_is_a_stored_block_with_an_empty_one_behind_it() -> None:
    wire = DeflateLayer().encode(b"hello")
    assert wire == b"\0\x05\0\xfa\xffhello" + _FLUSH


@given(
    PIECES,
    CUTS,
    st.integers(0, 9),
    st.sampled_from([9, 12, 15]),
    st.sampled_from([zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_PARTIAL_FLUSH]),
    st.sampled_from([zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED, zlib.Z_RLE]),
)
def test_we_read_what_another_library_writes_at_any_cut(
    pieces: list[bytes], places: list[int], level: int, window: int, flush: int, strategy: int
) -> None:
    theirs = zlib.compressobj(level, zlib.DEFLATED, -window, 8, strategy)
    wire = b"".join(theirs.compress(piece) + theirs.flush(flush) for piece in pieces)
    ours = DeflateLayer()
    assert b"".join(all_of(ours, part) for part in cut(wire, places)) == b"".join(pieces)
    assert not ours.ended
    assert ours.buffered == 0


def test_a_stream_that_ends_has_ended_and_keeps_nothing_of_what_follows() -> None:
    wire = zlib.compress(b"x" * 600_000, wbits=-15)
    ours = DeflateLayer()
    plain = ours.decode(wire)
    assert not ours.ended, "there is more of it"
    while ours.more:
        plain += ours.decode(b"")
    assert plain == b"x" * 600_000
    assert ours.ended
    for _ in range(100):
        assert ours.decode(bytes(1000)) == b""
    assert len(ours._inflate.unused_data) == 0
    assert not ours.more


@pytest.mark.parametrize("size", [32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 1 << 20])
def test_what_is_more_than_a_piece_comes_in_pieces_each_byte_once(size: int) -> None:
    data = bytes(range(251)) * (size // 251) + b"e" * (size % 251)
    ours = DeflateLayer()
    first = ours.decode(DeflateLayer().encode(data))
    assert len(first) == min(size, 32 * 1024)
    plain, count = first, 1
    while ours.more:
        plain += ours.decode(b"")
        count += 1
    assert plain == data
    assert count <= size // (32 * 1024) + 2
    assert ours.decode(b"") == b""


def test_a_bomb_is_unpacked_in_pieces() -> None:
    """64 KiB of the wire that hold 64 MiB."""
    wire = zlib.compress(bytes(64 << 20), 9, wbits=-15)
    ours = DeflateLayer()
    tracemalloc.start()
    try:
        largest = len(ours.decode(wire))
        total = largest
        while ours.more:
            piece = len(ours.decode(b""))
            largest, total = max(largest, piece), total + piece
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()
    assert total == 64 << 20
    assert largest == 32 * 1024


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x07", id="a-block-of-no-kind"),
        pytest.param(b"\0\x05\0\xfa\xfehello", id="a-length-and-another"),
        pytest.param(b"\xfc\xff\xff", id="a-table-that-is-none"),
        pytest.param(b"\x03\x02" + bytes(8), id="a-distance-before-the-beginning"),
        pytest.param(zlib.compress(b"x" * 100), id="with-the-header-of-zlib"),
    ],
)
def test_what_is_no_deflate_is_an_error(sent: bytes) -> None:
    with pytest.raises(LayerError, match="no deflate stream"):
        DeflateLayer().decode(sent)
