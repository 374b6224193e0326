"""What another witness saw: the kernel's packet capture of the segments that a gateway got.

An AF_PACKET socket on loopback, with a filter for the gateways' ports and the kernel's time of each
packet (SO_TIMESTAMPNS). Nothing is read until the run is over.
"""

import ctypes
import socket
import struct
from dataclasses import dataclass

import numpy as np

from kernel.socket_stamps import SO_TIMESTAMPNS
from srtm.host.clock import NS, WallClock
from srtm.limits.queueing import Floats
from srtm.text.errors import SrtmError, UnavailableError

_ETH_P_IP = 0x0800
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33  # asm-generic/socket.h
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # linux/if_packet.h
_BUFFER_BYTES = 64 << 20
"""Some 80,000 packets: ten times what a run sends."""
_HEADER_BYTES = 120  # IPv4 and TCP, each with all of its options
_TIMESPEC = struct.Struct("@ll")


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment: sender's port and gateway's, sequence number, payload bytes, monotonic ns."""

    sender: int
    port: int
    seq: int
    length: int
    time_ns: int


class Capture:
    """Captures from now on. Raises UnavailableError without CAP_NET_RAW."""

    def __init__(self, ports: list[int]) -> None:
        self._wall = WallClock()
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        except PermissionError:
            raise UnavailableError("no packet capture: CAP_NET_RAW is missing") from None
        code = ctypes.create_string_buffer(_filter(ports))  # the kernel copies it
        program = struct.pack("@HP", len(code) // 8, ctypes.addressof(code))  # struct sock_fprog
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        except PermissionError:
            self._socket.close()
            raise UnavailableError("no packet capture: CAP_NET_ADMIN is missing") from None
        self._socket.bind(("lo", _ETH_P_IP))
        self._socket.setblocking(False)

    def finish(self) -> list[Segment]:
        """All segments since the start, in order. Raises SrtmError where some were dropped, or the
        wall clock was stepped meanwhile."""
        found = []
        while True:
            try:
                packet, ancillary, _, address = self._socket.recvmsg(_HEADER_BYTES, 64)
            except BlockingIOError:
                break
            if address[2] != socket.PACKET_HOST:
                continue  # loopback shows each packet on its way out as well
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
            found.append(_parse(packet, seconds * NS + nanoseconds - self._wall.offset_ns))
        raw = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        dropped = struct.unpack("=II", raw)[1]
        if dropped:
            raise SrtmError(f"the packet capture dropped {dropped} packets: take a shorter run")
        if self._wall.refresh():
            raise SrtmError("the wall clock was stepped during the run: run it again")
        return found

    def close(self) -> None:
        self._socket.close()


def message_times(segments: list[Segment], port: int, message_bytes: int) -> Floats:
    """When each message came to `port`, in ns, sorted; shape (n,). All messages are of
    `message_bytes`, and a segment holds whole ones: each was written by one send. Of what came
    twice the first time counts: TCP probes for a lost tail when a stopped reader's host is slow to
    acknowledge."""
    ends: dict[int, int] = {}  # of each sender's bytes so far
    times: list[int] = []
    for segment in segments:
        if segment.port == port:
            end = segment.seq + segment.length
            new = (end - ends.get(segment.sender, segment.seq)) % (1 << 32)
            if new < 1 << 31:
                ends[segment.sender] = end
                times += [segment.time_ns] * (min(new, segment.length) // message_bytes)
    return np.sort(np.array(times, dtype=np.float64))


def _parse(packet: bytes, time_ns: int) -> Segment:
    header = (packet[0] & 15) * 4
    total = int.from_bytes(packet[2:4], "big")
    sender, port, seq = struct.unpack_from(">HHI", packet, header)
    return Segment(sender, port, seq, total - header - (packet[header + 12] >> 4) * 4, time_ns)


def _filter(ports: list[int]) -> bytes:
    """Classic BPF, struct sock_filter each: TCP over IPv4 to one of `ports`."""
    count = len(ports)
    code = [
        (0x30, 0, 0, 9),  # the protocol
        (0x15, 0, 2 + count, 6),  # TCP, or refuse
        (0xB1, 0, 0, 0),  # X: the length of the IP header
        (0x48, 0, 0, 2),  # the port it goes to
    ]
    code += [(0x15, count - number, 0, port) for number, port in enumerate(ports)]
    code += [(0x06, 0, 0, 0), (0x06, 0, 0, _HEADER_BYTES)]
    return b"".join(struct.pack("=HBBI", *each) for each in code)
