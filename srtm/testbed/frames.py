"""A port of a bridge whose frames come later: for kernels without netem.

Runs in the namespace of the bridge. The port is taken off the bridge; a TAP device takes its place
there, and each frame waits on its way from one to the other. With the process the TAP device goes.
"""

import argparse
import array
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
from collections import deque

from srtm.host.clock import NS, monotonic_ns

MAX_WAITING = 20_000
"""frames either way; more are dropped, as a switch does"""
_MAX_FRAME = 1 << 16
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
_SIOCETHTOOL = 0x8946  # linux/sockios.h
_OFFLOADS = (0x17, 0x1F, 0x24, 0x2C)  # linux/ethtool.h: STXCSUM, STSO, SGSO, SGRO
_ALL_PROTOCOLS = 0x0003  # linux/if_ether.h


class Line:
    """Frames in one direction: each leaves when it has waited long enough."""

    def __init__(self, delay_ns: int) -> None:
        self._delay_ns = delay_ns
        self._waiting: deque[tuple[int, bytes]] = deque()

    def take(self, now_ns: int, frame: bytes) -> None:
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append((now_ns + self._delay_ns, frame))

    def due(self, now_ns: int) -> list[bytes]:
        """The frames that have waited long enough, in order."""
        found: list[bytes] = []
        while self._waiting and self._waiting[0][0] <= now_ns:
            found.append(self._waiting.popleft()[1])
        return found

    def next_ns(self) -> int | None:
        """When the next one leaves."""
        return self._waiting[0][0] if self._waiting else None


def make_plain(interface: str) -> None:
    """The interface sends frames as they are on a wire: with checksums, no longer than its MTU."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in _OFFLOADS:
            value = array.array("B", struct.pack("II", command, 0))
            request = struct.pack("16sP", interface.encode(), value.buffer_info()[0])
            with contextlib.suppress(OSError):  # it does not have this one
                fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


def relay(port: str, delay_seconds: float) -> None:
    """Relay the frames of a port until SIGTERM."""
    tap_name = f"d{port[1:]}"
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", tap_name.encode(), _IFF_TAP | _IFF_NO_PI))
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    wire.bind((port, 0))
    wire.setblocking(False)
    _ip(f"link set {port} nomaster", f"link set {tap_name} master br0 up")
    over = False

    def end(*_: object) -> None:
        nonlocal over
        over = True

    signal.signal(signal.SIGTERM, end)
    to_wire, to_tap = (Line(int(delay_seconds * NS)) for _ in range(2))
    while not over:
        select.select([tap, wire.fileno()], [], [], _timeout(to_wire, to_tap))
        now_ns = monotonic_ns()
        for frame in _of_tap(tap):
            to_wire.take(now_ns, frame)
        for frame in _of_wire(wire):
            to_tap.take(now_ns, frame)
        with contextlib.suppress(OSError):  # a full queue drops, as a switch does
            for frame in to_wire.due(now_ns):
                wire.send(frame)
        with contextlib.suppress(OSError):
            for frame in to_tap.due(now_ns):
                os.write(tap, frame)
    _ip(f"link set {port} master br0 up")


def _timeout(*lines: Line) -> float | None:
    due = [at for at in (line.next_ns() for line in lines) if at is not None]
    return max(0.0, (min(due) - monotonic_ns()) / NS) if due else 1.0


def _of_tap(tap: int) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(found) < 64:
            found.append(os.read(tap, _MAX_FRAME))
    return found


def _of_wire(wire: socket.socket) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(found) < 64:
            frame, address = wire.recvfrom(_MAX_FRAME)
            if address[2] != socket.PACKET_OUTGOING:  # our own
                found.append(frame)
    return found


def _ip(*lines: str) -> None:
    text = "".join(f"{line}\n" for line in lines)
    subprocess.run(["ip", "-batch", "-"], input=text.encode(), check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="delay the frames of a bridge's port")
    parser.add_argument("--plain", default="", help="only turn off an interface's offloads")
    parser.add_argument("--port", default="")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds, either way")
    given = parser.parse_args()
    if given.plain:
        make_plain(given.plain)
    else:
        relay(given.port, given.delay)


if __name__ == "__main__":
    main()
