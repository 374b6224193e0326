"""The moves of a followed load, carried out between the events of its loop.

A publisher that is to leave stops, waits until all it has sent is answered, and goes on over the
new connection, as `srtm.client` does. What is due meanwhile is sent then, late by the move.
"""

from dataclasses import dataclass
from select import EPOLLIN
from socket import socket

from srtm.host.clock import monotonic_ns
from srtm.load.fleet import Fleet
from srtm.load.follow import Arrived, Follower, Going


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a publisher: from `at_ns` on `publisher` sends to the address with this number."""

    at_ns: int
    publisher: int
    address: int


class Moves:
    """done: in their order; held: publishers that wait at this moment"""

    def __init__(self, follower: Follower, fleet: Fleet) -> None:
        self._follower = follower
        self._fleet = fleet
        self._at = list(follower.at)
        self._wanted = list(follower.at)
        self._arrived: dict[int, tuple[str, socket]] = {}
        self._woken = False
        self.done: list[Move] = []
        fleet.handlers[follower.fd] = self._wake
        fleet.poller.register(follower.fd, EPOLLIN)

    @property
    def problems(self) -> list[str]:
        return [
            f"connections could not be had: {each}" for each in self._follower.problems.values()
        ]

    def _wake(self) -> None:
        self._woken = True

    @property
    def held(self) -> int:
        return sum(publisher.held is not None for publisher in self._fleet.publishers)

    def step(self) -> None:
        if self._woken:
            self._woken = False
            for each in self._follower.take():
                if isinstance(each, Going):
                    self._go(each.index, each.address)
                else:
                    self._take(each)
        for index in list(self._arrived):
            publisher = self._fleet.publishers[index]
            if publisher.closed or not publisher.waiting:
                self._move(index)

    def _go(self, index: int, address: str) -> None:
        self._wanted[index] = address
        if index in self._arrived:
            self._arrived.pop(index)[1].close()
        publisher = self._fleet.publishers[index]
        if address != self._at[index]:
            publisher.hold()
        elif publisher.held is not None and not publisher.closed:
            publisher.go_on()

    def _take(self, found: Arrived) -> None:
        index = found.index
        if index is None:
            self._fleet.consume_at(found.address, found.sock)
        elif (
            found.address == self._wanted[index] and self._fleet.publishers[index].held is not None
        ):
            self._arrived[index] = (found.address, found.sock)
        else:
            found.sock.close()  # it has been sent elsewhere since, or back

    def _move(self, index: int) -> None:
        address, sock = self._arrived.pop(index)
        self._at[index] = address
        now = monotonic_ns()
        number = self._fleet.publish_at(index, address, sock)
        self.done.append(Move(now, index, number))
