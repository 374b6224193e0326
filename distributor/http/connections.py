"""Which connections are open, and which of them wait for their clients.

A descriptor that a silent client holds is one that a gateway cannot have. So the number is bounded
below the limit of open files, and whoever has waited longest for its client makes room.
"""

import resource
from typing import Protocol

MOST_WAITING = 4096
"""The most connections that wait for their clients: as many as the kernel keeps for us until they
are accepted. Each may hold 8 KiB of head and 16 KiB that follow it, so this many hold 96 MiB."""
UNREAD_SECONDS = 30.0
"""An answer that its client does not read is held no longer."""
_SPARE_FILES = 64
"""Descriptors left for the store, the log, epoll and listeners; eleven were seen in use with
SQLite."""
_MOST_FILES = 65_536
"""Where the hard limit is unlimited."""
_MOST_WATCHED = 0.75
"""of all connections: reports of gateways have the rest"""


class Stream(Protocol):
    """A connection."""

    def close(self) -> None: ...

    def writing(self) -> bool:
        """Has its client still to read a part of the answer?"""


class Connections:
    """One waits from the start until its request has come whole, and again from the answer on. In
    between it is busy, as a watch is until its end. Times are monotonic seconds."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._waiting: dict[Stream, float] = {}  # since; the longest comes first
        self._busy: set[Stream] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    @property
    def all_busy(self) -> bool:
        """Is there no room, and nobody who could make it?"""
        return len(self._busy) >= self.most

    @property
    def has_room_to_watch(self) -> bool:
        return len(self._busy) <= self.most * _MOST_WATCHED

    def open(self, stream: Stream, now: float) -> bool:
        """One more. True when another one was closed for it."""
        full = len(self) >= self.most or len(self._waiting) >= MOST_WAITING
        if full:
            self.close_longest()
        self._waiting[stream] = now
        return full

    def work(self, stream: Stream) -> None:
        """Its request has come whole."""
        if self._waiting.pop(stream, None) is not None:
            self._busy.add(stream)

    def wait(self, stream: Stream, now: float) -> None:
        """The connection's request is answered: it waits for its client again."""
        if stream in self._busy:
            self._busy.remove(stream)
            self._waiting[stream] = now

    def forget(self, stream: Stream) -> None:
        """Drop a connection that is closed."""
        self._waiting.pop(stream, None)
        self._busy.discard(stream)

    def close_longest(self) -> None:
        """The one that has waited longest, if any waits."""
        stream = next(iter(self._waiting), None)
        if stream is not None:
            self.forget(stream)
            stream.close()

    def close_unread(self, now: float) -> None:
        for stream, since in list(self._waiting.items()):
            if now - since < UNREAD_SECONDS:
                break
            if stream.writing():
                self.forget(stream)
                stream.close()


def room_for_connections() -> int:
    """Raise the limit of open files as far as it goes; how many connections that leaves."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(files - _SPARE_FILES, files // 2)
