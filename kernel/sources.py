"""Which timestamp source is used: the best that works here, or the one that was asked for."""

import socket

from kernel.clock_stamps import ClockStamps
from kernel.ebpf import SegmentProgram
from kernel.ebpf_stamps import EbpfStamps
from kernel.errors import SourceUnavailable
from kernel.socket_stamps import SocketStamps
from kernel.stamps import StampSource
from srtm.host.clock import WallClock


def choose_source(wall: WallClock, asked: str = "auto") -> StampSource:
    """asked: auto, ebpf, sockopt or clock. Raises SourceUnavailable where that one does not work;
    `auto` always finds one, and its `reason` says why it is not a better one."""
    if asked == "clock":
        return ClockStamps()
    reason = ""
    if asked in ("auto", "ebpf"):
        try:
            return EbpfStamps(SegmentProgram(), wall)
        except SourceUnavailable as error:
            if asked == "ebpf":
                raise SourceUnavailable(f"--timestamps ebpf: {error}") from None
            reason = f"ebpf: {error}"
    source = SocketStamps(wall, reason)
    try:
        with socket.socket() as probe:
            source.prepare(probe)
    except OSError as error:
        why = f"sockopt: no SO_TIMESTAMPNS: {error.strerror}"
        if asked == "sockopt":
            raise SourceUnavailable(f"--timestamps {why}; use clock") from None
        return ClockStamps(f"{reason}; {why}")
    return source
