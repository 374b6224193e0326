"""TLS records of a test's own making, sealed with the keys that OpenSSL writes to a key log: what
no library would send."""

import hashlib
import hmac
import struct
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALERT, HANDSHAKE, DATA = 21, 22, 23
_HASHES: dict[int, Any] = {32: hashlib.sha256, 48: hashlib.sha384}


class Sealer:
    """One direction of TLS 1.3 with AES-GCM (RFC 8446, sections 5.2 and 7)."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._set_key()

    @classmethod
    def of_client(cls, key_log: Path) -> "Sealer":
        """For the connection that was logged last."""
        return cls(bytes.fromhex(_logged(key_log, "CLIENT_TRAFFIC_SECRET_0")[1]))

    def _set_key(self) -> None:
        size = 32 if len(self._secret) == 48 else 16
        self._aead = AESGCM(self._expand(b"key", size))
        self._iv = int.from_bytes(self._expand(b"iv", 12), "big")
        self._number = 0

    def _expand(self, label: bytes, size: int) -> bytes:
        label = b"tls13 " + label
        info = struct.pack(">HB", size, len(label)) + label + b"\0"
        kind = _HASHES[len(self._secret)]
        return hmac.new(self._secret, info + b"\1", kind).digest()[:size]

    def next_key(self) -> None:
        """The one behind a KeyUpdate."""
        self._secret = self._expand(b"traffic upd", len(self._secret))
        self._set_key()

    def seal(self, kind: int, data: bytes, padding: int = 0) -> bytes:
        inner = data + bytes([kind]) + bytes(padding)
        head = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        nonce = (self._iv ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + self._aead.encrypt(nonce, inner, head)

    def key_update(self, asks_for_one: bool) -> bytes:
        record = self.seal(HANDSHAKE, b"\x18\0\0\x01" + bytes([asks_for_one]))
        self.next_key()
        return record


class OldSealer:
    """One direction of TLS 1.2 with AES-256-GCM and SHA-384 (RFC 5288), behind its Finished."""

    def __init__(self, key_log: Path, server_hello: bytes, of_server: bool = False) -> None:
        """server_hello: the first bytes that the server sent"""
        client_random, master = map(bytes.fromhex, _logged(key_log, "CLIENT_RANDOM"))
        seed = b"key expansion" + server_hello[11:43] + client_random
        block, each = b"", seed
        while len(block) < 72:
            each = hmac.new(master, each if block else seed, hashlib.sha384).digest()
            block += hmac.new(master, each + seed, hashlib.sha384).digest()
        self._aead = AESGCM(block[32:64] if of_server else block[:32])
        self._salt = block[68:72] if of_server else block[64:68]
        self._number = 1

    def seal(self, kind: int, data: bytes) -> bytes:
        number = self._number.to_bytes(8, "big")
        self._number += 1
        extra = number + bytes([kind, 3, 3]) + struct.pack(">H", len(data))
        sealed = number + self._aead.encrypt(self._salt + number, data, extra)
        return bytes([kind, 3, 3]) + struct.pack(">H", len(sealed)) + sealed


def _logged(key_log: Path, label: str) -> tuple[str, str]:
    """What follows `label` in its last line."""
    lines = [line.split() for line in key_log.read_text().splitlines()]
    return next((line[1], line[2]) for line in reversed(lines) if line[0] == label)
