"""Records as no client of Kafka would write them: header names that are no UTF-8."""

import socket
import struct
import time
from collections.abc import Iterable

_PRODUCE, _VERSION = 0, 3


def produce_raw(
    address: str,
    topic: str,
    value: bytes | None,
    headers: Iterable[tuple[bytes, bytes | None]],
    key: bytes | None = None,
) -> None:
    """One record to partition 0. Raises AssertionError where Kafka refuses it."""
    batch = _batch(_record(key, value, list(headers)))
    body = struct.pack(">hhi", -1, -1, 10_000)  # no transaction, acks of all, timeout in ms
    body += struct.pack(">ih", 1, len(topic)) + topic.encode()
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    head = struct.pack(">hhih", _PRODUCE, _VERSION, 1, 3) + b"raw"
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = sock.recv(4096)
    code = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)[0]
    assert code == 0, f"Kafka's error {code}"


def _record(
    key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]]
) -> bytes:
    content = b"\0" + _varint(0) + _varint(0) + _bytes(key) + _bytes(value) + _varint(len(headers))
    for name, each in headers:
        content += _bytes(name) + _bytes(each)
    return _varint(len(content)) + content


def _batch(record: bytes) -> bytes:
    """Of one record: record batch v2."""
    stamp = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, stamp, stamp, -1, -1, -1, 1) + record
    rest = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Zigzag."""
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
