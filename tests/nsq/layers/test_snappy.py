"""Snappy's framing, against cramjam's own and against chunks of our own making."""

import tracemalloc

import pytest
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from srtm.nsq.frames import OK_FRAME
from srtm.nsq.layers import LayerError, SnappyLayer
from tests.nsq.layers.test_tls import CUTS, all_of, cut
from tests.support.secure import IDENTIFIER, snappy_chunk

PIECES = st.lists(
    st.one_of(
        st.binary(max_size=2000),
        st.just(OK_FRAME),
        st.builds(bytes.__mul__, st.binary(min_size=1, max_size=9), st.integers(1, 30_000)),
    ),
    max_size=6,
)
PADDING = bytes([0xFE]) + (100).to_bytes(3, "little") + bytes(100)
RESERVED = bytes([0x80]) + (9).to_bytes(3, "little") + b"reserved!"


@given(PIECES, CUTS)
def test_another_library_reads_what_we_write_each_time_all_of_it(
    pieces: list[bytes], places: list[int]
) -> None:
    ours, wire, whole = SnappyLayer(), b"", b""
    for piece in pieces:
        wire += ours.encode(piece)
        whole += piece
        assert bytes(snappy.decompress(wire or IDENTIFIER)) == whole
    again = SnappyLayer()
    assert b"".join(all_of(again, part) for part in cut(wire, places)) == whole
    assert again.buffered == 0


@given(PIECES, CUTS, st.sampled_from([b"", IDENTIFIER, PADDING, RESERVED, PADDING + IDENTIFIER]))
def test_we_read_what_another_library_writes_at_any_cut(
    pieces: list[bytes], places: list[int], between: bytes
) -> None:
    wire = IDENTIFIER + b"".join(bytes(snappy.compress(piece)) + between for piece in pieces)
    ours = SnappyLayer()
    plain = [all_of(ours, part) for part in cut(wire, places)]
    assert b"".join(plain) == b"".join(pieces)
    assert ours.buffered == 0
    assert not ours.more


def test_byte_by_byte() -> None:
    data = bytes(range(256)) * 300
    wire = bytes(snappy.compress(data)) + IDENTIFIER + snappy_chunk(b"end", packed=False)
    ours = SnappyLayer()
    assert b"".join(ours.decode(bytes([byte])) for byte in wire) == data + b"end"


def head(kind: int, size: int) -> bytes:
    return bytes([kind]) + size.to_bytes(3, "little")


def packed_as(length: int, content: bytes = b"") -> bytes:
    """A chunk that says that it unpacks to `length` bytes."""
    number = b""
    while length >= 0x80:
        number += bytes([length & 0x7F | 0x80])
        length >>= 7
    raw = number + bytes([length]) + content
    return head(0, len(raw) + 4) + bytes(4) + raw


GOOD = snappy_chunk(b"x" * 300)
BAD = {
    "plain-text": (b"PUB t\n\0\0\0\1x", "chunk of"),
    "no-identifier": (GOOD, "without its identifier"),
    "padding-before-the-identifier": (PADDING, "without its identifier"),
    "an-identifier-of-another": (head(0xFF, 6) + b"sNaPpy", "identifier that is none"),
    "an-identifier-without-its-name": (IDENTIFIER + head(0xFF, 0), "identifier that is none"),
    "a-kind-that-none-may-skip": (IDENTIFIER + head(0x02, 1) + b"x", "unknown kind 0x02"),
    "the-last-such-kind": (IDENTIFIER + head(0x7F, 1) + b"x", "unknown kind 0x7f"),
    "16-MiB-of-packed": (IDENTIFIER + head(0, 0xFFFFFF), "chunk of 16777215"),
    "16-MiB-of-padding": (IDENTIFIER + head(0xFE, 0xFFFFFF), "chunk of 16777215"),
    "more-than-64-KiB-plain": (IDENTIFIER + head(1, 65_541), "that are not packed"),
    "without-a-checksum": (IDENTIFIER + head(1, 3) + b"abc", "without its checksum"),
    "of-nothing": (IDENTIFIER + head(0, 0), "without its checksum"),
    "packed-nothing-at-all": (IDENTIFIER + head(0, 4) + bytes(4), "more than 64 KiB"),
    "another-checksum": (IDENTIFIER + GOOD[:4] + b"\0\0\0\0" + GOOD[8:], "another checksum"),
    "another-checksum-plain": (IDENTIFIER + head(1, 5) + bytes(4) + b"x", "another checksum"),
    "unpacks-to-a-byte-too-many": (IDENTIFIER + packed_as(65_537), "more than 64 KiB"),
    "unpacks-to-4-GiB": (IDENTIFIER + packed_as((1 << 32) - 1), "more than 64 KiB"),
    "a-length-without-an-end": (IDENTIFIER + packed_as(1 << 40), "more than 64 KiB"),
    "less-than-it-says": (IDENTIFIER + packed_as(60_000, b"\0x"), "cannot be unpacked"),
    "more-than-it-says": (IDENTIFIER + packed_as(1, b"\x04xy"), "cannot be unpacked"),
    "a-copy-of-what-was-not-there": (IDENTIFIER + packed_as(4, b"\x01\x09"), "cannot be unpacked"),
}


@pytest.mark.parametrize(
    ("sent", "why"), [pytest.param(*row, id=name) for name, row in BAD.items()]
)
def test_a_chunk_that_is_none_is_an_error(sent: bytes, why: str) -> None:
    with pytest.raises(LayerError, match=why):
        SnappyLayer().decode(sent)
    layer = SnappyLayer()
    with pytest.raises(LayerError, match=why):
        list(map(layer.decode, cut(sent, list(range(len(sent))))))


def test_a_length_that_lies_is_told_before_its_bytes_come_and_no_more_is_held() -> None:
    layer = SnappyLayer()
    layer.decode(IDENTIFIER + head(0, 76_494))
    for _ in range(76):
        assert layer.decode(bytes(1000)) == b""
    assert layer.buffered == 76_004
    with pytest.raises(LayerError):
        layer.decode(bytes(1000))


def test_a_bomb_is_unpacked_in_pieces() -> None:
    """64 KiB of the wire: chunks of zeros, each 3 KiB for 64."""
    chunk = snappy_chunk(bytes(65_536))
    count = 65_536 // len(chunk)
    wire = IDENTIFIER + chunk * count
    layer = SnappyLayer()
    tracemalloc.start()
    try:
        pieces = [len(layer.decode(wire))]
        while layer.more:
            pieces.append(len(layer.decode(b"")))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert sum(pieces) == count * 65_536
    assert max(pieces) == 64 * 1024
    assert layer.buffered == 0
    assert layer.decode(b"") == b""


def test_a_bad_chunk_behind_a_big_piece_is_found_when_it_is_reached() -> None:
    layer = SnappyLayer()
    chunk = snappy_chunk(bytes(65_536))
    assert len(layer.decode(IDENTIFIER + chunk * 2 + head(0x02, 0))) == 64 * 1024
    assert len(layer.decode(b"")) == 64 * 1024
    assert layer.more
    with pytest.raises(LayerError, match="unknown kind"):
        layer.decode(b"")
