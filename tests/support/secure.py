"""A V2 client with TLS and compression of its own making: nothing of ours stands between it and
the wire but frames."""

import json
import socket
import ssl
import struct
import zlib
from typing import Any

from cramjam import snappy
from crc32c import crc32c

from srtm.nsq.commands import identify
from tests.support.v2 import V2

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"


def snappy_chunk(data: bytes, packed: bool = True) -> bytes:
    crc = crc32c(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    content = bytes(snappy.compress_raw(data)) if packed else data
    size = (len(content) + 4).to_bytes(3, "little")
    return bytes([not packed]) + size + struct.pack("<I", masked) + content


class Snappy:
    def __init__(self) -> None:
        self._rest = b""

    def pack(self, data: bytes) -> bytes:
        """As pynsq does it: the identifier comes before each command."""
        chunks = (data[at : at + 65536] for at in range(0, len(data), 65536))
        return IDENTIFIER + b"".join(map(snappy_chunk, chunks))

    def unpack(self, data: bytes) -> bytes:
        self._rest += data
        plain = b""
        while len(self._rest) >= 4:
            end = 4 + int.from_bytes(self._rest[1:4], "little")
            if len(self._rest) < end:
                break
            kind, content = self._rest[0], self._rest[8:end]
            if kind == 0:
                plain += bytes(snappy.decompress_raw(content))
            elif kind == 1:
                plain += content
            else:
                assert self._rest[:end] == IDENTIFIER
            self._rest = self._rest[end:]
        return plain


class Deflate:
    def __init__(self) -> None:
        self._out = zlib.compressobj(6, zlib.DEFLATED, -15)
        self._in = zlib.decompressobj(-15)

    def pack(self, data: bytes) -> bytes:
        return self._out.compress(data) + self._out.flush(zlib.Z_SYNC_FLUSH)

    def unpack(self, data: bytes) -> bytes:
        return self._in.decompress(data)


class Packed:
    """A socket whose bytes are packed."""

    def __init__(self, wire: socket.socket, packing: Snappy | Deflate) -> None:
        self._wire = wire
        self._packing = packing

    def recv(self, size: int) -> bytes:
        while data := self._wire.recv(size):
            if plain := self._packing.unpack(data):
                return plain
        return b""

    def sendall(self, data: bytes) -> None:
        self._wire.sendall(self._packing.pack(data))

    def settimeout(self, seconds: float) -> None:
        self._wire.settimeout(seconds)

    def close(self) -> None:
        self._wire.close()


class SecureV2(V2):
    """What it asks for by IDENTIFY it has when the constructor returns; `told` is the answer."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None, **features: Any) -> None:
        super().__init__(address)
        if tls is not None:
            features["tls_v1"] = True
        self.send(identify(json.dumps({"feature_negotiation": True, **features}).encode()))
        # No more than that: what comes behind it may be packed.
        size = int.from_bytes(self.socket.recv(4, socket.MSG_WAITALL), "big")
        answer = self.socket.recv(size, socket.MSG_WAITALL)[4:]
        assert answer.startswith(b"{"), answer
        self.told = json.loads(answer)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
            assert self.reply() == b"OK"
        if features.get("snappy"):
            self._pack(Snappy())
        if features.get("deflate"):
            self._pack(Deflate())

    def _pack(self, packing: Snappy | Deflate) -> None:
        self.socket = Packed(self.socket, packing)  # type: ignore[assignment]
        assert self.reply() == b"OK"
