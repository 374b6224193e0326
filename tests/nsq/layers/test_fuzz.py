"""Bytes that a hostile side may send: what comes out is plain bytes or LayerError, and no layer
holds more than its bound. The seed is fixed: a run that passed passes again.

`LONG=yes` tries a million cases of each kind; FUZZ_CASES any number.
"""

import os
import random
import zlib
from collections.abc import Callable, Iterator

import psutil
import pytest

from srtm.nsq.layers import DeflateLayer, Layer, LayerError, SnappyLayer, Stack, TlsLayer
from tests.nsq.layers.test_snappy import PADDING, RESERVED
from tests.nsq.layers.test_tls import World, world
from tests.support.cases import LONG
from tests.support.secure import IDENTIFIER, snappy_chunk

__all__ = ["world"]
CASES = int(os.environ.get("FUZZ_CASES", "1000000" if LONG else "12000"))
_MOST_PIECE_BYTES = (256 + 64) * 1024
_MOST_HELD_BYTES = 160 * 1024
_SEEDS = [b"", b"OK", b"PUB topic\n\0\0\0\5hello", bytes(3000), bytes(range(256)) * 9]


def mutated(data: bytes, dice: random.Random) -> bytes:
    """With bits turned, bytes put in, taken out, repeated or cut off."""
    out = bytearray(data)
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        at = dice.randrange(len(out) + 1)
        kind = dice.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << dice.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        elif kind == 2:
            out[at:at] = dice.randbytes(dice.randrange(1, 9))
        elif kind == 3:
            del out[at : at + dice.randrange(1, 20)]
        elif kind == 4:
            out[at:at] = out[at : at + dice.randrange(1, 40)]
        else:
            del out[at:]
    return bytes(out)


def fed(layer: Layer, data: bytes, dice: random.Random) -> int:
    """Decode it in up to three parts; how many plain bytes came. Raises LayerError."""
    edges = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(3)))
    came = 0
    for start, end in zip([0, *edges], [*edges, len(data)], strict=True):
        plain = layer.decode(data[start:end])
        came += len(plain)
        while layer.more:
            piece = layer.decode(b"")
            assert len(piece) <= _MOST_PIECE_BYTES
            came += len(piece)
            if came > 64 << 20:
                return came
        assert len(plain) <= _MOST_PIECE_BYTES
        assert layer.buffered <= _MOST_HELD_BYTES
    return came


def a_snappy_stream(dice: random.Random) -> bytes:
    parts = [IDENTIFIER]
    for _ in range(dice.randrange(4)):
        chunk = snappy_chunk(dice.choice(_SEEDS), packed=dice.random() < 0.5)
        parts.append(dice.choice((chunk, chunk, PADDING, RESERVED, IDENTIFIER)))
    return b"".join(parts)


def a_deflate_stream(dice: random.Random) -> bytes:
    packs = zlib.compressobj(dice.randrange(10), zlib.DEFLATED, -dice.choice((9, 12, 15)))
    parts = []
    for _ in range(dice.randrange(1, 4)):
        flush = dice.choice((zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH))
        parts.append(packs.compress(dice.choice(_SEEDS)) + packs.flush(flush))
    if dice.random() < 0.2:
        parts.append(packs.flush())
    return b"".join(parts)


STREAMS: list[tuple[str, type[Layer], Callable[[random.Random], bytes]]] = [
    ("snappy", SnappyLayer, a_snappy_stream),
    ("deflate", DeflateLayer, a_deflate_stream),
]


@pytest.fixture(autouse=True)
def _no_growth() -> Iterator[None]:
    """What a case has left behind would show in this process, however many there are."""
    process = psutil.Process()
    before = process.memory_info().rss
    yield
    assert process.memory_info().rss - before < 64 << 20


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("layer", "stream"), [pytest.param(*row, id=name) for name, *row in STREAMS]
)
def test_a_packed_stream(layer: type[Layer], stream: Callable[[random.Random], bytes]) -> None:
    dice = random.Random(31)
    good = bad = longest = 0
    for _ in range(CASES):
        data = mutated(stream(dice), dice)
        try:
            fed(layer(), data, dice)
            good += 1
        except LayerError as error:
            longest = max(longest, len(str(error)))
            bad += 1
    assert longest < 200
    assert good > CASES // 10, "most of it would be refused at its first byte"
    assert bad > CASES // 10


@pytest.mark.timeout(7200)
def test_records_of_tls_and_what_is_in_them(world: World) -> None:
    """A connection ends at its first bad record, so pairs are used until then."""
    dice = random.Random(31)
    bad = longest = 0
    tls: Layer | None = None
    client: TlsLayer | None = None
    for _ in range(CASES // 4):
        if tls is None or client is None:
            server, client, _ = world.pair(logged=False)
            tls = Stack(server, SnappyLayer()) if dice.random() < 0.3 else server
        data = client.encode(dice.choice((a_snappy_stream(dice), b"x" * 30)))
        if dice.random() < 0.5:
            data = mutated(data, dice)
        try:
            fed(tls, data, dice)
        except LayerError as error:
            longest = max(longest, len(str(error)))
            tls.encode(b"an answer")
            tls.ending()
            tls = None
            bad += 1
        if tls is not None and tls.ended:
            tls = None
    assert longest < 200
    assert bad > CASES // 40


@pytest.mark.timeout(7200)
def test_handshakes_of_tls(world: World) -> None:
    """Of either side, up to where the mutation stands."""
    dice = random.Random(31)
    context = world.client(logged=False)
    bad = longest = 0
    for _ in range(CASES // 12):
        server, client = TlsLayer(world.server), TlsLayer(context, "localhost")
        when = dice.randrange(4)
        to_server, to_client = client.handshake(b""), b""
        try:
            for turn in range(2):
                flight = mutated(to_server, dice) if when == 2 * turn else to_server
                to_client = server.handshake(flight)
                flight = mutated(to_client, dice) if when == 2 * turn + 1 else to_client
                to_server = client.handshake(flight)
                assert server.buffered <= _MOST_HELD_BYTES
        except LayerError as error:
            longest = max(longest, len(str(error)))
            bad += 1
        server.ending()
        client.ending()
    assert longest < 200
    assert bad > CASES // 120
