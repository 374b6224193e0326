"""Raw deflate (RFC 1951), each write ended so that the other side can read all of it."""

import zlib

from srtm.nsq.frames import OK_FRAME
from srtm.nsq.layers.layer import LayerError

_RAW = -15  # the largest window: the other side may use it
_WINDOW_BITS, _MEMORY_LEVEL = -12, 5
"""of what we pack: 24 KiB a connection in place of 268, for a tenth more bytes"""
_MOST_PLAIN_BYTES = 32 * 1024
"""unpacked at once; the rest of what came waits, packed"""
_FLUSH = b"\0\0\0\xff\xff"
_WORTH_BYTES = 1024
"""Shorter data goes as it is. Answers to publishers are, and so they need no window."""


class DeflateLayer:
    """One side of a connection."""

    __slots__ = ("_deflate", "_inflate", "_level", "_packed", "more")

    def __init__(self, level: int = 6) -> None:
        self._inflate = zlib.decompressobj(_RAW)
        self._level = level
        self._deflate: zlib._Compress | None = None
        self._packed = b""  # came, and is not unpacked yet
        self.more = False

    @property
    def ended(self) -> bool:
        return self._inflate.eof

    @property
    def buffered(self) -> int:
        return len(self._packed)

    def decode(self, data: bytes) -> bytes:
        inflate = self._inflate
        if inflate.eof:
            self.more = False
            return b""  # zlib would keep what comes behind
        if self._packed:
            data = self._packed + data
        try:
            plain = inflate.decompress(data, _MOST_PLAIN_BYTES)
        except zlib.error as error:
            raise LayerError(f"what came is no deflate stream: {error}") from None
        self._packed = inflate.unconsumed_tail
        # All may have been taken in while some of it has yet to come out.
        self.more = len(plain) == _MOST_PLAIN_BYTES
        return plain

    def encode(self, data: bytes) -> bytes:
        if self._deflate is None:
            if data == OK_FRAME:
                return OK_BLOCK
            if len(data) < _WORTH_BYTES:
                return _stored(data) if data else b""
            # From here on all goes through it: it refers by distance to what it packed before.
            self._deflate = zlib.compressobj(
                self._level, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL
            )
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def ending(self) -> bytes:
        return b""


def _stored(data: bytes) -> bytes:
    """One block that is not packed (RFC 1951, section 3.2.4), and an empty one: Go's reader gives
    out what it has at the end of such a one. All before them ends with a byte."""
    size = len(data)
    head = size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little")
    return b"\0" + head + data + _FLUSH


OK_BLOCK = _stored(OK_FRAME)
"""The usual answer, 20 bytes."""
