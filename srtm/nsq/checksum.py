"""The checksum by which a message is told from others of the same time."""

from zlib import crc32

_BYTES = 256
"""of a body that are looked at: one of a MiB costs no more than a small one"""


def checksum(body: bytes) -> int:
    """CRC-32 of the body's first bytes, begun with its length."""
    return crc32(body[:_BYTES], len(body))
