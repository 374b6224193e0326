"""Arrival times: when a segment reached this host, not when a busy process came to read it."""

from kernel.stamps import ClockStamps, SocketStamps, StampSource, best_source

__all__ = ["ClockStamps", "SocketStamps", "StampSource", "best_source"]
