"""What the program writes of a segment, and the key by which a connection is found.

The layout is that of `struct record` in segments.bpf.c, native byte order, 56 bytes:

    u64 time_ns          CLOCK_MONOTONIC, as time.monotonic_ns has it
    u32 seq, u32 length  TCP sequence number and payload bytes, host order; a SYN's own sequence
                         number is not counted in `length`
    u8 key[36]           the connection, seen from here (see `key_of`)
    u8 flags, u8[3]      TCP flags as on the wire
"""

import socket
import struct
from collections.abc import Sequence

RECORD = struct.Struct("=QII36sB3x")
"""(time_ns, seq, length, key, flags)"""

FIN, SYN, RST, ACK = 1, 2, 4, 16
"""TCP flags (RFC 9293, section 3.1)."""

_V4_MAPPED = bytes(10) + b"\xff\xff"  # RFC 4291, section 2.5.5.2

Record = tuple[int, int, int, bytes, int]
"""(time_ns, seq, length, key, flags)"""


def key_of(peer: Sequence[object], local: Sequence[object]) -> bytes:
    """The key of a connection from `getpeername()` and `getsockname()`, AF_INET or AF_INET6:
    peer's address, local address (16 bytes each, IPv4 as ::ffff:a.b.c.d), then the two ports in
    network order. Flow labels and scope ids are left out: a segment does not carry them.

    Raises ValueError for an address that is neither (a unix socket has none).
    """
    peer_address, peer_port = _parts(peer)
    local_address, local_port = _parts(local)
    return peer_address + local_address + peer_port + local_port


def _parts(address: Sequence[object]) -> tuple[bytes, bytes]:
    """(16 bytes, 2 bytes) of one end."""
    if not isinstance(address, tuple) or len(address) < 2:
        raise ValueError(f"not the address of a TCP socket: {address!r}; want (host, port, ...)")
    host, port = address[0], address[1]
    if not isinstance(host, str) or not isinstance(port, int) or not 0 <= port <= 0xFFFF:
        raise ValueError(f"not the address of a TCP socket: {address!r}; want (host, port, ...)")
    try:
        if ":" in host:
            packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        else:
            packed = _V4_MAPPED + socket.inet_pton(socket.AF_INET, host)
    except OSError as error:
        raise ValueError(f"not a numeric IP address: {host!r}; want getpeername()'s") from error
    return packed, port.to_bytes(2, "big")
