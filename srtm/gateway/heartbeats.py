"""When each client gets its next heartbeat, by the interval that the client negotiated."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Protocol

_SOON_NS = 100_000_000
"""Long enough for an answer from nsqd: who is answered by then is not asked. Who has gone keeps its
place until it is found out, and may take tokens from those who wait."""


class Beating(Protocol):
    """A client, as far as its heart goes."""

    heartbeat_ns: int
    beat_serial: int
    last_read: int
    closed: bool

    def beat(self, now: int) -> None: ...
    def close(self) -> None: ...


class Heartbeats:
    """Clients by the time of their next beat; `tick` beats with those that are due."""

    def __init__(self, on_fault: Callable[[Exception, str], None]) -> None:
        self._on_fault = on_fault
        self._due: list[tuple[int, int, Beating]] = []
        self._soon: deque[tuple[int, Beating]] = deque()
        self._serial = itertools.count()

    def schedule(self, client: Beating, now: int) -> None:
        if client.heartbeat_ns:
            entry = (now + client.heartbeat_ns, next(self._serial), client)
            heapq.heappush(self._due, entry)

    def reschedule(self, client: Beating) -> None:
        """Its interval has changed. The entry of the old one is dropped when it comes up."""
        client.beat_serial = next(self._serial)
        if client.heartbeat_ns:
            entry = (client.last_read + client.heartbeat_ns, client.beat_serial, client)
            heapq.heappush(self._due, entry)

    def soon(self, client: Beating, now: int) -> None:
        """One beat more than its interval asks for: is it still there?"""
        self._soon.append((now + _SOON_NS, client))

    def tick(self, now: int) -> None:
        while self._soon and self._soon[0][0] <= now:
            client = self._soon.popleft()[1]
            if not client.closed:
                self._beat(client, now)
        due = self._due
        while due and due[0][0] <= now:
            _, serial, client = heapq.heappop(due)
            if client.closed or serial < client.beat_serial:
                continue
            self._beat(client, now)
            if not client.closed:
                self.schedule(client, now)

    def _beat(self, client: Beating, now: int) -> None:
        try:
            client.beat(now)
        except Exception as error:
            self._on_fault(error, "a heartbeat failed and its connection is closed")
            client.close()
