"""TLS handshakes of clients, each a third of a millisecond of arithmetic and more.

They have their turn after all that decides about messages, for no longer than a millisecond of each
wake-up, so that a thousand clients that come back at once delay nobody's token by more than that.
"""

import logging
from collections import deque
from itertools import takewhile
from typing import Protocol

from srtm.gateway.reactor import Reactor
from srtm.host.clock import monotonic_ns
from srtm.host.seldom import Seldom

PATIENCE_NS = 5_000_000_000
"""nsqd's own: for a client that begins no handshake, or does not go on with it"""
_TURN_NS = 1_000_000
_TOLD_SECONDS = 1.0

log = logging.getLogger("srtm.gateway")


class Shaking(Protocol):
    """A client whose handshake is under way."""

    @property
    def closed(self) -> bool: ...

    def shake(self) -> bool:
        """Go on with what has come. Is the handshake over?"""

    def shake_late(self) -> None:
        """The other side had the time that it has."""


class Handshakes:
    """Clients whose handshakes wait for their turn, and those that we wait for.

    done, failed: handshakes since the start
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._turns: deque[Shaking] = deque()
        self._queued: set[Shaking] = set()
        self._under_way: dict[Shaking, int] = {}  # until when, in order; no other holds a client
        self._alarm = False  # set for the first of them
        self.done = 0
        self.failed = 0
        self._lines = Seldom(_TOLD_SECONDS)

    def tell(self, address: str, why: str) -> None:
        """Log why a client's handshake failed, though not of everybody in a flood."""
        count = self._lines.count()
        if count:
            more = f"; {count - 1} others failed since the last such line" if count > 1 else ""
            log.warning("the client at %s: %s%s", address, why, more)

    def begin(self, client: Shaking) -> None:
        """The client has been told to begin."""
        self._await(client)

    def want(self, client: Shaking) -> None:
        """Something of the client has come."""
        if client not in self._queued:
            self._queued.add(client)
            self._turns.append(client)
            self._reactor.soon()

    def left(self, client: Shaking) -> None:
        """The client's connection is closed."""
        if self._under_way.pop(client, 0):
            self.failed += 1

    def stage(self, now: int, _horizon: int) -> bool:
        """Serve those whose turn it is. True where more of them wait."""
        turns = self._turns
        until = now + _TURN_NS
        while turns:
            client = turns.popleft()
            self._queued.discard(client)
            if not client.closed:
                self._serve(client)
            if monotonic_ns() >= until:
                break
        return bool(turns)

    def _serve(self, client: Shaking) -> None:
        try:
            if client.shake():
                self._under_way.pop(client, 0)
                self.done += 1
        except Exception as error:
            self._reactor.fault(error, "a handshake failed and its connection is closed")
            client.shake_late()

    def _await(self, client: Shaking) -> None:
        self._under_way.pop(client, 0)
        self._under_way[client] = monotonic_ns() + PATIENCE_NS
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._under_way and not self._alarm:
            self._alarm = True
            self._reactor.call_at(next(iter(self._under_way.values())), self._look)

    def _look(self, now: int) -> None:
        """A client whose turn has yet to come has not kept us waiting."""
        self._alarm = False
        for client in list(takewhile(lambda each: self._under_way[each] <= now, self._under_way)):
            if client in self._queued:
                self._await(client)
                continue
            try:
                client.shake_late()
            except Exception as error:
                self._under_way.pop(client, 0)
                self._reactor.fault(error, "a late handshake could not be ended in order")
        self._set_alarm()
