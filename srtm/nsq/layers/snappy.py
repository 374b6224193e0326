"""Snappy's framing format (github.com/google/snappy, framing_format.txt), raw snappy by cramjam.

What a chunk says of its length is checked before it is unpacked. A stream identifier may come again
at any place (the format allows it, and pynsq sends one before each command).
"""

import struct
from typing import Any

from cramjam import snappy
from crc32c import crc32c

from srtm.nsq.frames import OK_FRAME
from srtm.nsq.layers.layer import LayerError

_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _PLAIN, _SKIPPABLE, _BEGIN = 0x00, 0x01, 0x80, 0xFF
_MOST_PLAIN_BYTES = 65_536
_MOST_PACKED_BYTES = 32 + _MOST_PLAIN_BYTES + _MOST_PLAIN_BYTES // 6  # MaxCompressedLength
_MOST_AT_ONCE_BYTES = 64 * 1024
_MOST_AT_ONCE_CHUNKS = 256
"""of whole chunks; the rest of what came waits, packed. 64 KiB may hold 22 times as much."""
_CRC_BYTES = 4
_WORTH_BYTES = 256
"""Shorter data goes as it is: packing it saves less than it costs."""
_CRC = struct.Struct("<I")


class SnappyLayer:
    """One side of a connection."""

    __slots__ = ("_began", "_greeted", "_rest", "more")

    ended = False

    def __init__(self) -> None:
        self.more = False
        self._rest = b""
        self._began = False  # the other side's identifier has come
        self._greeted = False  # ours has gone

    @property
    def buffered(self) -> int:
        return len(self._rest)

    def decode(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
        plain: list[bytes] = []
        position, length, size, chunks = 0, len(data), 0, 0
        self.more = False
        while position + 4 <= length:
            if size >= _MOST_AT_ONCE_BYTES or chunks >= _MOST_AT_ONCE_CHUNKS:
                self.more = True
                break
            chunks += 1
            kind = data[position]
            start = position + 4
            end = start + (data[position + 1] | data[position + 2] << 8 | data[position + 3] << 16)
            if end > length:
                _check_length(kind, end - start)
                break
            self._check_kind(kind, data, position, end)
            if kind <= _PLAIN:
                plain.append(_unpacked(kind, data, start, end))
                size += len(plain[-1])
            position = end
        self._rest = data[position:]
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def _check_kind(self, kind: int, data: bytes, position: int, end: int) -> None:
        """Raises LayerError."""
        if kind == _BEGIN:
            if data[position:end] != _IDENTIFIER:
                raise LayerError("a snappy stream identifier that is none")
            self._began = True
        elif not self._began:
            raise LayerError("what came is no snappy stream: it begins without its identifier")
        elif _PLAIN < kind < _SKIPPABLE:
            raise LayerError(f"a snappy chunk of the unknown kind {kind:#04x}")
        _check_length(kind, end - position - 4)

    def encode(self, data: bytes) -> bytes:
        if not data:
            return b""
        if self._greeted:
            if data == OK_FRAME:
                return OK_CHUNK
            if len(data) < _WORTH_BYTES:
                return _chunk(data)
            chunks = []
        else:
            self._greeted = True
            chunks = [_IDENTIFIER]
        for start in range(0, len(data), _MOST_PLAIN_BYTES):
            chunks.append(_chunk(data[start : start + _MOST_PLAIN_BYTES]))
        return b"".join(chunks)

    def ending(self) -> bytes:
        return b""


def _check_length(kind: int, length: int) -> None:
    """Raises LayerError where a chunk says that it is longer than any may be."""
    if length > _MOST_PACKED_BYTES + _CRC_BYTES:
        raise LayerError(f"a snappy chunk of {length} bytes")
    if kind <= _PLAIN and length < _CRC_BYTES:
        raise LayerError("a snappy chunk without its checksum")
    if kind == _PLAIN and length > _MOST_PLAIN_BYTES + _CRC_BYTES:
        raise LayerError(f"a snappy chunk of {length} bytes that are not packed")


def _unpacked(kind: int, data: bytes, start: int, end: int) -> bytes:
    """Raises LayerError."""
    content = data[start + _CRC_BYTES : end]
    if kind == _COMPRESSED:
        if not 0 <= _plain_length(content) <= _MOST_PLAIN_BYTES:
            raise LayerError("a snappy chunk says that it unpacks to more than 64 KiB")
        try:
            content = bytes(_raw.decompress_raw(content))
        except Exception:  # of the library's own kind
            raise LayerError("a snappy chunk cannot be unpacked") from None
    if _CRC.unpack_from(data, start)[0] != _masked_crc(content):
        raise LayerError("a snappy chunk has another checksum than it says")
    return content


def _plain_length(packed: bytes) -> int:
    """What raw snappy says at its beginning; -1 where that is no number."""
    length = 0
    for index, byte in enumerate(packed[:5]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return length
    return -1


def _chunk(data: bytes) -> bytes:
    """Packed where that saves an eighth, as nsqd's library does it."""
    kind, content = _PLAIN, data
    if len(data) >= _WORTH_BYTES:
        packed = bytes(_raw.compress_raw(data))
        if len(packed) < len(data) - len(data) // 8:
            kind, content = _COMPRESSED, packed
    size = len(content) + _CRC_BYTES
    return b"%b%b%b" % (
        (size << 8 | kind).to_bytes(4, "little"),
        _CRC.pack(_masked_crc(data)),
        content,
    )


def _masked_crc(data: bytes) -> int:
    """The format masks its CRC-32C, as data may hold checksums itself."""
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


_raw: Any = snappy
OK_CHUNK = _chunk(OK_FRAME)
"""The usual answer, 18 bytes: it is not computed each time."""
