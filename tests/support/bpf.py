"""The bpf() system call as tests need it, and packets to run a program on."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernel.ebpf import RING_BYTES, SegmentProgram
from kernel.errors import SourceUnavailable

TEST_RUN, PROG_FD_BY_ID, INFO_BY_FD = 10, 13, 15  # linux/bpf.h: enum bpf_cmd
LINK_FD_BY_ID, LINK_DETACH = 30, 34
_SYS_BPF = 321  # x86-64
_libc = ctypes.CDLL(None, use_errno=True)

PORT, PEER_PORT = 4150, 50_000


@contextmanager
def loaded(ring_bytes: int = RING_BYTES) -> Iterator[SegmentProgram]:
    """The program, attached; a skip where that cannot be."""
    try:
        program = SegmentProgram(ring_bytes)
    except SourceUnavailable as error:
        pytest.skip(str(error))
    with program:
        yield program


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """(result, attributes as the kernel left them). Raises OSError."""
    memory = ctypes.create_string_buffer(attributes, len(attributes))
    result = _libc.syscall(_SYS_BPF, command, memory, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result, memory.raw


def run(program_fd: int, packet: bytes, repeat: int = 1) -> tuple[int, int]:
    """(verdict, ns for each run) of a program on an IP packet."""
    ether_type = b"\x86\xdd" if packet[:1] >= b"\x60" else b"\x08\x00"
    frame = bytes(12) + ether_type + packet
    held = ctypes.create_string_buffer(frame, len(frame))
    given = (program_fd, 0, len(frame), 0, ctypes.addressof(held), 0, repeat, 0)
    _, after = bpf(TEST_RUN, struct.pack("IIIIQQII", *given))
    answer = struct.unpack("IIIIQQII", after)
    return answer[1], answer[7]


def id_of(fd: int) -> int:
    """The number by which the kernel knows a program or a link."""
    info = ctypes.create_string_buffer(256)
    bpf(INFO_BY_FD, struct.pack("IIQ", fd, len(info), ctypes.addressof(info)))
    number: int = struct.unpack_from("II", info)[1]
    return number


def exists(command: int, number: int) -> bool:
    """Is there a program (PROG_FD_BY_ID) or a link (LINK_FD_BY_ID) of this number?"""
    try:
        fd, _ = bpf(command, struct.pack("III", number, 0, 0))
    except FileNotFoundError:
        return False
    os.close(fd)
    return True


def tcp(
    payload: bytes = b"",
    flags: int = 0x18,
    *,
    options: bytes = b"",
    words: int | None = None,
    source: int = PEER_PORT,
    target: int = PORT,
    seq: int = 7,
) -> bytes:
    """A TCP segment; `words` is the length of its header that it states."""
    words = 5 + len(options) // 4 if words is None else words
    header = struct.pack("!HHIIBBHHH", source, target, seq, 9, words << 4, flags, 512, 0, 0)
    return header + options + payload


def ip4(
    segment: bytes,
    *,
    options: bytes = b"",
    total: int | None = None,
    fragment: int = 0,
    protocol: int = 6,
) -> bytes:
    """An IPv4 packet from 10.0.0.1 to 10.0.0.2; `total` is the length that it states."""
    total = 20 + len(options) + len(segment) if total is None else total
    words = 0x45 + len(options) // 4
    header = struct.pack("!BBHHHBBH", words, 0, total, 1, fragment, 64, protocol, 0)
    return header + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + options + segment


def ip6(
    segment: bytes,
    *extensions: tuple[int, bytes],
    payload: int | None = None,
    protocol: int = 6,
) -> bytes:
    """An IPv6 packet from fd00::1 to fd00::2; `extensions` are (number, the header but for its
    first byte, which names the next); `payload` is the length that it states."""
    numbers = [number for number, _ in extensions] + [protocol]
    chain = b"".join(
        bytes([after]) + rest for after, (_, rest) in zip(numbers[1:], extensions, strict=True)
    )
    payload = len(chain) + len(segment) if payload is None else payload
    header = struct.pack("!IHBB", 6 << 28, payload, numbers[0], 64)
    addresses = b"\xfd" + bytes(14) + b"\x01" + b"\xfd" + bytes(14) + b"\x02"
    return header + addresses + chain + segment
